"""The KV of preempted requests in the host's memory, and its way there and back."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from kvsim.core import Sequence
from kvsim.errors import CapacityError
from kvsim.execution.engine import Engine
from kvsim.scheduling.preemption.swap import Swap


class HostMemory:
    """Rows of pinned memory; each takes a block of all layers, or a slot where sequences have ranges."""

    def __init__(self, engine: Engine, rows: int) -> None:
        self._engine = engine
        self._moved = engine.memory.copied()
        self._rows = [pinned(planes, rows, engine.device) for planes in self._moved]
        self.free = list(reversed(range(rows)))
        self._warm()

    def _warm(self) -> None:
        """Have compiled what moves blocks, by a block's trip here and back."""
        if self.free:
            rows = self.take([0])
            self.bring(rows, [0])
            self.free += rows

    @torch.inference_mode()
    def take(self, blocks: list[int]) -> list[int]:
        """Copy blocks here; returns their rows."""
        rows = [self.free.pop() for _ in blocks]
        ids, places = self._engine.ids(blocks), self._engine.ids(rows)
        for planes, host in zip(self._moved, self._rows, strict=True):
            self._engine.operators.gather(planes, ids, host, places)
        return rows

    @torch.inference_mode()
    def bring(self, rows: list[int], blocks: list[int]) -> None:
        """Copy rows to blocks; they stay here as well."""
        ids, places = self._engine.ids(blocks), self._engine.ids(rows)
        for planes, host in zip(self._moved, self._rows, strict=True):
            self._engine.operators.scatter(host, places, planes, ids)


def pinned(planes: Tensor, rows: int, device: str) -> Tensor:
    """Memory of the host ``[rows, planes, ...]`` for blocks of ``[planes, blocks, ...]``."""
    shape = (rows, planes.shape[0], *planes.shape[2:])
    try:
        return torch.empty(shape, dtype=planes.dtype, pin_memory=device == "cuda")
    except (RuntimeError, MemoryError):
        size = planes.dtype.itemsize * torch.Size(shape).numel()
        raise CapacityError(
            f"{size / 2**30:.1f} GiB of the host's memory cannot be had: lower preemption.host_gib"
        ) from None


class Copy(NamedTuple):
    """What the host has of a request: a row for each block, by its place in the sequence's table."""

    first: dict[int, int]
    """Of the sequence that computed the prompt, from the prompt's beginning."""
    rest: dict[Sequence, dict[int, int]]
    """Of each other one, from the prompt's end."""

    def rows(self, sequence: Sequence, places: range) -> list[int]:
        """Rows of a sequence's blocks; its own where it has them."""
        own = self.rest.get(sequence, {})
        return [own[place] if place in own else self.first[place] for place in places]

    def all(self) -> Iterator[int]:
        """Every row."""
        for rows in (self.first, *self.rest.values()):
            yield from rows.values()


class Swapping:
    """A Preemption that decides as ``way`` does and moves the KV itself.

    What is kept is copied when it is decided, before anybody else gets the blocks. It comes back when
    its sequence is computed on, or at the latest when the copy is let go. What does not fit in the
    host's space in whole blocks is recomputed.
    """

    def __init__(self, way: Swap, engine: Engine) -> None:
        self.overtaking, self.moved = way.overtaking, way.moved
        self._way, self._engine = way, engine
        self._memory = engine.memory
        self._host = HostMemory(engine, way.capacity // engine.memory.stride)
        self._copies: dict[Sequence, Copy] = {}
        engine.refill = self.refill

    def keep(self, sequence: Sequence, tokens: int) -> int:
        """Copy a request to the host if it is to be kept and there is room; 0 if it is not."""
        lead, *others = self._parts(sequence)
        if sum(len(places) for _, places in (lead, *others)) > len(self._host.free):
            return 0
        time = self._way.keep(sequence, tokens)
        if time:
            self._engine.branch()
            rest = {member: self._copied(member, places) for member, places in others}
            self._copies[sequence] = Copy(self._copied(*lead), rest)
            self.moved = self._way.moved
        return time

    def _parts(self, owner: Sequence) -> Iterator[tuple[Sequence, range]]:
        """The sequences of a request, and which blocks of each; what all begin with counts once."""
        lead, *others = members(owner)
        yield lead, self._memory.places(0, lead.num_computed)
        prompt = owner.request.prompt_tokens
        for sequence in others:
            yield sequence, self._memory.places(prompt, sequence.num_computed)

    def _copied(self, sequence: Sequence, places: range) -> dict[int, int]:
        blocks = self._memory.blocks(self._engine.allocator.table(sequence), places)
        return dict(zip(places, self._host.take(blocks), strict=True))

    def kept(self, sequence: Sequence) -> int:
        """Tokens of the copy."""
        return self._way.kept(sequence)

    def restore(self, sequence: Sequence, tokens: int) -> int:
        """As long as the way says; the copies are made when they are needed."""
        time = self._way.restore(sequence, tokens)
        self.moved = self._way.moved
        return time

    def drop(self, sequence: Sequence) -> None:
        """Bring back what is still missing, then let others have the rows."""
        self._way.drop(sequence)
        if sequence not in self._copies:
            return
        for member in members(sequence):
            if member.kv is not None:
                self.refill(member)
        self._host.free += self._copies.pop(sequence).all()

    def refill(self, sequence: Sequence) -> None:
        """Give a sequence the KV that it counts as computed and that its memory lacks."""
        table = self._engine.allocator.table(sequence)
        if table.filled >= sequence.num_computed:
            return
        self._engine.branch()
        places = self._memory.places(table.filled, sequence.num_computed)
        copy = self._copies[sequence if sequence.group is None else sequence.group.leader]
        self._host.bring(copy.rows(sequence, places), self._memory.blocks(table, places))
        table.filled = sequence.num_computed


def members(owner: Sequence) -> list[Sequence]:
    """The sequences of a request that have memory of their own, the one with the prompt first."""
    group = owner.group
    if group is None:
        return [owner]
    found: list[Sequence] = group.live if group.forked else group.live[:1]
    return found
