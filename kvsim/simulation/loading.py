"""An engine that loads KV from its host while it computes."""

from __future__ import annotations

from collections.abc import Callable
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

    ``load`` says how many picoseconds some tokens take. For a share of that (``handing_over``) the
    engine's core hands the pieces to the link before it launches the iteration that they were
    scheduled with; if it launches kernel by kernel, it waits for the link. A worker that has launched
    an iteration looks which loads are done, and the scheduler is told when that iteration ends. Copies
    to the host, which go the other way beside the GPU's work, cost nothing. Source: vLLM 0.23.0
    ``v1/kv_offload/cpu/gpu_worker.py``, ``kv_connector/v1/offloading/worker.py``.
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
        self._launches = self._host.launches
        self._link_free = 0  # when the link has done all loads so far
        self._loads: list[tuple[int, Sequence]] = []  # under way, and when they are done
        self._arriving: dict[Flight, list[Sequence]] = {}  # loads that an iteration will tell of

    @property
    def immediate(self) -> bool:
        """Not while KV is on its way."""
        return False

    @property
    def queue_length(self) -> int:
        """Requests on their way to the engine, waiting, loaded or running."""
        return super().queue_length + self.scheduler.loading_count

    def _decide(self, now: int) -> Flight | None:
        flight, asked = super()._decide(now), self.scheduler.loads
        handing = 0
        for sequence, tokens in asked:
            time = self._load(tokens)
            handing += round(self._host.handing_over * time)
            self._link_free = max(self._link_free, now) + time
            self._loads.append((self._link_free, sequence))
        if flight is not None:
            shape = flight.batch.shape
            if asked:
                waits = self._link_free - now if self._launches.streams(shape) else 0
                flight.hold = max(handing, waits)
            looks = now + flight.hold + self._launches.time(shape)
            self._arriving[flight] = self._done(looks)
        elif self._loads:
            Call(self._env, max(now, self._loads[0][0]), ARRIVAL, self._come)
        asked.clear()
        return flight

    def _done(self, now: int) -> list[Sequence]:
        """Sequences whose KV has come."""
        done = [sequence for at, sequence in self._loads if at <= now]
        del self._loads[: len(done)]
        return done

    def _finish(self, event: Event) -> None:
        assert self._flight is not None
        for sequence in self._arriving.pop(self._flight):
            self.scheduler.loaded(sequence)
        super()._finish(event)

    def _come(self, _: Event) -> None:
        """KV has come to an engine that had nothing else to do."""
        for sequence in self._done(self._env.now):
            self.scheduler.loaded(sequence)
        self._notice()
