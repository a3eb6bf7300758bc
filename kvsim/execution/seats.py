"""The state of running sequences on the device: one row, a seat, for each."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from kvsim.core import Sequence
from kvsim.execution.memory import KVMemory
from kvsim.memory.block_table import Mapped


class Seats:
    """Block table, length and latest token of every sequence that has memory.

    Tables follow the allocator's by their changes alone. The last row stands for nobody: its table
    leads nowhere and its length stays 0, so that a batch may be padded with it.
    """

    def __init__(self, allocator: Mapped, memory: KVMemory, count: int, device: str) -> None:
        self.nobody = count
        nowhere = -(memory.width * memory.size + 1)  # leads below 0 from every place of a table
        shape = (count + 1, memory.width)
        self.tables = torch.full(shape, nowhere, dtype=torch.int32, device=device)
        self.lengths = torch.zeros(count + 1, dtype=torch.int32, device=device)
        """Tokens whose KV is in memory."""
        self.latest = torch.zeros(count + 1, dtype=torch.int64, device=device)
        """Token that was sampled last; its KV is not in memory yet."""
        self._allocator = allocator
        self._device = device
        self._free = list(reversed(range(count)))
        self._taken: dict[Sequence, tuple[int, object]] = {}

    def of(self, sequences: Iterable[Sequence]) -> list[int]:
        """The seats of running sequences, their tables up to date on the device."""
        changes: list[tuple[int, int, list[int]]] = []
        seats = []
        for sequence in sequences:
            seat = self._seat(sequence)
            table = self._allocator.table(sequence)
            if table.settled < len(table.blocks):
                changes.append((seat, table.settled, table.blocks[table.settled :]))
                table.settled = len(table.blocks)
            seats.append(seat)
        if changes:
            self._update(changes)
        return seats

    def _seat(self, sequence: Sequence) -> int:
        """Its seat, or a new one if it has been admitted (again)."""
        known = self._taken.get(sequence)
        if known is not None and known[1] is sequence.kv:
            return known[0]
        if not self._free and known is None:
            self._sweep()
        seat = known[0] if known is not None else self._free.pop()
        self._taken[sequence] = (seat, sequence.kv)
        return seat

    def _sweep(self) -> None:
        """Take back the seats of sequences that were preempted."""
        for sequence in [one for one in self._taken if one.kv is None]:
            self.leave(sequence)

    def known(self, sequence: Sequence) -> tuple[Tensor, int] | None:
        """The table on the device of a sequence that has a seat, and the tokens in memory."""
        if sequence not in self._taken:
            return None
        seat = self._taken[sequence][0]
        return self.tables[seat], int(self.lengths[seat])

    def leave(self, sequence: Sequence) -> None:
        """The sequence has ended or was preempted, perhaps some time ago."""
        if sequence in self._taken:
            self._free.append(self._taken.pop(sequence)[0])

    def _update(self, changes: list[tuple[int, int, list[int]]]) -> None:
        """Write changed entries, all in one transfer."""
        places: list[int] = []
        entries: list[int] = []
        for seat, at, blocks in changes:
            first = seat * self.tables.shape[1] + at
            places += range(first, first + len(blocks))
            entries += blocks
        where, what = torch.tensor([places, entries]).to(self._device, non_blocking=True)
        self.tables.view(-1).index_copy_(0, where, what.int())
