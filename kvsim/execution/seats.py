"""The state of running sequences on the device: one row, a seat, for each."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from kvsim.core import Sequence
from kvsim.execution.memory import KVMemory
from kvsim.memory.block_table import BlockTable, Mapped


class Seat(NamedTuple):
    """The row of a sequence, from one admission to the next."""

    row: int
    kv: object
    table: BlockTable


class Seats:
    """Block table, length and latest token of every sequence that has memory.

    Tables follow the allocator's by their changes alone: :meth:`of` notes them, and they are written
    by :meth:`settle`, or by a step that takes them along (:meth:`pack`, :meth:`write`). The last row
    stands for nobody: its table leads nowhere and its length stays 0, so that a batch may be padded
    with it.
    """

    def __init__(self, allocator: Mapped, memory: KVMemory, count: int, device: str) -> None:
        self.nobody = count
        self._width = memory.width
        self._nowhere = -(memory.width * memory.size + 1)  # below 0 from every place of a table
        shape = (count + 1, memory.width)
        self.tables = torch.full(shape, self._nowhere, dtype=torch.int32, device=device)
        self.lengths = torch.zeros(count + 1, dtype=torch.int32, device=device)
        """Tokens whose KV is in memory."""
        self.latest = torch.zeros(count + 1, dtype=torch.int64, device=device)
        """Token that was sampled last; its KV is not in memory yet."""
        self._allocator = allocator
        self._device = device
        self._free = list(reversed(range(count)))
        self._taken: dict[Sequence, Seat] = {}
        self._places: list[int] = []
        self._entries: list[int] = []

    def of(self, sequences: Iterable[Sequence]) -> list[int]:
        """The rows of running sequences; what their tables have gained is noted."""
        taken, rows = self._taken, []
        for sequence in sequences:
            seat = taken.get(sequence)
            if seat is None or seat.kv is not sequence.kv:
                seat = self._sit(sequence, seat)
            row, _, table = seat
            start, end = table.settled, len(table.blocks)
            if start < end:
                first = row * self._width
                self._places += range(first + start, first + end)
                self._entries += table.blocks[start:]
                table.settled = end
            rows.append(row)
        return rows

    def _sit(self, sequence: Sequence, known: Seat | None) -> Seat:
        """The seat of a sequence that has been admitted (again)."""
        if not self._free and known is None:
            self._sweep()
        row = known.row if known is not None else self._free.pop()
        seat = self._taken[sequence] = Seat(row, sequence.kv, self._allocator.table(sequence))
        return seat

    def _sweep(self) -> None:
        """Take back the seats of sequences that were preempted."""
        for sequence in [one for one in self._taken if one.kv is None]:
            self.leave(sequence)

    def known(self, sequence: Sequence) -> tuple[Tensor, int] | None:
        """The table on the device of a sequence that has a seat, and the tokens in memory."""
        if sequence not in self._taken:
            return None
        row = self._taken[sequence].row
        return self.tables[row], int(self.lengths[row])

    def leave(self, sequence: Sequence) -> None:
        """The sequence has ended or was preempted, perhaps some time ago."""
        if sequence in self._taken:
            self._free.append(self._taken.pop(sequence).row)

    @property
    def changed(self) -> int:
        """Entries that are noted and not written."""
        return len(self._places)

    def settle(self) -> None:
        """Write what was noted, in one transfer and one launch."""
        if self._places:
            packed = np.empty(words(self.changed), np.int64)
            self.pack(packed, self.changed)
            self.write(torch.from_numpy(packed).to(self._device, non_blocking=True), self.changed)
            self.forget()

    def pack(self, into: NDArray[np.int64], room: int) -> None:
        """Put what was noted, padded to ``room`` entries with nobody's, into an array of :func:`words`."""
        spare = room - self.changed
        into[:room] = self._places + [self.nobody * self._width] * spare
        into[room:].view(np.int32)[:room] = self._entries + [self._nowhere] * spare

    def forget(self) -> None:
        """What was noted is written, or on its way."""
        self._places.clear()
        self._entries.clear()

    def write(self, packed: Tensor, room: int) -> None:
        """Write entries that were packed, on the device."""
        entries = packed[room:].view(torch.int32)[:room]
        self.tables.view(-1).index_copy_(0, packed[:room], entries)


def words(room: int) -> int:
    """Numbers of 64 bits that hold so many places and, at half the width, their entries."""
    return room + (room + 1) // 2
