"""Hybrid models: groups of layers with block tables of their own over one pool of equal pages."""

from __future__ import annotations

import random
from math import lcm
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvsim import Scenario, simulate
from kvsim.catalog import load_model
from kvsim.core import Request, Sequence
from kvsim.errors import ConfigError
from kvsim.grouping import page_plan
from kvsim.layout import KVLayout
from kvsim.memory import layer_groups as layers
from kvsim.memory.hybrid import Hybrid
from kvsim.memory.layer_groups import Full, PagePlan, State, Window
from kvsim.memory.paged import Paged
from kvsim.scheduling import SCHEDULERS
from kvsim.scheduling.chunked import Chunked
from tests.contracts.test_allocators import History, Server
from tests.oracles.costs import Crossing
from tests.oracles.hybrid_naive import Kind, Live, Naive
from tests.oracles.replay import replay
from tests.oracles.workloads import request_lists
from tests.test_exact_replay import COSTS

TRACE = Path("traces/chat.jsonl.gz")
BLOCK = 4


def group_of(kind: Kind) -> Full:
    name, block, reach = kind
    if name in ("full", "state"):
        return Full(block) if name == "full" else State(block)
    return Window(block, window=reach) if name == "window" else layers.Chunked(block, span=reach)


@st.composite
def kinds(draw: st.DrawFn) -> list[Kind]:
    """Up to four groups, some of blocks twice as large."""
    block, groups = draw(st.sampled_from([1, 2, 4])), []
    for _ in range(draw(st.integers(1, 4))):
        name = draw(st.sampled_from(["full", "window", "window", "chunked", "state"]))
        size = block * draw(st.sampled_from([1, 1, 2]))
        reach = draw(st.integers(1, 13)) if name in ("window", "chunked") else 0
        groups.append(Kind(name, size, reach))
    return groups


def pool_of(
    pages: int, groups: list[Kind], *, chunk: int | None = None, caching: bool = True
) -> Hybrid:
    plan = PagePlan(tuple(map(group_of, groups)), 1)
    return Hybrid(pages, plan, max_num_batched_tokens=chunk, prefix_caching=caching)


def prompt(ids: list[int], tokens: int, row: int = 0, answer: int = 50) -> Sequence:
    return Sequence(Request(row, 0.0, tokens, answer, ids or None, BLOCK if ids else 0), 0)


def served(pool: Hybrid, sequence: Sequence) -> int:
    """Compute a prompt and end it; returns what it hit."""
    match = pool.match(sequence)
    assert pool.admit(sequence, match, sequence.num_tokens)
    pool.check()
    pool.free(sequence, sequence.num_tokens, finished=True)
    return match.tokens


def blocks_held(pool: Hybrid, sequence: Sequence) -> list[int]:
    return [table.end - table.first for table in sequence.kv.tables]


# What each kind of layers keeps.


def test_a_window_keeps_what_the_next_token_reads_and_full_attention_everything() -> None:
    pool = pool_of(100, [Kind("full", BLOCK), Kind("window", BLOCK, 6)])
    sequence = prompt([], 21)
    assert pool.admit(sequence, pool.match(sequence), 21)
    assert blocks_held(pool, sequence) == [6, 6]
    pool.join(sequence)
    pool.advance(1)
    assert blocks_held(pool, sequence) == [6, 2]  # tokens 16 to 21
    pool.advance(200)
    assert blocks_held(pool, sequence) == [56, 2]


def test_chunked_attention_starts_anew_at_each_chunk() -> None:
    pool = pool_of(100, [Kind("chunked", BLOCK, 16)], caching=False)
    sequence = prompt([], 20)
    assert pool.admit(sequence, pool.match(sequence), 20)
    pool.join(sequence)
    pool.advance(12)
    assert blocks_held(pool, sequence) == [4]
    pool.advance(1)
    assert blocks_held(pool, sequence) == [1]


@pytest.mark.parametrize(("caching", "pages"), [(True, 2), (False, 1)])
def test_a_state_takes_two_pages_with_its_snapshot_and_one_without(
    caching: bool, pages: int
) -> None:
    pool = pool_of(10, [Kind("state", BLOCK)], caching=caching)
    sequence = prompt([], 1001)
    assert pool.admit(sequence, pool.match(sequence), 1001)
    assert blocks_held(pool, sequence) == [pages]
    pool.join(sequence)
    pool.advance(1000)
    assert max(pool.held) == blocks_held(pool, sequence)[0] <= pages


def test_a_long_prompt_in_chunks_needs_a_window_and_a_chunk_only() -> None:
    pool = pool_of(12, [Kind("window", BLOCK, 9)], chunk=16)
    assert pool.fits(10_000)
    sequence = prompt([], 10_000)
    assert pool.admit(sequence, pool.match(sequence), 16)
    for tokens in range(32, 10_000, 16):
        assert pool.grow(sequence, tokens)
    assert pool.peak[0] <= 7


# Hits are what all groups agree on.


def test_a_window_hits_although_the_start_of_the_prompt_has_left_the_cache() -> None:
    pool = pool_of(9, [Kind("window", BLOCK, 5)])
    ids = list(range(8))
    served(pool, prompt(ids, 32))
    served(pool, prompt([90, 91, 92, 93], 16, 1))  # takes the four pages freed first: the tail
    assert served(pool, prompt(ids, 32, 2)) == 16


def test_full_attention_and_a_window_hit_what_both_have() -> None:
    groups = [Kind("full", BLOCK), Kind("window", BLOCK, 5)]
    pool = pool_of(100, groups)
    ids = list(range(5))
    served(pool, prompt(ids, 20))
    assert served(pool, prompt(ids, 20, 1)) == 16
    assert served(pool, prompt([*ids, 7], 24, 2)) == 20
    assert served(pool, prompt([0, 1, 9], 12, 3)) == 8


def test_a_state_is_hit_where_its_snapshot_lies_and_nowhere_else() -> None:
    pool = pool_of(100, [Kind("full", BLOCK), Kind("state", BLOCK)])
    ids = list(range(5))
    served(pool, prompt(ids, 19))  # a snapshot at 16
    assert served(pool, prompt([0, 1, 9], 12, 1)) == 0
    assert served(pool, prompt([*ids[:4], 8, 9], 24, 2)) == 16


def test_what_is_shared_counts_once_and_leaves_with_its_last_holder() -> None:
    pool = pool_of(100, [Kind("full", BLOCK), Kind("window", BLOCK, 8)])
    ids = list(range(3))
    first, second = (prompt([*ids, 10 + row], 14, row) for row in range(2))
    assert pool.admit(first, pool.match(first), 14)
    match = pool.match(second)
    assert match.tokens == 12
    assert pool.admit(second, match, 14)
    assert pool.held == [5, 5]  # the second holds two blocks of the three in its window
    assert pool.saved_slots == (3 + 2) * BLOCK
    pool.free(first, 14, finished=True)
    assert pool.held == [4, 3]
    pool.check()


# Against a naive oracle, and the promises of every allocator.


class Both:
    """The same random life of a pool, and of the oracle's."""

    def __init__(self, groups: list[Kind], pages: int, seed: int) -> None:
        self.random = random.Random(seed)
        self.pool = pool_of(pages, groups)
        unit = lcm(*(group.block for group in groups))
        self.naive = Naive(pages, groups, unit)
        self.width = min(group.block for group in groups)
        self.live: dict[Sequence, Live] = {}
        self.prompting: list[Sequence] = []
        self.decoding: list[Sequence] = []
        self.waiting: list[tuple[Sequence, Live]] = []
        self.rows = 0

    def arrive(self) -> None:
        draw, width = self.random.randint, self.width
        ids = [draw(0, 1) for _ in range(draw(1, 24 // width))]
        tokens = max(1, len(ids) * width + draw(-width + 1, 5))
        request = Request(self.rows, 0.0, tokens, 99, ids, width)
        described = min(tokens, len(ids) * width)
        content: list[object] = [(ids[at // width], at % width) for at in range(described)]
        self.rows += 1
        self.admit(Sequence(request, 0), Live(content, described // width * width))

    def admit(self, sequence: Sequence, live: Live) -> None:
        match = self.pool.match(sequence)
        assert match.tokens == self.naive.hit(live, sequence.num_tokens)
        tokens = min(match.tokens + self.random.randint(1, 30), sequence.num_tokens)
        if not self.pool.admit(sequence, match, tokens):
            if sequence.preemptions:
                self.waiting.append((sequence, live))
            return
        self.naive.admit(live, match.tokens, tokens)
        self.live[sequence] = live
        self.prompting.append(sequence)
        self.computed(sequence, tokens)

    def computed(self, sequence: Sequence, tokens: int) -> None:
        sequence.num_computed = tokens
        if tokens == sequence.num_tokens:
            self.prompting.remove(sequence)
            self.decoding.append(sequence)
            self.pool.join(sequence)
            self.naive.shed(self.live[sequence], tokens)

    def resume(self) -> None:
        if self.waiting:
            self.admit(*self.waiting.pop(0))

    def grow(self) -> None:
        if self.prompting:
            sequence = self.random.choice(self.prompting)
            rest = sequence.num_tokens - sequence.num_computed
            tokens = sequence.num_computed + min(rest, self.random.randint(1, 12))
            if self.pool.grow(sequence, tokens):
                self.naive.grow(self.live[sequence], tokens)
                self.computed(sequence, tokens)

    def decode(self) -> None:
        steps = self.pool.room(self.random.randint(1, 20))
        self.pool.advance(steps)
        for _ in range(steps):
            self.naive.step([self.live[sequence] for sequence in self.decoding])
        for sequence in self.decoding:
            sequence.num_tokens += steps
            sequence.num_computed += steps

    def leave(self) -> None:
        if not self.live:
            return
        sequence = self.random.choice(list(self.live))
        preempted, live = self.random.random() < 0.4, self.live.pop(sequence)
        self.pool.free(sequence, sequence.num_computed, finished=not preempted)
        self.naive.end(live)
        for group in (self.prompting, self.decoding):
            if sequence in group:
                group.remove(sequence)
        if preempted:
            sequence.preempt()
            self.waiting.append((sequence, live))

    def agree(self) -> None:
        self.pool.check()
        assert self.pool.held == self.naive.held(list(self.live.values()))
        assert self.pool.usage().free + self.pool.usage().cached == (
            len(self.naive.free) * self.pool.block_size
        )
        assert self.pool.evictions == self.naive.evictions


@settings(max_examples=80, deadline=None)
@given(kinds(), st.integers(8, 60), st.integers(0, 2**32))
def test_every_group_holds_what_a_naive_oracle_says(
    groups: list[Kind], pages: int, seed: int
) -> None:
    both = Both(groups, pages, seed)
    for _ in range(30):
        draw = both.random.choice
        draw(
            [both.arrive, both.arrive, both.grow, both.decode, both.decode, both.resume, both.leave]
        )()
        both.agree()


class GroupedHistory(History):
    """A history of the allocator contract on groups of layers; a token may take a slot in each."""

    def __init__(self, groups: list[Kind], pages: int, seed: int, *, caching: bool) -> None:
        super().__init__("hybrid", seed)
        self.servers = [
            Server(pool_of(pages, groups, caching=caching), leaps=leaps) for leaps in (True, False)
        ]
        self.leaping = self.servers[0]

    def accounts_for_every_slot(self, server: Server) -> None:
        memory, usage = server.memory, server.memory.usage()
        assert min(usage) >= 0
        assert sum(usage) == memory.total_slots
        assert memory.held_slots == usage.used + usage.internal
        assert server.running or not memory.held_slots


@settings(max_examples=80, deadline=None)
@given(kinds(), st.integers(8, 60), st.integers(0, 2**32), st.booleans())
def test_groups_keep_the_promises_of_every_allocator(
    groups: list[Kind], pages: int, seed: int, caching: bool
) -> None:
    GroupedHistory(groups, pages, seed, caching=caching).live(40)


@pytest.mark.parametrize("scheduler", sorted(SCHEDULERS))
@settings(max_examples=40, deadline=None)
@given(
    requests=request_lists(40, 30),
    groups=kinds(),
    pages=st.integers(8, 100),
    seats=st.sampled_from([1, 3, 8]),
    budget=st.sampled_from([8, 20, 200]),
    cost=COSTS,
)
def test_leaps_change_nothing_for_groups(
    scheduler: str,
    requests: list[Request],
    groups: list[Kind],
    pages: int,
    seats: int,
    budget: int,
    cost: Crossing,
) -> None:
    outcomes = []
    for leaps in (True, False):
        pool = pool_of(pages, groups, chunk=budget)
        limits = {"max_num_batched_tokens": budget} if scheduler == "chunked" else {}
        engine = SCHEDULERS[scheduler](pool, max_num_seqs=seats, leaps=leaps, **limits)  # type: ignore[call-arg]
        log = replay(requests, engine, pool, cost, check=True)
        assert len(log.seen) + len(log.refused) == len(requests)
        outcomes.append((log.seen, log.refused, log.iterations, log.gaps, pool.evictions))
    assert outcomes[0] == outcomes[1]


@settings(max_examples=60, deadline=None)
@given(
    requests=request_lists(40, 30),
    blocks=st.integers(4, 60),
    budget=st.sampled_from([8, 20, 200]),
    cost=COSTS,
)
def test_full_attention_alone_is_paged(
    requests: list[Request], blocks: int, budget: int, cost: Crossing
) -> None:
    outcomes = []
    for pool in (Hybrid(blocks, block_size=BLOCK), Paged(blocks, block_size=BLOCK)):
        engine = Chunked(pool, max_num_seqs=8, max_num_batched_tokens=budget)
        log = replay(requests, engine, pool, cost, check=True)
        outcomes.append((log.seen, log.refused, log.iterations, pool.evictions))
    assert outcomes[0] == outcomes[1]


# Forks.


@pytest.mark.parametrize(("tokens", "held"), [(12, [3, 3, 1]), (14, [4 + 1, 4 + 1, 2 + 1])])
def test_a_fork_shares_full_blocks_and_copies_the_partial_ones_and_the_state(
    tokens: int, held: list[int]
) -> None:
    pool = pool_of(50, [Kind("full", BLOCK), Kind("window", BLOCK, 6), Kind("state", BLOCK)])
    parent = prompt([], 8)
    assert pool.admit(parent, pool.match(parent), 8)
    assert pool.grow(parent, tokens)
    child = Sequence(parent.request, 0)
    assert pool.fork(parent, child, tokens)
    pool.check()
    assert [group.name for group in pool.groups] == ["full", "window 6", "state"]
    assert pool.held == held


# Models.


@pytest.mark.parametrize(
    ("model", "token", "windows", "state"),
    [
        # Bytes in bf16, from the models' configs: each token, full windows, recurrent states.
        ("gpt-oss-20b", 24_576, 3_145_728, 0),
        ("gpt-oss-120b", 36_864, 4_718_592, 0),
        ("gemma-3-27b", 81_920, 436_207_616, 0),
        ("llama-4-scout", 49_152, 1_207_959_552, 0),
        ("jamba-1.5-mini", 16_384, 0, 8_716_288),
        ("qwen3-next-80b-a3b", 24_576, 0, 39_518_208),
        ("nemotron-h-56b", 40_960, 0, 459_620_352),
        ("mimo-v2-flash", 23_040, 25_559_040, 0),
    ],
)
def test_a_sequence_takes_what_the_dimensions_of_its_model_say(
    model: str, token: int, windows: int, state: int
) -> None:
    plan = page_plan(KVLayout(load_model(model)), 1)
    tokens = max(group.block_size for group in plan.groups) * 16_384
    tokens = tokens if windows else tokens // 1024
    pool = Hybrid(1 << 40, plan, prefix_caching=False, max_num_batched_tokens=2048)
    sequence = prompt([], tokens - 1, answer=2)
    assert pool.admit(sequence, pool.match(sequence), tokens - 1)
    pool.join(sequence)
    pool.advance(1)
    held = sum(
        (table.end - table.first) * table.group.layers * table.group.layer_bytes
        for table in sequence.kv.tables
    )
    assert held == token * tokens + windows + state


@pytest.mark.parametrize(
    ("model", "groups", "block"),
    [
        ("gpt-oss-20b", ["full x12", "window 128 x12"], 16),
        ("gemma-3-27b", ["full x10", *["window 1024 x8"] * 2, *["window 1024 x9"] * 4], 16),
        ("llama-4-scout", [*["chunked 8192 x12"] * 3, "full x12"], 16),
        ("jamba-1.5-mini", ["full x4", *["state x4"] * 7], 80),
        ("qwen3-next-80b-a3b", ["full x12", *["state x12"] * 3], 544),
        ("nemotron-h-56b", ["full x10", *["state x9"] * 6], 2080),
        ("llama-3-8b", ["full x32"], 16),
    ],
)
def test_layers_form_groups_of_equal_size_and_a_block_holds_a_state(
    model: str, groups: list[str], block: int
) -> None:
    plan = page_plan(KVLayout(load_model(model)), 16)
    assert sorted(f"{group.name} x{group.layers}" for group in plan.groups) == groups
    assert {group.block_size for group in plan.groups} == {block}


def test_a_model_whose_pages_have_no_common_size_is_refused_in_one_line() -> None:
    with pytest.raises(ConfigError, match="accepted: --allocator paged"):
        page_plan(KVLayout(load_model("deepseek-v4-flash")), 16)


@pytest.mark.parametrize(
    ("model", "pages", "limit"),
    [("gpt-oss-20b", 500, 20), ("gemma-3-27b", 2200, 10), ("jamba-1.5-mini", 160, 20)],
)
def test_a_replay_of_a_hybrid_model_is_the_same_without_leaps(
    model: str, pages: int, limit: int
) -> None:
    scenario = Scenario(
        model=model,
        tensor_parallel_size=2,
        allocator="hybrid",
        num_gpu_blocks_override=pages,
        workload={"limit": limit, "request_rate": 20},
    )
    leapt, stepped = (
        simulate(scenario, TRACE, leaps=leaps, check=True).summary for leaps in (True, False)
    )
    assert leapt["completed"] == limit
    assert leapt["num_evictions"]
    same = ("duration", "num_evictions", "num_preemptions", "prefix_cache_hits", "num_iterations")
    for key in (*same, "p99_ttft_ms", "p99_e2el_ms", "peak_kv_cache_usage_by_group"):
        assert leapt[key] == stepped[key]
    shares = leapt["peak_kv_cache_usage_by_group"]
    assert isinstance(shares, dict)
    assert len(shares) == 2
    assert 0 < max(shares.values()) <= 1


def test_short_sequences_take_less_than_the_full_windows_that_a_constant_charges() -> None:
    """The same memory under both: a page of the twelve global layers is a block of theirs."""
    delays = {}
    for allocator in ("paged", "hybrid"):
        scenario = Scenario(
            model="llama-4-scout",
            tensor_parallel_size=8,
            num_gpu_blocks_override=6000,
            allocator=allocator,
            workload={"limit": 20, "request_rate": "inf"},
        )
        summary = simulate(scenario, TRACE).summary
        assert summary["completed"] == 20
        delays[allocator] = summary["mean_queue_time_ms"]
    assert delays["hybrid"] < delays["paged"]
