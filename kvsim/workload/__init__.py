"""Request traces: one reader per format, generators, and what can be said about a trace."""
