"""The recorder: what it is told comes out again, and its memory does not grow."""

from __future__ import annotations

import math

import numpy as np
import pytest

from kvsim.analysis.summary import mean_parts
from kvsim.analysis.timeseries import resample
from kvsim.core import BatchShape, Request, Usage, picoseconds
from kvsim.simulation.recorder import BATCH_ROWS, REPLICA_SAMPLES, Recorder
from kvsim.tables import POOL_PARTS, Limits
from kvsim.workload.fields import MAX_SECONDS
from tests.recorded import SLOTS, Kept, Pool, leap, served


class Filling(Pool):
    """A pool of which ``used`` slots are in use, the rest of the held ones reserved."""

    def __init__(self, held: int, used: int) -> None:
        super().__init__(held)
        self.used = used

    def usage(self) -> Usage:
        return Usage(self.used, 0, self.held_slots - self.used, 0, 0, SLOTS - self.held_slots)


def test_every_finished_request_becomes_a_row_in_seconds() -> None:
    sink = Kept()
    recorder = Recorder(2, SLOTS, sink)
    sequence = served(7, 1.5, queue=0.25, prefill=0.5, gap=0.1, output=3, cached=64, preemptions=2)
    sequence.recomputed_tokens = 33
    recorder.finished(sequence, 1)
    recorder.close()
    table = sink.table
    assert [column[0] for column in (table.row, table.replica, table.prompt_tokens)] == [7, 1, 100]
    assert table.id == ["request-7"]
    times = [table.arrival[0], table.scheduled[0], table.first_token[0], table.finished[0]]
    assert times == [1.5, 1.75, 2.25, 2.45]
    counts = (table.output_tokens, table.cached_tokens, table.preemptions, table.recomputed_tokens)
    assert [column[0] for column in counts] == [3, 64, 2, 33]


def test_a_rejected_request_keeps_its_reason_and_has_no_times_but_its_arrival() -> None:
    sink = Kept()
    recorder = Recorder(1, SLOTS, sink)
    recorder.finished(served(0, 0.0), 0)
    recorder.rejected(Request(1, 2.0, 10**6, 5), 0, picoseconds(2.0), "too long")
    recorder.close()
    assert sink.table.rejected == [None, "too long"]
    assert sink.table.arrival.tolist() == [0.0, 2.0]
    assert math.isnan(sink.table.finished[1])
    assert math.isnan(sink.table.scheduled[1])
    assert sink.table.served().row.tolist() == [0]


def test_the_longest_trace_that_is_believed_is_recorded() -> None:
    sink, late = Kept(), MAX_SECONDS
    recorder = Recorder(2, SLOTS, sink)
    leap(recorder, late, late + 1, Pool(held=9))
    recorder.gap(picoseconds(late))
    recorder.finished(served(0, late, gap=late, output=2), 0)
    recorder.rejected(Request(1, late, 10**6, 5), 0, picoseconds(late), "too long")
    samples = recorder.close().samples
    assert sink.table.arrival.tolist() == [late, late]
    assert sink.table.finished[0] == 2 * late + 0.5
    assert max(sink.seconds) == late
    assert samples.time.max() == late + 1


def test_requests_leave_in_batches_in_the_order_of_completion() -> None:
    sink = Kept()
    recorder = Recorder(1, SLOTS, sink)
    sequence = served(0, 0.0)
    for row in range(BATCH_ROWS + 5):
        sequence.request = sequence.request._replace(row=row)
        recorder.finished(sequence, 0)
    assert [len(table) for table in sink.tables] == [BATCH_ROWS]
    recorder.close()
    assert sink.table.row.tolist() == list(range(BATCH_ROWS + 5))


def test_a_leap_is_one_gap_for_each_decode_in_each_step() -> None:
    sink = Kept()
    recorder = Recorder(1, SLOTS, sink)
    leap(recorder, 0.0, 3.0, Pool(), steps=10, shape=BatchShape(decodes=4, context_tokens=9))
    leap(recorder, 3.0, 5.0, Pool(), shape=BatchShape(0, 0, prefills=1, prefill_tokens=50))
    recorder.gap(picoseconds(7.0))
    totals = recorder.close().replicas[0]
    assert dict(zip(sink.seconds, sink.counts, strict=True)) == {0.3: 40, 7.0: 1}
    assert totals.iterations == 11
    assert totals.tokens == 90
    assert totals.busy == 5.0


def test_held_memory_is_integrated_over_time_and_its_peak_kept() -> None:
    recorder = Recorder(1, SLOTS, Kept())
    leap(recorder, 0.0, 2.0, Pool(held=300))
    leap(recorder, 5.0, 6.0, Pool(held=800))
    totals = recorder.close().replicas[0]
    assert totals.held == 2 * 300 + 800
    assert totals.peak_held == 800


def test_memory_that_grows_in_a_leap_is_held_step_by_step() -> None:
    leapt, stepped = Recorder(1, SLOTS, Kept()), Recorder(1, SLOTS, Kept())
    leap(leapt, 0.0, 4.0, Pool(held=140), steps=4, held=100)
    for step in range(4):
        pool = Pool(held=110 + 10 * step)
        leap(stepped, step, step + 1.0, pool, held=100 + 10 * step)
    totals = [recorder.close().replicas[0] for recorder in (leapt, stepped)]
    assert totals[0].held == totals[1].held == 110 + 120 + 130 + 140
    assert totals[0].peak_held == totals[1].peak_held == 140


def test_reserved_memory_comes_into_use_step_by_step() -> None:
    leapt, stepped = Recorder(1, SLOTS, Kept()), Recorder(1, SLOTS, Kept())
    shape = BatchShape(decodes=3, context_tokens=100)
    leap(leapt, 0.0, 5.0, Filling(held=400, used=80), steps=5, shape=shape)
    for step in range(5):
        leap(stepped, step, step + 1.0, Filling(held=400, used=68 + 3 * step), shape=shape)
    found = [mean_parts(recorder.close().samples, 0.0) for recorder in (leapt, stepped)]
    assert found[0] == found[1]
    assert (found[0]["used"], found[0]["reserved"]) == (74, 326)


def test_memory_given_to_what_follows_is_held_in_the_last_step_alone() -> None:
    recorder = Recorder(1, SLOTS, Kept())
    leap(recorder, 0.0, 4.0, Pool(held=500), steps=4, held=100, grown=130)
    totals = recorder.close().replicas[0]
    assert totals.held == 3 * (100 + 130) / 2 + 500
    assert totals.peak_held == 500


def test_an_idle_replica_holds_nothing_until_the_last_one_ends() -> None:
    recorder = Recorder(2, SLOTS, Kept())
    leap(recorder, 0.0, 2.0, Pool(held=1000), replica=0)
    recorder.idle(0, Pool(held=0, cached=400))  # type: ignore[arg-type]
    leap(recorder, 0.0, 8.0, Pool(held=0), replica=1)
    means = mean_parts(recorder.close().samples, start=0.0)
    assert means["used"] + means["reserved"] == pytest.approx(1000 * 2 / 8)
    assert means["cached"] == pytest.approx(400 * 6 / 8)
    assert sum(means.values()) == pytest.approx(2 * SLOTS)


def test_samples_stay_few_cover_the_run_and_keep_its_means() -> None:
    recorder = Recorder(1, SLOTS, Kept())
    random = np.random.default_rng(0)
    held = (500 + 400 * np.sin(np.arange(50_000) / 900)).astype(int)
    times = np.cumsum(random.exponential(1.0, 50_001))
    for i, slots in enumerate(held.tolist()):
        leap(recorder, times[i], times[i + 1], Pool(held=slots))
    engine = recorder.close()
    samples = engine.samples
    assert REPLICA_SAMPLES / 4 <= len(samples) <= REPLICA_SAMPLES
    assert samples.time[-1] > 0.99 * times[-1]
    assert (np.diff(samples.time) > 0).all()
    means = mean_parts(samples, start=float(times[0]))
    exact = engine.replicas[0].held / (times[-1] - times[0])
    assert means["used"] + means["reserved"] == pytest.approx(exact, rel=0.02)


def test_the_parts_of_every_sample_sum_to_the_pool() -> None:
    recorder = Recorder(2, SLOTS, Kept())
    for second in range(100):
        leap(recorder, second, second + 0.5, Pool(held=7 * second, cached=3 * second))
        leap(recorder, second, second + 1.0, Pool(held=second), replica=1)
    samples = recorder.close().samples
    assert (sum(getattr(samples, part) for part in POOL_PARTS) == SLOTS).all()
    assert [int(part.replica[0]) for part in samples.by_replica()] == [0, 1]


SEATS = Limits(max_num_seqs=8, max_num_batched_tokens=64)
FULL_BUDGET = BatchShape(4, 0, prefills=1, prefill_tokens=60)
PART_BUDGET = BatchShape(4, 0)


@pytest.mark.parametrize(
    ("limits", "running", "shape", "blamed"),
    [
        (SEATS, 8, FULL_BUDGET, "blocked_seats"),
        (SEATS, 5, FULL_BUDGET, "blocked_budget"),
        (SEATS, 5, PART_BUDGET, "blocked_kv"),
        (Limits(), 500, FULL_BUDGET, "blocked_kv"),
        (Limits(max_num_seqs=8, closed_batches=True), 2, PART_BUDGET, "blocked_seats"),
    ],
)
def test_waiting_is_blamed_on_what_was_exhausted(
    limits: Limits, running: int, shape: BatchShape, blamed: str
) -> None:
    recorder = Recorder(1, SLOTS, Kept(), limits=limits)
    leap(recorder, 0.0, 1.0, Pool(), shape=shape, waiting=0, running=running)
    leap(recorder, 1.0, 3.0, Pool(), shape=shape, waiting=1, running=running)
    totals = recorder.close().replicas[0]
    causes = ("blocked_kv", "blocked_seats", "blocked_budget")
    assert {cause: getattr(totals, cause) for cause in causes} == {
        cause: 2.0 if cause == blamed else 0.0 for cause in causes
    }


def test_a_run_without_requests_leaves_empty_tables() -> None:
    sink = Kept()
    engine = Recorder(3, SLOTS, sink).close()
    assert len(sink.table) == len(engine.samples) == 0
    assert sink.seconds == []


def test_samples_count_preemptions_and_evictions_from_the_start() -> None:
    recorder, pool = Recorder(1, SLOTS, Kept()), Pool()
    leap(recorder, 0.0, 1.0, pool)
    pool.evictions = 30
    leap(recorder, 1.0, 2.0, pool, preemptions=2)
    pool.evictions = 40
    recorder.idle(0, pool)  # type: ignore[arg-type]
    leap(recorder, 5.0, 6.0, pool, preemptions=3)
    samples = recorder.close().samples
    assert samples.time.tolist() == [1.0, 2.0, 5.0, 6.0]
    assert samples.preemptions.tolist() == [0, 2, 2, 3]
    assert samples.evictions.tolist() == [0, 30, 40, 40]
    new = resample(samples, np.array([0.0, 2.0, 6.0]))
    assert new["preemptions"].tolist() == [2, 1]
    assert new["evictions"].tolist() == [30, 10]


def test_a_preempted_request_says_how_long_its_answer_stood_still() -> None:
    sink, sequence = Kept(), served(0, 0.0, preemptions=1)
    sequence.last_token = picoseconds(1.0)
    sequence.see_token(picoseconds(3.5))
    recorder = Recorder(1, SLOTS, sink)
    recorder.finished(sequence, 0)
    recorder.close()
    assert sink.table.stalled.tolist() == [2.5]
