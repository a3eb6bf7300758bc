"""Closed loops: a turn of a session arrives when its user has read the answer before it."""

from __future__ import annotations

import pytest

from kvsim.core import PICOSECONDS, Request, picoseconds
from kvsim.memory.paged import Paged
from kvsim.scheduling.chunked import Chunked
from kvsim.simulation import arrivals as arrivals_module
from tests.oracles.costs import Crossing
from tests.oracles.replay import Log, replay

STEP = PICOSECONDS // 100
COST = Crossing(base=STEP, per_context=0, per_token=0, per_pair=0)


def first(row: int, at: float, session: str, prompt: int = 16, output: int = 5) -> Request:
    return Request(row, at, prompt, output, session=session)


def later(row: int, think: float, session: str, prompt: int = 16, output: int = 5) -> Request:
    return Request(row, None, prompt, output, session=session, think_time=think)


def serve(*requests: Request) -> Log:
    pool = Paged(1 + 20)
    return replay(requests, Chunked(pool, max_num_seqs=8), pool, COST, check=True)


def arrivals(log: Log) -> dict[int, int]:
    return {sequence.request.row: sequence.arrival for sequence in log.sequences}


def test_a_turn_arrives_its_think_time_after_the_answer_before_it() -> None:
    log = serve(first(0, 1.0, "a"), later(1, 2.5, "a"), later(2, 0.0, "a"))
    ends = {seen.row: seen.finished or 0 for seen in log.seen}
    assert ends[0] == PICOSECONDS + 5 * STEP
    assert arrivals(log)[1] == ends[0] + picoseconds(2.5)
    assert arrivals(log)[2] == ends[1]


def test_sessions_do_not_wait_for_each_other() -> None:
    log = serve(first(0, 0.0, "a"), later(1, 9.0, "a"), first(2, 1.0, "b"), later(3, 1.0, "b"))
    assert [seen.row for seen in log.seen] == [0, 2, 3, 1]


def test_a_turn_that_is_read_after_the_answer_before_it_counts_from_that_answer() -> None:
    # The trace names the second turn only after a request that arrives much later.
    log = serve(first(0, 0.0, "a"), Request(1, 50.0, 16, 5), later(2, 1.0, "a"))
    assert arrivals(log)[2] == 50 * PICOSECONDS


def test_a_session_goes_on_after_a_turn_that_can_never_be_served() -> None:
    log = serve(first(0, 1.0, "a", prompt=1000), later(1, 2.0, "a"))
    assert [row for row, _ in log.refused] == [0]
    assert arrivals(log) == {1: 3 * PICOSECONDS}


def test_sessions_that_went_on_long_ago_are_forgotten_and_may_still_come_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(arrivals_module, "REMEMBERED", 2)
    sessions = [first(row, float(row), str(row)) for row in range(5)]
    late = [Request(5, 50.0, 16, 5), later(6, 1.0, "0"), later(7, 100.0, "4")]
    log = serve(*sessions, *late)
    assert arrivals(log)[6] == 50 * PICOSECONDS
    assert arrivals(log)[7] == 4 * PICOSECONDS + 5 * STEP + 100 * PICOSECONDS


def test_turns_of_a_session_with_a_time_of_their_own_may_overlap() -> None:
    log = serve(first(0, 0.0, "a", output=50), first(1, 0.1, "a"), later(2, 1.0, "a"))
    assert arrivals(log)[1] == picoseconds(0.1)
    assert len(log.seen) == 3
