"""Models, GPUs and dated prices: data files with their sources, and the loaders that read them."""
