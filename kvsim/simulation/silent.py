"""An observer that notes nothing: what others start from."""

from __future__ import annotations

from kvsim.core import Leap, Request, Sequence
from kvsim.protocols import Allocator


class Silent:
    """Is told everything and keeps nothing; whoever wants to know something overrides its method."""

    def leap(self, leap: Leap, allocator: Allocator) -> None:
        """Iterations have run."""

    def gap(self, picoseconds: int) -> None:
        """A preempted sequence waited for a token."""

    def finished(self, sequence: Sequence, replica: int) -> None:
        """A sequence has its last token."""

    def rejected(self, request: Request, replica: int, arrival: int, reason: str) -> None:
        """A request can never be served."""

    def idle(self, replica: int, allocator: Allocator) -> None:
        """A replica has nothing to do."""
