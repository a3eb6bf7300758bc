"""Pure functions on the tables that a run leaves behind."""
