"""Records what happens, at about a microsecond a call and in memory that does not grow.

Requests and token gaps leave in batches for a :class:`kvsim.tables.Sink`; per replica there remain
a few sums and a bounded number of samples.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

from kvsim.core import PICOSECONDS, Leap, Request, Sequence, Usage
from kvsim.protocols import Allocator
from kvsim.simulation.track import Instant, Track, matrix
from kvsim.tables import EngineRecord, Limits, RequestTable, SampleTable, Sink

if TYPE_CHECKING:
    from kvsim.tables import Floats, Ints

BATCH_ROWS = 65_536
"""Requests, or leaps, that are passed on together."""
REPLICA_SAMPLES = 2_048
"""Most samples of a replica; when they are reached every other one is dropped."""
ALL_SAMPLES = 65_536
"""Most samples of all replicas, as far as each keeps :data:`FEWEST_SAMPLES`."""
FEWEST_SAMPLES = 256

_REQUEST_NUMBERS = 12


class Recorder:
    """Takes notes of a simulation with ``num_replicas`` pools of ``total_slots`` slots each.

    A replica calls :meth:`leap` and :meth:`finished` as it goes and :meth:`idle` when it has nothing
    to do; :meth:`close` ends the run.
    """

    def __init__(
        self, num_replicas: int, total_slots: int, sink: Sink, *, limits: Limits | None = None
    ) -> None:
        self._total_slots = total_slots
        self._sink = sink
        self._limits = limits or Limits()
        self._seats = self._limits.max_num_seqs or (1 << 62)
        if self._limits.closed_batches:
            self._seats = 1
        self._budget = self._limits.max_num_batched_tokens or (1 << 62)
        most = min(REPLICA_SAMPLES, max(FEWEST_SAMPLES, ALL_SAMPLES // num_replicas))
        self._tracks = [Track(total_slots, most) for _ in range(num_replicas)]
        self._new_requests()
        self._new_gaps()

    def _new_requests(self) -> None:
        self._requests = array("d")
        self._ids: list[str | None] = []
        self._reasons: list[str | None] = []
        self._tenants: list[str | None] = []

    def _new_gaps(self) -> None:
        self._gaps = array("d")
        self._gap_counts = array("d")

    # Requests.

    def finished(self, sequence: Sequence, replica: int) -> None:
        """A sequence has produced its last token."""
        request = sequence.request
        self._requests.extend(
            (
                request.row,
                replica,
                sequence.arrival,
                sequence.scheduled,
                sequence.first_token,
                sequence.finished,
                request.prompt_tokens,
                request.output_tokens,
                sequence.cached_tokens,
                sequence.preemptions,
                sequence.recomputed_tokens,
                sequence.stalled,
            )  # type: ignore[arg-type]  # a finished sequence has all its times
        )
        self._note(request, None)

    def rejected(self, request: Request, replica: int, arrival: int, reason: str) -> None:
        """A request can never be served, for the given reason."""
        lengths = (request.prompt_tokens, request.output_tokens)
        self._requests.extend((request.row, replica, arrival, 0, 0, 0, *lengths, 0, 0, 0, 0))
        self._note(request, reason)

    def _note(self, request: Request, reason: str | None) -> None:
        self._ids.append(request.id)
        self._reasons.append(reason)
        self._tenants.append(request.tenant)
        if len(self._ids) == BATCH_ROWS:
            self._pass_requests()

    # Iterations.

    def leap(self, leap: Leap, allocator: Allocator) -> None:
        """Count iterations that have run; who finished with them still holds memory."""
        replica, start, now, steps, shape, waiting, running, held, preemptions = leap[:9]
        track = self._tracks[replica]
        if start > track.end:
            track.wake(start)
        track.end = now
        track.preemptions = preemptions
        span = now - start
        after = allocator.held_slots
        decodes = shape.decodes
        tokens = decodes + shape.prefill_tokens
        track.iterations += steps
        track.tokens += tokens * steps
        track.busy += span
        # Memory grows by an equal part in each step, and is held for the whole of it; what follows is
        # given memory in the last.
        grown = after if leap.grown is None else leap.grown
        track.held += span * ((grown + held) * (steps - 1) + 2 * after) // (2 * steps)
        if after > track.peak:
            track.peak = after
        track.saved += span * allocator.saved_slots
        if decodes:
            for gap, count in leap.gaps():
                self._gaps.append(gap)
                self._gap_counts.append(decodes * count)
            if len(self._gaps) >= BATCH_ROWS:
                self._pass_gaps()
        if waiting:
            self._blocked(track, span, running, tokens)
        if now >= track.due:
            track.evictions = allocator.evictions
            instant = Instant(waiting, running, decodes + shape.prefills, tokens)
            usage = allocator.usage()
            if steps > 1 and held == after:
                usage = _filling(usage, tokens * (steps - 1) // 2)
            track.sample(now, instant, usage)

    def gap(self, picoseconds: int) -> None:
        """A single gap between two tokens that no leap accounts for: one that a preemption tore."""
        self._gaps.append(picoseconds)
        self._gap_counts.append(1)

    def idle(self, replica: int, allocator: Allocator) -> None:
        """The replica has nothing to do until its next :meth:`leap` starts."""
        track = self._tracks[replica]
        track.idle = allocator.usage()
        track.evictions = allocator.evictions

    def _blocked(self, track: Track, span: int, running: int, tokens: int) -> None:
        """Requests waited for ``span``: blame seats, else token budget, else memory."""
        if running >= self._seats:
            track.blocked_seats += span
        elif tokens >= self._budget:
            track.blocked_budget += span
        else:
            track.blocked_kv += span

    # The end.

    def close(self) -> EngineRecord:
        """Pass on what is left and return the sums; the run ends with the latest iteration."""
        end = max((track.end for track in self._tracks), default=0)
        for track in self._tracks:
            if track.end < end:
                track.sample(end, Instant(), track.idle)
        self._pass_requests()
        self._pass_gaps()
        totals = tuple(track.totals() for track in self._tracks)
        return EngineRecord(self._total_slots, self._limits, totals, self._sample_table())

    def _pass_requests(self) -> None:
        import numpy as np

        columns = matrix(self._requests, _REQUEST_NUMBERS).T.copy()
        times = columns[2:6] / PICOSECONDS
        refused = np.array([reason is not None for reason in self._reasons], dtype=bool)
        times[1:, refused] = np.nan
        stalled = columns[11] / PICOSECONDS
        numbers = (*_whole(columns[:2]), *times, *_whole(columns[6:11]), stalled)
        # mypy cannot count the columns.
        table = RequestTable(*numbers, self._ids, self._reasons, self._tenants)  # type: ignore[call-arg]
        self._new_requests()
        self._sink.requests(table)

    def _pass_gaps(self) -> None:
        import numpy as np

        gaps, counts = np.array(self._gaps), np.array(self._gap_counts)
        self._new_gaps()
        self._sink.gaps(gaps / PICOSECONDS, _whole(counts))

    def _sample_table(self) -> SampleTable:
        import numpy as np

        rows = [track.rows() for track in self._tracks]
        replicas = np.repeat(np.arange(len(rows)), [len(row) for row in rows])
        columns = np.concatenate(rows).T.copy()
        return SampleTable(columns[0] / PICOSECONDS, replicas, *_whole(columns[1:]))


def _filling(usage: Usage, slots: int) -> Usage:
    """The mean over a leap in which so many slots that were reserved at first came into use."""
    slots = min(slots, usage.used)
    return usage._replace(used=usage.used - slots, reserved=usage.reserved + slots)


def _whole(numbers: Floats) -> Ints:
    import numpy as np

    return numbers.astype(np.int64)
