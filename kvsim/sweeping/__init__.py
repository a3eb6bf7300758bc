"""Many scenarios on many traces: a matrix, a ledger that survives any end, and its results."""
