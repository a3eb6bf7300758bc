"""Executes the iterations that a scheduler decides: the model runs on the blocks of the allocator."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence as Seq
from typing import NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from kvsim.core import Sequence
from kvsim.execution.decoder import Decoder
from kvsim.execution.memory import KVMemory
from kvsim.execution.operators import Operators
from kvsim.execution.seats import Seats
from kvsim.execution.text import Text
from kvsim.memory.block_table import Mapped

Prompts = Seq[tuple[Sequence, int]]


class Witness(Protocol):
    """Sees what the output head saw of each token that was sampled."""

    def see(self, sequences: Seq[Sequence], positions: Seq[int], outputs: Tensor) -> None:
        """``outputs[i]`` of ``sequences[i]`` at ``positions[i]``, for whom a token was sampled."""
        ...

    def judge(self, sequence: Sequence) -> None:
        """The sequence has ended; its answer is still known."""
        ...


class Chunk(NamedTuple):
    """New tokens of one prompt."""

    sequence: Sequence
    seat: int
    start: int
    stop: int

    @property
    def completes(self) -> bool:
        """Whether the prompt (and what was answered before a preemption) is then in memory."""
        return self.stop == self.sequence.num_tokens


class Places(NamedTuple):
    """A mixed batch by its places: whole numbers, on the device."""

    rows: Tensor
    """Seats that decode."""
    seats: Tensor
    """Seat of each new token of a prompt."""
    positions: Tensor
    """Where in its sequence each of them is."""
    tokens: Tensor
    """Which tokens they are."""
    prompts: Tensor
    """Seat of each prompt."""
    starts: Tensor
    """First new token of each prompt among those of all, and their number."""
    stops: Tensor
    """Tokens of each prompt that are then in memory."""
    sampled: Tensor
    """Rows of the batch that a token is drawn for."""
    answered: Tensor
    """Seats of these rows."""


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
        self._allocator = allocator
        self.witness = witness(self) if witness is not None else None

    def prepare(self, most: int) -> None:
        """Get ready for batches of up to ``most`` sequences; nothing to do where nothing is captured."""

    @torch.inference_mode()
    def execute(self, prompts: Prompts, decodes: Seq[Sequence]) -> None:
        """Compute one iteration and learn the tokens that it samples."""
        self._copy_blocks()
        seats = self.seats.of([*decodes, *(sequence for sequence, _ in prompts)])
        chunks = [
            Chunk(sequence, seat, sequence.num_computed, sequence.num_computed + new)
            for (sequence, new), seat in zip(prompts, seats[len(decodes) :], strict=True)
        ]
        rows = seats[: len(decodes)]
        if chunks:
            outputs, sampled = self.mixed(rows, chunks)
        else:
            outputs, sampled = self.decode(rows)
        self._learn([*decodes, *(c.sequence for c in chunks if c.completes)], outputs, sampled)

    def _copy_blocks(self) -> None:
        """Do the copies of copy-on-write before anybody writes."""
        copies = self._allocator.copies
        if not copies:
            return
        pairs = torch.tensor(copies, dtype=torch.int32, device=self.device)
        for planes in self.memory.copied():
            self.operators.copy(planes, pairs[:, 0].contiguous(), pairs[:, 1].contiguous())
        copies.clear()

    def decode(self, rows: list[int]) -> tuple[Tensor, Tensor]:
        """Outputs and sampled tokens of a step in which each seat gains one token."""
        return self.decode_step(torch.tensor(rows, device=self.device))

    def decode_step(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """The same, for seats that are on the device; padding is the seat of nobody."""
        seats, memory = self.seats, self.memory
        positions, tables = seats.lengths[rows], seats.tables[rows]
        there = rows != seats.nobody
        entries = tables.gather(1, (positions // memory.size).long()[:, None])[:, 0]
        attend = Paging(self.operators, memory, memory.slots(entries, positions))
        lengths = (positions + 1) * there
        attend.decodes = (tables, lengths)
        outputs = self.decoder.outputs(seats.latest[rows], positions, attend)
        sampled = self.decoder.sample(outputs)
        seats.latest[rows] = sampled
        seats.lengths[rows] = lengths
        return outputs, sampled

    def mixed(self, rows: list[int], chunks: list[Chunk]) -> tuple[Tensor, Tensor]:
        """A step with chunks of prompts; returns the rows that sample, decodes first."""
        seats, memory, count = self.seats, self.memory, len(rows)
        places = self._places(rows, chunks)
        decoding, seat_of, at = places.rows, places.seats, places.positions
        positions = torch.cat([seats.lengths[decoding], at.int()])
        entries = seats.tables[torch.cat([decoding, seat_of]), (positions // memory.size).long()]
        attend = Paging(self.operators, memory, memory.slots(entries, positions))
        if rows:
            attend.decodes = (seats.tables[decoding], positions[:count] + 1)
        longest = max(chunk.stop for chunk in chunks)
        width = -(-longest // memory.size)
        stops = places.stops.int()
        attend.prompts = (seats.tables[places.prompts, :width], places.starts.int(), stops, longest)
        tokens = torch.cat([seats.latest[decoding], places.tokens])
        outputs = self.decoder.outputs(tokens, positions, attend, places.sampled)
        sampled = self.decoder.sample(outputs)
        seats.lengths[decoding] += 1
        seats.lengths[places.prompts] = stops
        seats.latest[places.answered] = sampled
        return outputs, sampled

    def _places(self, rows: list[int], chunks: list[Chunk]) -> Places:
        """Where everything in a mixed batch is, on the device after one transfer."""
        sizes = [chunk.stop - chunk.start for chunk in chunks]
        ends = np.cumsum(sizes)
        done = [i for i, chunk in enumerate(chunks) if chunk.completes]
        prompts = np.array([chunk.seat for chunk in chunks])
        parts = [
            np.array(rows, np.int64),
            np.repeat(prompts, sizes),
            np.concatenate([np.arange(chunk.start, chunk.stop) for chunk in chunks]),
            np.concatenate([self.text.tokens(c.sequence, c.start, c.stop) for c in chunks]),
            prompts,
            np.concatenate([[0], ends]),
            np.array([chunk.stop for chunk in chunks]),
            np.concatenate([np.arange(len(rows)), len(rows) + ends[done] - 1]),
            np.concatenate([np.array(rows, np.int64), prompts[done]]),
        ]
        moved = torch.from_numpy(np.concatenate(parts)).to(self.device)
        return Places(*moved.split([len(part) for part in parts]))

    def _learn(self, sequences: list[Sequence], outputs: Tensor, sampled: Tensor) -> None:
        """Note what was sampled; waits for the device."""
        tokens = sampled.tolist()
        if not tokens and sampled.is_cuda:
            torch.cuda.synchronize()
        if self.witness is not None:
            last = [self.text.known(sequence) - 1 for sequence in sequences]
            self.witness.see(sequences, last, outputs)
        for sequence, token in zip(sequences, tokens, strict=True):
            self.text.append(sequence, token)

    @torch.inference_mode()
    def fork(self, parent: Sequence, child: Sequence) -> None:
        """The child goes on from what its parent has, the token that was sampled last included."""
        source, target = self.seats.of([parent, child])
        self.seats.lengths[target] = self.seats.lengths[source]
        self.seats.latest[target] = self.seats.latest[source]
        self.text.fork(parent, child)

    @torch.inference_mode()
    def finish(self, sequence: Sequence) -> None:
        """Forget a sequence that has ended, once it was judged."""
        if self.witness is not None:
            self.witness.judge(sequence)
        self.seats.leave(sequence)
        self.text.forget(sequence)
