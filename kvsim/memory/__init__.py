"""KV memory: allocators, prefix caches and the order in which cached blocks are given up."""
