"""Where everything in a mixed batch is: decodes and chunks of prompts, packed for one transfer."""

from __future__ import annotations

from itertools import accumulate, pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from kvsim.core import Sequence
from kvsim.execution.text import Text


class Chunk(NamedTuple):
    """New tokens of one prompt."""

    sequence: Sequence
    seat: int
    start: int
    stop: int
    completes: bool
    """Whether all that is known is then in memory, so that the next token is drawn."""


def chunk_of(sequence: Sequence, seat: int, new: int) -> Chunk:
    """The next ``new`` tokens; no token follows the prompt of a group that comes back."""
    start, group = sequence.num_computed, sequence.group
    returning = group is not None and group.known is not None
    completes = start + new == sequence.num_tokens and not returning
    return Chunk(sequence, seat, start, start + new, completes)


class Size(NamedTuple):
    """Room in a batch; what is not filled is padding that changes nothing."""

    decodes: int
    prompts: int
    tokens: int
    """New tokens of all prompts."""

    @property
    def parts(self) -> list[int]:
        """Numbers in each field of :class:`Places`."""
        decodes, prompts, tokens = self
        drawn = decodes + prompts
        return [decodes, tokens, tokens, tokens, prompts, prompts + 1, prompts, drawn, drawn]


class Places(NamedTuple):
    """A batch by its places: whole numbers, on the device."""

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
    """First new token of each prompt among those of all, and the end of the last."""
    stops: Tensor
    """Tokens of each prompt that are then in memory."""
    sampled: Tensor
    """Rows of the batch that a token is drawn for: every decode, and every prompt's last."""
    answered: Tensor
    """Whose latest token that becomes: nobody's where a prompt is not complete."""

    @classmethod
    def of(cls, packed: Tensor, size: Size) -> Places:
        """The fields of what :func:`placed` packed, as views."""
        return cls(*packed.split(size.parts))


def placed(
    rows: list[int], chunks: list[Chunk], size: Size, text: Text, nobody: int
) -> NDArray[np.int64]:
    """The batch packed into one array, padded to a size with tokens and prompts of nobody."""
    packed = np.empty(sum(size.parts), np.int64)
    cuts = [0, *accumulate(size.parts)]
    decoding, seats, positions, tokens, prompts, starts, stops, sampled, answered = (
        packed[start:end] for start, end in pairwise(cuts)
    )
    decodes, count, at = size.decodes, len(chunks), 0
    decoding[: len(rows)], decoding[len(rows) :] = rows, nobody
    sampled[:decodes], answered[:decodes] = range(decodes), decoding
    for i, (sequence, seat, start, stop, completes) in enumerate(chunks):
        end = at + stop - start
        seats[at:end], positions[at:end] = seat, np.arange(start, stop)
        tokens[at:end] = text.tokens(sequence, start, stop)
        prompts[i], starts[i], stops[i] = seat, at, stop
        sampled[decodes + i] = decodes + end - 1
        answered[decodes + i] = seat if completes else nobody
        at = end
    seats[at:], positions[at:], tokens[at:] = nobody, 0, 0
    prompts[count:], starts[count:], stops[count:] = nobody, at, 0
    sampled[decodes + count :], answered[decodes + count :] = decodes, nobody
    return packed


def drawn_rows(rows: list[int], chunks: list[Chunk], size: Size) -> list[int]:
    """Rows among those sampled that belong to somebody."""
    complete = [size.decodes + i for i, chunk in enumerate(chunks) if chunk.completes]
    return [*range(len(rows)), *complete]
