"""What the processes of an engine take beside the GPU."""

from __future__ import annotations

from math import exp
from typing import NamedTuple

from kvsim.core import PICOSECONDS, BatchShape, picoseconds
from kvsim.simulation.latent import latent_parts


class Launches(NamedTuple):
    """What launching a batch takes the engine's core, seconds.

    While it launches, the core sees no tokens of the batch before and schedules nothing.
    """

    graph: float = 0.0
    """Decodes alone: one CUDA graph."""
    pieces: float = 0.0
    """With prompts, but no more tokens than captured: graphs of the parts between attentions."""
    kernels: float = 0.0
    """One kernel after another. The GPU runs the first while the core launches the others."""
    largest: int = 256
    """Tokens for which graphs are captured."""
    latent: float = 0.0
    """More for each part of latent attention, which is never in a graph of pieces (:mod:`.latent`)."""

    def time(self, shape: BatchShape) -> int:
        """Picoseconds to launch a batch."""
        large = shape.decodes + shape.prefill_tokens > self.largest
        if not large and not shape.prefills:
            return picoseconds(self.graph)
        parts = latent_parts(shape) if self.latent else 0
        return picoseconds((self.kernels if large else self.pieces) + parts * self.latent)

    def heavy(self, shape: BatchShape) -> bool:
        """Whether a batch is one that heats the GPU: prompts, more than any graph covers."""
        return shape.prefills > 0 and shape.decodes + shape.prefill_tokens > self.largest

    def streams(self, shape: BatchShape) -> bool:
        """Whether the GPU begins before all is launched."""
        return shape.prefills > 0 or shape.decodes > self.largest


class HostCosts(NamedTuple):
    """What an engine's processes take beside the GPU, seconds."""

    front_end: float = 0.0
    """From the last call of a burst until the front end hands the burst over to the engine."""
    longest_burst: float = 0.02
    """How long calls that follow one another closely may hold back the first of them."""
    front_end_per_token: float = 0.0
    """What each token of a prompt adds for its request."""
    to_client: float = 0.0
    """From the end of an iteration until a client sees its tokens."""
    wake: float = 0.0
    """From the first request of an idle engine to its first iteration."""
    idle_launch: float = 0.0
    """Launching that first iteration; the one after it is scheduled when this is done."""
    handing_over: float = 1.0
    """Share of the time of loading KV from the host for which the core hands it over to the link."""
    launches: Launches = Launches()
    boost: float = 0.0
    """How much faster the GPU begins a large batch with prompts after it has rested: its clock, which
    the power limit lowers under such batches, has recovered."""
    boosted: float = 0.0
    """Time in which all but 1 / e of that is lost under such batches, or regained without them."""

    def scaled(self, factor: float) -> HostCosts:
        """All delays ``factor`` times as long but the launches, which are part of iterations."""
        return self._replace(
            front_end=factor * self.front_end,
            longest_burst=factor * self.longest_burst,
            front_end_per_token=factor * self.front_end_per_token,
            to_client=factor * self.to_client,
            wake=factor * self.wake,
            idle_launch=factor * self.idle_launch,
            boosted=factor * self.boosted,
        )


class Heat:
    """How warm large batches have made the GPU, from 0 (rested) to 1; it follows them exponentially."""

    ALL = 0.98
    """From here on it counts as 1."""

    def __init__(self, boost: float, boosted: float) -> None:
        self._boost, self._span = boost, PICOSECONDS * boosted
        self._level = 0.0
        self._rests: int | None = 0  # since when no large batch runs

    def follow(self, now: int, time: int, *, heavy: bool) -> int:
        """Picoseconds that a batch which begins now and would take ``time`` takes less."""
        if not heavy:
            self.rest(now)
            return 0
        if not self._boost or not self._span:
            return 0
        if self._rests is not None:
            self._level *= exp((self._rests - now) / self._span)
            self._rests = None
        cool, left = 1 - self._level, exp(-time / self._span)
        self._level = 1 - cool * left
        if self._level >= self.ALL:
            self._level = 1.0
        return round(self._boost * self._span * cool * (1 - left))

    def rest(self, now: int) -> None:
        """No large batch runs from now on."""
        if self._rests is None:
            self._rests = now
