"""Cost models: how long an iteration takes."""
