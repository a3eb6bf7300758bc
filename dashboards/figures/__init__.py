"""Figures with plotly: pure functions of what analysis returns, in the reader's language."""
