"""An engine that loads KV from its host while it computes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Protocol

from simpy import Event

from kvsim.core import Sequence
from kvsim.protocols import Allocator, CostModel
from kvsim.simulation.events import ARRIVAL, Call
from kvsim.simulation.host import HostCosts
from kvsim.simulation.pipelined import Flight, Pipelined, PipelinedScheduler


class LoadingScheduler(PipelinedScheduler, Protocol):
    """A scheduler that asks for KV from the host."""

    loads: list[tuple[Sequence, int]]
    """Sequences that are to be loaded, and how many tokens of them."""

    @property
    def loading_count(self) -> int:
        """Requests in the queue that have memory: their KV comes, or has come."""
        ...

    def loaded(self, sequence: Sequence) -> None:
        """Its KV has come."""
        ...


class Loading(Pipelined):
    """Asynchronous scheduling with a link to the host that loads one request after another.

    ``load`` says how many picoseconds some tokens take. Meanwhile the engine's core launches nothing:
    recorded iterations that are scheduled with a load are as much longer. That a request is loaded is
    seen when the iteration that was scheduled with it ends. Copies to the host, which go the other
    way beside the GPU's work, cost nothing.
    """

    scheduler: LoadingScheduler

    def __init__(
        self,
        index: int,
        scheduler: LoadingScheduler,
        allocator: Allocator,
        cost_model: CostModel,
        *,
        load: Callable[[int], int],
        host: HostCosts | None = None,
        max_model_len: int | None = None,
        check: bool = False,
    ) -> None:
        super().__init__(
            index,
            scheduler,
            allocator,
            cost_model,
            host=host,
            max_model_len=max_model_len,
            check=check,
        )
        self._load = load
        self._arriving: dict[Flight, list[Sequence]] = {}

    @property
    def immediate(self) -> bool:
        """Not while KV is on its way."""
        return False

    @property
    def queue_length(self) -> int:
        """Requests on their way to the engine, waiting, loaded or running."""
        return super().queue_length + self.scheduler.loading_count

    def _decide(self, now: int) -> Flight | None:
        flight, loads = super()._decide(now), self.scheduler.loads
        if not loads:
            return flight
        sequences, hold = [one for one, _ in loads], sum(self._load(tokens) for _, tokens in loads)
        loads.clear()
        if flight is None:
            Call(self._env, now + hold, ARRIVAL, partial(self._come, sequences))
        else:
            flight.hold = hold
            self._arriving[flight] = sequences
        return flight

    def _finish(self, event: Event) -> None:
        assert self._flight is not None
        for sequence in self._arriving.pop(self._flight, ()):
            self.scheduler.loaded(sequence)
        super()._finish(event)

    def _come(self, sequences: list[Sequence], _: Event) -> None:
        """KV has come to an engine that had nothing else to do."""
        for sequence in sequences:
            self.scheduler.loaded(sequence)
        self._notice()
