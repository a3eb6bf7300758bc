"""The pages; each reads its choices from the address, asks for figures, and shows them."""
