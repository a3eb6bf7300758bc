"""How many of which GPUs, and what it costs: searches over replays of a trace.

A *trial* is one replay. A *search* yields the trials that it wants and receives their outcomes, so
that many searches share the processes of one pool and none depends on how many there are.
"""

from kvsim.planning.answer import Plan
from kvsim.planning.drive import plan
from kvsim.planning.question import Question

__all__ = ["Plan", "Question", "plan"]
