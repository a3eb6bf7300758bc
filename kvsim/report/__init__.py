"""Results for people: a summary on the console, and a comparison of runs.

Everything here reads ``summary.json`` only, so ``show`` and ``compare`` print the same text for a
run that just ended and for one from last year.
"""

from kvsim.report.comparison import print_comparison
from kvsim.report.parts import PARTS
from kvsim.report.summary import WIDTH, print_summary, subtitle

__all__ = ["PARTS", "WIDTH", "print_comparison", "print_summary", "subtitle"]
