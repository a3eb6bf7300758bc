"""Swap: KV is copied to the host and back."""

from __future__ import annotations

from typing import Literal, Protocol

from kvsim.core import Sequence
from kvsim.errors import ConfigError

Admission = Literal["hold", "overtake"]
Copies = Literal["blocks", "gathered"]


class Moves(Protocol):
    """What it takes to move KV, or to compute it again; picoseconds."""

    def slots(self, gib: float) -> int:
        """Slots whose KV a host space holds."""
        ...

    def out(self, tokens: int, copies: Copies) -> int:
        """Copy ``tokens`` tokens to the host."""
        ...

    def back(self, tokens: int, copies: Copies) -> int:
        """Copy them to the GPU."""
        ...

    def compute(self, tokens: int) -> int:
        """Compute them in one prefill."""
        ...


class Swap:
    """All KV of a request goes to the host if it fits there, else none and it is recomputed.

    ``host_gib``: the host's space (of each GPU), 4 as vLLM's V0 ``swap_space``. Under ``admission``
    ``hold`` nobody new is admitted before those that were swapped out have come back, which is V0's
    rule and follows from their place in front of the queue; ``overtake`` lets new requests use room
    that is too small for them. Copies stop the engine, as V0's do. What a prefix cache still holds
    need not come back. Source: Kwon et al., SOSP 2023 (arXiv:2309.06180), section 4.5.
    """

    def __init__(
        self,
        moves: Moves,
        *,
        host_gib: float = 4.0,
        admission: Admission = "hold",
        copies: Copies = "blocks",
    ) -> None:
        if not 0 <= host_gib <= 1e6:
            raise ConfigError(f"preemption.host_gib is {host_gib}; accepted: 0 to 1,000,000")
        self.overtaking = admission == "overtake"
        self.moved = 0
        self._moves = moves
        self._copies: Copies = copies
        self.capacity = self._free = moves.slots(host_gib)
        """Slots of the host's space."""
        self._kept: dict[Sequence, int] = {}

    def keep(self, sequence: Sequence, tokens: int) -> int:
        """The time of copying out, if the host has room; 0 if a copy is there already."""
        if sequence in self._kept or not tokens or tokens > self._free:
            return 0
        self._free -= tokens
        self._kept[sequence] = tokens
        self.moved += tokens
        return self._moves.out(tokens, self._copies)

    def kept(self, sequence: Sequence) -> int:
        """Tokens of the copy on the host."""
        return self._kept.get(sequence, 0)

    def restore(self, sequence: Sequence, tokens: int) -> int:
        """The time of copying ``tokens`` tokens back."""
        assert tokens <= self._kept[sequence]
        self.moved += tokens
        return self._moves.back(tokens, self._copies) if tokens else 0

    def drop(self, sequence: Sequence) -> None:
        """The copy is overwritten."""
        self._free += self._kept.pop(sequence, 0)
