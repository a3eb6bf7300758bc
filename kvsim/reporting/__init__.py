"""Reports that someone can sign: one document, shown as a page, as text, on paper or in a sheet.

A *document* is data: its summary, then sections of paragraphs, tables and charts. Runs, sweeps and
plans each become one (``of_runs``, ``of_sweep``, ``of_plan``); a renderer for each suffix writes any
of them, and knows nothing about what it shows.
"""

from kvsim.reporting.document import Document

__all__ = ["Document"]
