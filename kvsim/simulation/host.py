"""What the processes of an engine take beside the GPU."""

from __future__ import annotations

from typing import NamedTuple

from kvsim.core import BatchShape, picoseconds


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

    def time(self, shape: BatchShape) -> int:
        """Picoseconds to launch a batch."""
        if shape.decodes + shape.prefill_tokens > self.largest:
            return picoseconds(self.kernels)
        return picoseconds(self.pieces if shape.prefills else self.graph)

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
    """How much faster the GPU runs a large batch with prompts after one without, for ``boosted``
    seconds: its clock, which the power limit lowers under such batches, has recovered."""
    boosted: float = 0.0

    def scaled(self, factor: float) -> HostCosts:
        """All delays ``factor`` times as long but the launches, which are part of iterations."""
        return self._replace(
            front_end=factor * self.front_end,
            longest_burst=factor * self.longest_burst,
            front_end_per_token=factor * self.front_end_per_token,
            to_client=factor * self.to_client,
            wake=factor * self.wake,
            idle_launch=factor * self.idle_launch,
        )
