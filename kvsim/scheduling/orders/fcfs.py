"""First come, first served."""

from __future__ import annotations

from collections import deque

from kvsim.core import Sequence
from kvsim.scheduling.orders.order import Find


class FCFS:
    """By arrival; who was retracted stands at the end. SGLang's default."""

    def arrives(self, sequence: Sequence) -> None:
        """It is last."""

    def computes(self, tokens: int) -> None:
        """That changes nothing."""

    def sort(self, waiting: deque[Sequence], find: Find) -> deque[Sequence]:
        """As it is."""
        return waiting
