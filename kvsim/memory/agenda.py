"""When the decoders of hybrid models take and give up pages: at few of their steps, known ahead."""

from __future__ import annotations

from itertools import count

from kvsim.memory.layer_tables import Lease
from kvsim.memory.places import WHOLE


class Agenda:
    """The decoders of one pool, by the step at which each next takes or gives up a page."""

    def __init__(self) -> None:
        self.step = 0
        self.decoders: dict[Lease, None] = {}
        self._joins = count()
        self._due: dict[int, dict[Lease, None]] = {}

    def tokens(self, lease: Lease) -> int:
        """Tokens that a sequence has room for; a decoder's grow by one a step."""
        return lease.tokens if lease.joined is None else lease.tokens + self.step - lease.joined

    def join(self, lease: Lease) -> None:
        """It decodes from now on."""
        lease.joined, lease.order = self.step, next(self._joins)
        self.decoders[lease] = None
        self.plan(lease, lease.tokens, self.step)

    def leave(self, lease: Lease, tokens: int) -> None:
        """It decodes no more, and has ``tokens`` tokens."""
        self.cancel(lease)
        del self.decoders[lease]
        lease.joined, lease.tokens = None, tokens

    def plan(self, lease: Lease, tokens: int, step: int) -> None:
        """Note when a decoder that has ``tokens`` tokens at ``step`` next takes or gives up a page."""
        wait = WHOLE
        for table in lease.tables:
            wait = min(wait, table.end * table.group.block_size - tokens)
            gone = table.group.released_at(table.first)
            if gone is not None:
                wait = min(wait, gone - tokens)
        lease.due = step + max(wait, 0)
        self._due.setdefault(lease.due, {})[lease] = None

    def cancel(self, lease: Lease) -> None:
        """It is not to be waited for any more."""
        due = self._due[lease.due]
        del due[lease]
        if not due:
            del self._due[lease.due]

    def pop(self) -> list[Lease]:
        """Those whose turn it is in the step to come, in the order in which they joined."""
        return sorted(self._due.pop(self.step, ()), key=_order)


def _order(lease: Lease) -> int:
    return lease.order
