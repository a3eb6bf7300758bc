"""The discrete-event simulation: the only part of kvsim that knows SimPy."""
