"""The audit of ``--check`` passes every honest simulation and stops each kind of dishonest one.

That honest ones pass is also checked by every property test that replays with ``check=True``.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import pytest

from kvsim.core import PICOSECONDS, BatchShape, Leap, Match, Request, Sequence
from kvsim.memory.paged import Paged
from kvsim.protocols import Batch
from kvsim.routing import RoundRobin
from kvsim.scheduling.chunked import Chunked
from kvsim.scheduling.static import Static
from kvsim.simulation.audit import Audit
from kvsim.simulation.cluster import audited
from kvsim.simulation.replica import Replica
from tests.oracles.costs import Crossing
from tests.oracles.replay import Log

STEP = PICOSECONDS // 100
COST = Crossing(base=STEP, per_context=0, per_token=0, per_pair=0)


def requests() -> list[Request]:
    return [Request(row, row / 200, 30, 9, [1, 2, row], 10) for row in range(9)]


def serve(kind: type[Chunked], pool: Paged | None = None) -> Log:
    pool, log = pool or Paged(1 + 12, block_size=4), Log()
    audited(requests(), [Replica(0, kind(pool), pool, COST, check=True)], RoundRobin(), log)
    return log


def test_preempted_sequences_recompute_what_they_lost_and_did_not_find_again() -> None:
    log = serve(Chunked)
    preempted = [one for one in log.sequences if one.preemptions]
    assert preempted
    assert all(one.recomputed_tokens >= 0 for one in log.sequences)
    assert sum(one.recomputed_tokens for one in preempted) > 0


def test_only_computed_tokens_can_be_lost() -> None:
    """A prompt of 20 tokens that is preempted after four chunks of four loses these, not all."""
    pool = Paged(1 + 8, block_size=4, prefix_caching=False)
    log = Log()
    engine = Chunked(pool, max_num_seqs=2, max_num_batched_tokens=5)
    waits = [Request(0, 0.0, 8, 16), Request(1, 0.015, 20, 2)]
    audited(waits, [Replica(0, engine, pool, COST, check=True)], RoundRobin(), log)
    late = next(one for one in log.sequences if one.request.row == 1)
    assert (late.preemptions, late.recomputed_tokens) == (1, 16)


class Forgetful(Chunked):
    """Loses what is preempted."""

    def _preempt(self, now: int) -> Sequence:
        sequence = super()._preempt(now)
        self._waiting.popleft()
        return sequence


class Lazy(Chunked):
    """Gives away tokens that it did not compute."""

    def complete(self, batch: Batch, steps: int, now: int) -> list[Sequence]:
        finished = super().complete(batch, steps, now)
        for sequence, _ in batch.prompts:
            sequence.cached_tokens = 0
        return finished


class Boastful(Chunked):
    """Says that sequences were admitted before they arrived."""

    def _start(self, sequence: Sequence, hit: int, now: int) -> None:
        super()._start(sequence, hit, now)
        sequence.scheduled = sequence.arrival - 1


class Asleep(Chunked):
    """Pretends to have nothing to do while one request waits for company."""

    def schedule(self, now: int) -> Batch | None:
        return None if not self._running and len(self._waiting) == 1 else super().schedule(now)


class Hurried(Chunked):
    """Answers a token short."""

    def retire(self, finished: list[Sequence]) -> None:
        super().retire(finished)
        for sequence in finished:
            sequence.generated -= 1


class Leaking(Paged):
    """Keeps a block of whoever leaves."""

    def free(self, sequence: Sequence, tokens: int, *, finished: bool) -> None:
        super().free(sequence, tokens, finished=finished)
        self._held += 1

    def check(self) -> None:
        """Blind to it."""


class Overbooked(Paged):
    """Shares blocks without counting who holds them."""

    def admit(self, sequence: Sequence, match: Match, tokens: int, *, spare: int = 0) -> bool:
        admitted = super().admit(sequence, match, tokens, spare=spare)
        if admitted and sequence.kv.path.end:
            sequence.kv.path.leaf.refs += 1
        return admitted


@pytest.mark.parametrize("kind", [Forgetful, Lazy, Boastful, Asleep, Hurried])
def test_a_scheduler_that_cheats_is_caught(kind: type[Chunked]) -> None:
    with pytest.raises(AssertionError):
        serve(kind)


@pytest.mark.parametrize("kind", [Leaking, Overbooked])
def test_a_pool_that_cheats_is_caught(kind: type[Paged]) -> None:
    with pytest.raises(AssertionError):
        serve(Chunked, kind(1 + 40, block_size=4))


def audit_of_one() -> tuple[Audit, Paged]:
    pool = Paged(1 + 12, block_size=4)
    audit = Audit([Replica(0, Chunked(pool), pool, COST)], Log())
    deque(audit.watch(requests()), maxlen=0)
    return audit, pool


def leap(audit: Audit, pool: Paged, start: int, end: int) -> None:
    audit.leap(Leap(0, start, end, 1, BatchShape(1, 10), 0, 1, 0), pool)


def served(
    *, arrival: int = 0, scheduled: int = 0, first: int = 10, finished: int = 10
) -> Sequence:
    sequence = Sequence(requests()[0], arrival)
    sequence.scheduled, sequence.first_token, sequence.finished = scheduled, first, finished
    sequence.generated, sequence.num_computed = 9, 38
    return sequence


STORIES: dict[str, Callable[[Audit, Paged], object]] = {
    "time goes back": lambda a, p: (leap(a, p, 0, 10), leap(a, p, 9, 12)),
    "time stands still": lambda a, p: leap(a, p, 10, 10),
    "a busy engine pauses": lambda a, p: (leap(a, p, 0, 10), leap(a, p, 11, 12)),
    "a request ends twice": lambda a, p: (
        leap(a, p, 0, 10),
        a.finished(served(), 0),
        a.finished(served(), 0),
    ),
    "a request is served and rejected": lambda a, p: (
        leap(a, p, 0, 10),
        a.finished(served(), 0),
        a.rejected(requests()[0], 0, 0, "too long"),
    ),
    "a request comes from nowhere": lambda a, p: a.rejected(Request(99, 0.0, 1, 1), 0, 0, "no"),
    "a request arrives early": lambda a, p: a.rejected(requests()[8], 0, 0, "no"),
    "an answer precedes its first token": lambda a, p: (
        leap(a, p, 0, 10),
        a.finished(served(first=11), 0),
    ),
    "the engine idled while it waited": lambda a, p: (
        leap(a, p, 0, 4),
        a.idle(0, p),
        leap(a, p, 6, 10),
        a.finished(served(arrival=3, scheduled=6), 0),
    ),
    "the engine woke late": lambda a, p: (
        leap(a, p, 6, 10),
        a.finished(served(arrival=3, scheduled=6), 0),
    ),
    "requests are missing": lambda a, p: a.close(),
}


@pytest.mark.parametrize("story", STORIES)
def test_a_story_that_cannot_be_is_not_believed(story: str) -> None:
    audit, pool = audit_of_one()
    with pytest.raises(AssertionError):
        STORIES[story](audit, pool)


def test_a_possible_story_is_believed() -> None:
    audit, pool = audit_of_one()
    leap(audit, pool, 0, 4)
    audit.idle(0, pool)
    leap(audit, pool, 6, 10)
    audit.finished(served(arrival=6, scheduled=6), 0)


@pytest.mark.parametrize("kind", [Chunked, Static])
def test_what_a_preempted_sequence_generated_is_found_again(kind: type[Chunked | Static]) -> None:
    """It loses 20 tokens; until it returns two of its five blocks are taken for the other one."""
    log, pool = Log(), Paged(1 + 10, block_size=4)
    waits = [Request(row, 0.0, 4, 24) for row in range(2)]
    audited(waits, [Replica(0, kind(pool), pool, COST, check=True)], RoundRobin(), log)
    late = next(one for one in log.sequences if one.request.row == 1)
    assert (late.preemptions, late.recomputed_tokens) == (1, 8)
