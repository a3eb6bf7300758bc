"""SGLang's scheduler: its rules one by one, and all together against a plain copy."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import NamedTuple

import pytest

from kvsim import Scenario, simulate
from kvsim.core import Request, Sequence
from kvsim.errors import ConfigError
from kvsim.memory.radix import Radix
from kvsim.protocols import Batch
from kvsim.scheduling.new_token_ratio import NewTokenRatio
from kvsim.scheduling.prefill_first import PrefillFirst
from tests.oracles.costs import Crossing
from tests.oracles.plain_sglang import Limits, PlainSGLang
from tests.oracles.replay import replay

CHAT = Path(__file__).parents[1] / "traces" / "chat.jsonl.gz"
COST = Crossing(base=10**9, per_context=10**5, per_token=10**7, per_pair=10**4)


# Against the plain copy.


class Load(NamedTuple):
    """An engine and more requests than it can hold at once."""

    requests: list[Request]
    limits: Limits


def load(seed: int) -> Load:
    """Bursts of prompts that share beginnings; answers that outgrow the pool, now and then long ones."""
    draw = Random(seed)
    page, width = draw.choice([1, 1, 2, 3, 5]), draw.choice([2, 4, 7])
    longest = draw.choice([10, 40, 40, 150])
    arrival, requests = 0, []
    for row in range(draw.randint(4, 24)):
        arrival += draw.choice([0, 0, 0, 3, 40, 400])
        ids = [draw.randint(1, 2)] * draw.randint(0, 60 // width)
        ids += [draw.randint(1, 2) for _ in range(draw.randint(0, 12 // width))]
        prompt = max(1, len(ids) * width + draw.randint(1 - width, 9))
        answer = draw.randint(1, longest)
        requests.append(Request(row, arrival / 1000, prompt, answer, ids or None, width))
    limits = Limits(
        slots=draw.randint(70, 200) + longest,
        page=page,
        seats=draw.choice([2, 4, 8, 30]),
        chunk=draw.choice([8, 20, 60, 200]),
        allowed=draw.choice([1, 5, longest, 2 * longest, 10_000]),
        conservativeness=draw.choice([0.0, 0.0, 0.2, 1.0, 2.0]),
        policy=draw.choice(["fcfs", "lpm", "hrrn"]),
    )
    return Load(requests, limits)


def test_every_decision_is_that_of_the_plain_loop() -> None:
    retractions = evictions = chunks = 0
    for seed in range(80):
        requests, limits = load(seed)
        memory = Radix(limits.slots, page_size=limits.page)
        engine = PrefillFirst(
            memory,
            max_num_seqs=limits.seats,
            max_num_batched_tokens=limits.chunk,
            max_new_tokens=limits.allowed,
            schedule_conservativeness=limits.conservativeness,
            schedule_policy=limits.policy,  # type: ignore[arg-type]
            leaps=seed % 2 == 0,
        )
        log = replay(requests, engine, memory, COST, check=True)
        refused = {row for row, _ in log.refused}
        plain = PlainSGLang([r for r in requests if r.row not in refused], limits, COST)
        assert plain.run() == log.seen, seed
        assert (plain.memory.evicted, plain.retractions) == (memory.evictions, engine.preemptions)
        retractions += engine.preemptions
        evictions += memory.evictions
        chunks += sum(r.prompt_tokens > limits.chunk for r in requests)
    assert min(retractions, evictions, chunks) > 100


# Rule by rule.


class Driven:
    """An engine that is driven by hand, one iteration a tick."""

    def __init__(self, slots: int, *, page: int = 1, **options: int | float | str) -> None:
        self.memory = Radix(slots, page_size=page)
        self.engine = PrefillFirst(self.memory, leaps=False, **options)  # type: ignore[arg-type]
        self.now = 0
        self.rows = 0

    def ask(self, prompt: int, answer: int = 50, ids: list[int] | None = None) -> Sequence:
        sequence = Sequence(Request(self.rows, 0.0, prompt, answer, ids, 4), self.now)
        self.rows += 1
        self.engine.add(sequence)
        return sequence

    def step(self) -> Batch | None:
        batch = self.engine.schedule(self.now)
        self.now += 1
        if batch is not None:
            self.engine.retire(self.engine.complete(batch, 1, self.now))
            self.engine.check()
            self.memory.check()
        return batch

    def steps(self, count: int) -> None:
        for _ in range(count):
            self.step()


def admitted(*sequences: Sequence) -> list[bool]:
    return [sequence.scheduled is not None for sequence in sequences]


def test_the_ratio_falls_from_seven_tenths_to_a_seventh_of_that_in_600_decodes() -> None:
    ratio = NewTokenRatio()
    assert ratio.value == 0.7
    ratio.fall(300)
    assert ratio.value == pytest.approx((0.7 + 0.098) / 2)
    ratio.fall(300)
    assert ratio.value == pytest.approx(0.098)
    ratio.fall(1000)
    assert ratio.value == pytest.approx(0.098)
    ratio.reset()
    assert ratio.value == 0.7
    assert NewTokenRatio(2).value == 1


def test_a_retraction_sets_the_ratio_to_what_the_others_will_have_in_twenty_steps() -> None:
    ratio = NewTokenRatio()
    ratio.estimate(generated=60, answers=2, allowed=199)
    assert ratio.value == (60 + 2 * 20) / 200
    ratio.estimate(generated=500, answers=1, allowed=100)
    assert ratio.value == 1


@pytest.mark.parametrize(("prompt", "fits"), [(55, True), (56, False)])
def test_a_share_of_what_running_answers_may_need_is_set_aside(prompt: int, fits: bool) -> None:
    """90 slots are free, and 0.7 of 19 tokens set aside; 20 for its answer and a page are needed."""
    driven = Driven(100, max_new_tokens=20)
    driven.ask(10)
    driven.step()
    second = driven.ask(prompt)
    driven.step()
    assert admitted(second) == [fits]


@pytest.mark.parametrize(("prompt", "fits"), [(47, True), (48, False)])
def test_prompts_of_one_batch_set_their_whole_allowance_aside(prompt: int, fits: bool) -> None:
    driven = Driven(100, max_new_tokens=20)
    both = [driven.ask(10), driven.ask(prompt)]
    driven.step()
    assert admitted(*both) == [True, fits]


@pytest.mark.parametrize(("prompt", "fits"), [(63, True), (64, False)])
def test_a_page_more_is_asked_for_each_prompt(prompt: int, fits: bool) -> None:
    """Of 100 slots 88 are free, and nothing is set aside; its answer and a page need 24 of them."""
    driven = Driven(100, page=4, max_new_tokens=20, schedule_conservativeness=0)
    driven.ask(10)
    driven.step()
    second = driven.ask(prompt)
    driven.step()
    assert admitted(second) == [fits]


def test_no_answer_is_expected_to_be_longer_than_4096_tokens() -> None:
    driven = Driven(10_000, max_new_tokens=10**6)
    both = [driven.ask(10), driven.ask(10_000 - 10 - 4097 - 4097 - 1)]
    driven.step()
    assert admitted(*both) == [True, True]


def test_whoever_is_refused_closes_the_batch_until_a_sequence_has_ended() -> None:
    driven = Driven(100, max_new_tokens=20)
    driven.ask(10, 8)
    driven.step()
    large, small = driven.ask(60), driven.ask(1, 2)
    driven.steps(7)
    assert admitted(large, small) == [False, False]
    driven.step()  # nobody decodes any more, so the batch is empty, and open again
    assert admitted(large) == [True]


def test_a_batch_opens_with_the_decode_that_comes_after_the_end_of_a_sequence() -> None:
    driven = Driven(100, max_new_tokens=30)
    driven.ask(30, 3)
    driven.step()
    driven.ask(2, 30)
    driven.step()
    third = driven.ask(40)
    seen = []
    for _ in range(5):
        batch = driven.step()
        assert batch is not None
        seen.append((batch.shape.decodes, len(batch.prompts)))
    assert seen == [(2, 0), (2, 0), (1, 0), (0, 1), (2, 0)]
    assert admitted(third) == [True]


def test_nothing_decodes_while_a_prompt_is_computed_chunk_by_chunk() -> None:
    driven = Driven(1000, page=4, max_num_batched_tokens=10, max_new_tokens=50, max_num_seqs=8)
    driven.ask(4)
    driven.step()
    driven.ask(31)
    chunks = []
    while (batch := driven.step()) is not None and batch.prompts:
        assert not batch.shape.decodes
        chunks += [tokens for _, tokens in batch.prompts]
    # The first is cut at a page; SGLang cuts the ones that follow by the budget alone.
    assert chunks == [8, 10, 10, 3]
    assert batch is not None
    assert batch.shape.decodes == 2


def test_the_answer_with_the_fewest_tokens_is_retracted_of_equal_ones_the_longest_prompt() -> None:
    driven = Driven(60, max_new_tokens=1, schedule_conservativeness=0)
    old, longer, shorter = driven.ask(5), driven.ask(12), driven.ask(6)
    driven.engine._max_seqs = 1
    driven.steps(3)
    driven.engine._max_seqs, driven.engine._full = 3, False
    while not longer.preemptions:
        driven.step()
    assert [one.preemptions for one in (old, longer, shorter)] == [0, 1, 0]
    late = driven.ask(3)
    while not shorter.preemptions:
        driven.step()
    assert (old.preemptions, late.preemptions) == (0, 0)
    assert [*driven.engine._waiting][-1] is shorter  # behind all that wait


def test_a_retracted_answer_is_not_cached_and_its_prompt_is() -> None:
    driven = Driven(40, max_new_tokens=1, schedule_conservativeness=0)
    kept, gone = driven.ask(8, ids=[1, 2]), driven.ask(12, ids=[3, 4, 5])
    while not gone.preemptions:
        driven.step()
    assert driven.memory.match(gone).tokens == 12
    assert driven.memory.usage().cached == 12
    assert kept.preemptions == 0


def test_the_ratio_starts_anew_when_the_engine_is_idle() -> None:
    driven = Driven(100, max_new_tokens=20)
    driven.ask(10, 9)
    driven.steps(9)
    assert driven.engine._ratio.value < 0.7
    assert driven.step() is None
    assert driven.engine._ratio.value == 0.7


def test_a_request_whose_allowance_exceeds_the_pool_runs_alone() -> None:
    driven = Driven(50, max_new_tokens=4096)
    first, second = driven.ask(20, 20), driven.ask(20, 20)
    driven.steps(20)
    assert admitted(first, second) == [True, False]
    driven.step()
    assert admitted(second) == [True]


# Orders.


def waiting_for(policy: str, cached: list[int]) -> Driven:
    """An engine of one seat that decodes, with the ids of a prompt cached."""
    driven = Driven(4000, max_num_seqs=1, max_new_tokens=20, schedule_policy=policy)
    driven.ask(4 * len(cached), 1, cached)
    driven.step()
    driven.ask(1, 4)
    driven.step()
    return driven


def served_first(driven: Driven, *sequences: Sequence) -> Sequence:
    while not any(admitted(*sequences)):
        driven.step()
    return next(one for one in sequences if one.scheduled is not None)


def test_the_longest_prefix_match_goes_first() -> None:
    cached = [*range(100, 120)]
    for policy, first in (("fcfs", 0), ("lpm", 1)):
        driven = waiting_for(policy, cached)
        asked = [driven.ask(90, ids=[7] * 20), driven.ask(90, ids=cached)]
        assert served_first(driven, *asked) is asked[first]


def test_a_queue_of_more_than_128_is_not_sorted() -> None:
    cached = [*range(100, 120)]
    for others, first in ((126, 1), (127, 0)):
        driven = waiting_for("lpm", cached)
        asked = [
            driven.ask(90),
            driven.ask(90, ids=cached),
            *(driven.ask(9) for _ in range(others)),
        ]
        assert served_first(driven, *asked) is asked[first]


def test_of_those_that_share_a_prefix_nobody_has_one_computes_it_and_others_wait() -> None:
    driven = Driven(4000, max_num_seqs=3, max_new_tokens=20, schedule_policy="lpm")
    same = [driven.ask(50, 4, [5] * 10) for _ in range(2)]
    other = driven.ask(50, 4, [6] * 10)
    batch = driven.step()
    assert batch is not None
    assert [one for one, _ in batch.prompts] == [same[0], other, same[1]]


def test_the_highest_response_ratio_goes_first() -> None:
    """A long prompt that came first lacks more than the short one has waited less."""
    driven = waiting_for("hrrn", [9])
    long = driven.ask(400)
    driven.engine._order.computes(50)
    short = driven.ask(10)
    driven.engine._order.computes(10)
    assert served_first(driven, long, short) is short
    assert (60 / 400) < (10 / 10)


# In a scenario.


@pytest.mark.parametrize("allocator", ["radix", "paged"])
def test_a_replay_takes_it_by_name(allocator: str) -> None:
    scenario = Scenario(
        scheduler={"name": "prefill-first", "max_new_tokens": 64},
        allocator=allocator,
        num_gpu_blocks_override=220,
        workload={"limit": 60, "request_rate": 40},
    )
    runs = [simulate(scenario, CHAT, leaps=leaps, check=True) for leaps in (True, False)]
    served = [run.requests.served() for run in runs]
    ends = [(one.first_token.tolist(), one.finished.tolist()) for one in served]
    assert ends[0] == ends[1]
    assert len(served[0]) > 40
    assert runs[0].summary["num_preemptions"] > 0  # type: ignore[operator]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"max_new_tokens": 0}, "scheduler.max_new_tokens is 0; accepted: 1 or more"),
        ({"schedule_conservativeness": -1.0}, "conservativeness is -1.0; accepted: 0 to 100"),
        ({"max_num_batched_tokens": 8}, "less than a page of 16 tokens"),
    ],
)
def test_a_setting_that_cannot_be_is_one_line(options: dict[str, int | float], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        PrefillFirst(Radix(160, page_size=16), **options)  # type: ignore[arg-type]
