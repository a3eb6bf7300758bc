"""Executes the iterations that a scheduler decides: the model runs on the blocks of the allocator."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence as Seq
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from kvsim.core import Sequence
from kvsim.execution.decoder import Decoder
from kvsim.execution.memory import KVMemory
from kvsim.execution.operators import Operators
from kvsim.execution.places import Chunk, Places, Size, chunk_of, drawn_rows, placed
from kvsim.execution.seats import Seats
from kvsim.execution.text import Text
from kvsim.memory.block_table import Mapped

Prompts = Seq[tuple[Sequence, int]]


class Witness(Protocol):
    """Sees what the output head saw of each token that was sampled."""

    def see(self, sequences: Seq[Sequence], positions: Seq[int], outputs: Tensor) -> None:
        """``outputs[i]`` of ``sequences[i]`` at ``positions[i]``, for whom a token was sampled."""
        ...

    def fork(self, parent: Sequence, child: Sequence) -> None:
        """The child's answer is that of its parent so far."""
        ...

    def judge(self, sequence: Sequence) -> None:
        """The sequence has ended; its answer is still known."""
        ...


class Drawn(NamedTuple):
    """What a step leaves on the device."""

    outputs: Tensor
    """What the output head saw."""
    sampled: Tensor
    """A token for each row of it."""
    rows: list[int]
    """Rows that mean something: the decodes', then those of prompts that are complete."""


class Paging:
    """Attention of a mixed batch over its block tables: decodes come first, then prompts."""

    def __init__(self, operators: Operators, memory: KVMemory, slots: Tensor) -> None:
        self._operators, self._memory = operators, memory
        self._slots = slots
        self.decodes: tuple[Tensor, Tensor] | None = None
        """Tables and lengths."""
        self.prompts: tuple[Tensor, Tensor, Tensor, int] | None = None
        """Tables, starts, lengths and the greatest length."""

    def __call__(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Write the new KV of all, then let everybody read: a prompt may hit what another writes now."""
        ops, kv = self._operators, self._memory.read[layer]
        ops.write(k, v, self._memory.written[layer], self._slots)
        found, at = [], 0
        if self.decodes is not None:
            at = len(self.decodes[1])
            found.append(ops.decode(q[:at], kv, *self.decodes))
        if self.prompts is not None:
            found.append(ops.prompt(q[at:], kv, *self.prompts))
        return found[0] if len(found) == 1 else torch.cat(found)


class Engine:
    """One device, one model, one KV memory, driven by block tables."""

    def __init__(
        self,
        allocator: Mapped,
        decoder: Decoder,
        memory: KVMemory,
        operators: Operators,
        seats: int,
        *,
        witness: Callable[[Engine], Witness] | None = None,
    ) -> None:
        self.decoder, self.memory, self.operators = decoder, memory, operators
        self.device = decoder.device
        self.seats = Seats(allocator, memory, seats, self.device)
        self.text = Text(decoder.shape.vocab)
        self.device_seconds: float | None = None
        """What the device spent on iterations, launches that wait for one another included."""
        self.allocator = allocator
        self.refill: Callable[[Sequence], None] | None = None
        """Brings back what a sequence has elsewhere, where preemption keeps it."""
        self.witness = witness(self) if witness is not None else None

    def prepare(self, most: int) -> None:
        """Get ready for batches of up to ``most`` sequences; nothing to do where nothing is captured."""

    @torch.inference_mode()
    def execute(self, prompts: Prompts, decodes: Seq[Sequence]) -> None:
        """Compute one iteration and learn the tokens that it samples."""
        if self.allocator.forks or self.allocator.copies:
            self.branch()
        seats = self.seats.of([*decodes, *(sequence for sequence, _ in prompts)])
        chunks = [
            chunk_of(sequence, seat, new)
            for (sequence, new), seat in zip(prompts, seats[len(decodes) :], strict=True)
        ]
        for chunk in chunks:
            self._fill(chunk)
            if chunk.completes:
                self.text.cut(chunk.sequence, chunk.stop)
        rows = seats[: len(decodes)]
        drawn = self.mixed(rows, chunks) if chunks else self.decode(rows)
        self.text.settle()  # while the device computes
        self._learn([*decodes, *(c.sequence for c in chunks if c.completes)], drawn)

    def _fill(self, chunk: Chunk) -> None:
        """See that memory holds all that the chunk goes on from."""
        table = self.allocator.table(chunk.sequence)
        if table.filled < chunk.start:
            assert self.refill is not None, "nobody has what was computed"
            self.refill(chunk.sequence)
        table.filled = chunk.stop

    @torch.inference_mode()
    def branch(self) -> None:
        """Let forks begin where their parents are, and copy what both will write to."""
        allocator = self.allocator
        for parent, child, tokens in allocator.forks:
            self._fork(parent, child, tokens)
        self.seats.settle()
        allocator.forks.clear()
        if not allocator.copies:
            return
        pairs = {target: source for source, target in allocator.copies}
        self.copy([*pairs.values()], [*pairs])
        allocator.copies.clear()

    def copy(self, sources: list[int], targets: list[int]) -> None:
        """Copy blocks of all layers."""
        ids = self.ids(sources), self.ids(targets)
        for planes in self.memory.copied():
            self.operators.copy(planes, *ids)

    def ids(self, blocks: list[int]) -> Tensor:
        """Blocks on the device, each list aligned alike, as kernels are compiled for an alignment."""
        return torch.tensor(blocks, dtype=torch.int32).to(self.device)

    def _fork(self, parent: Sequence, child: Sequence, tokens: int) -> None:
        """The child has what its parent has, unless it comes back with an answer of its own."""
        if tokens > child.request.prompt_tokens or self.text.known(child) == tokens:
            self.text.fork(parent, child)
            if self.witness is not None:
                self.witness.fork(parent, child)
        if child.kv is not None:
            source, target = self.seats.of([parent, child])
            self.seats.lengths[target] = self.seats.lengths[source]
            self.seats.latest[target] = self.seats.latest[source]

    def decode(self, rows: list[int]) -> Drawn:
        """A step in which each seat gains one token."""
        self.seats.settle()
        outputs, sampled = self.decode_step(torch.tensor(rows, device=self.device))
        return Drawn(outputs, sampled, list(range(len(rows))))

    def decode_step(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Outputs and sampled tokens of seats on the device; padding is the seat of nobody."""
        seats, memory = self.seats, self.memory
        positions, tables = seats.lengths[rows], seats.tables[rows]
        entries = tables.gather(1, (positions // memory.size).long()[:, None])[:, 0]
        attend = Paging(self.operators, memory, memory.slots(entries, positions))
        lengths = (positions + 1) * (rows != seats.nobody)
        attend.decodes = (tables, lengths)
        outputs = self.decoder.outputs(seats.latest[rows], positions, attend)
        sampled = self.decoder.sample(outputs)
        seats.latest[rows] = sampled
        seats.lengths[rows] = lengths
        return outputs, sampled

    def mixed(self, rows: list[int], chunks: list[Chunk]) -> Drawn:
        """A step with chunks of prompts."""
        self.seats.settle()
        size = Size(len(rows), len(chunks), sum(chunk.stop - chunk.start for chunk in chunks))
        packed = placed(rows, chunks, size, self.text, self.seats.nobody)
        places = Places.of(torch.from_numpy(packed).to(self.device), size)
        longest = max(chunk.stop for chunk in chunks)
        return Drawn(*self.mixed_step(places, longest), drawn_rows(rows, chunks, size))

    def mixed_step(self, places: Places, longest: int) -> tuple[Tensor, Tensor]:
        """Outputs and sampled tokens of all rows that might sample, decodes first."""
        seats, memory, count = self.seats, self.memory, len(places.rows)
        positions = torch.cat([seats.lengths[places.rows], places.positions.int()])
        holders = torch.cat([places.rows, places.seats])
        entries = seats.tables[holders, (positions // memory.size).long()]
        attend = Paging(self.operators, memory, memory.slots(entries, positions))
        lengths = (positions[:count] + 1) * (places.rows != seats.nobody)
        if count:
            attend.decodes = (seats.tables[places.rows], lengths)
        stops = places.stops.int()
        attend.prompts = (seats.tables[places.prompts], places.starts.int(), stops, longest)
        tokens = torch.cat([seats.latest[places.rows], places.tokens])
        outputs = self.decoder.outputs(tokens, positions, attend, places.sampled)
        sampled = self.decoder.sample(outputs)
        seats.lengths[places.rows] = lengths
        seats.lengths[places.prompts] = stops
        seats.latest[places.answered] = sampled
        return outputs, sampled

    def _learn(self, sequences: list[Sequence], drawn: Drawn) -> None:
        """Note what was sampled; waits for the device."""
        tokens = drawn.sampled.tolist()
        if self.witness is not None and drawn.rows:
            last = [self.text.known(sequence) - 1 for sequence in sequences]
            self.witness.see(sequences, last, drawn.outputs[drawn.rows])
        self.text.draw(sequences, [tokens[row] for row in drawn.rows])

    @torch.inference_mode()
    def finish(self, sequence: Sequence) -> None:
        """Forget a request that has ended, all its sequences, once they were judged."""
        for one in sequence.group.members if sequence.group is not None else (sequence,):
            if self.witness is not None:
                self.witness.judge(one)
            self.seats.leave(one)
            self.text.forget(one)
