"""A prefix cache alone: LRU at every capacity in one pass, against a plain cache at each."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvsim.analysis.accesses import Accesses, previous
from kvsim.caching import accesses_of, lru_curve
from kvsim.core import Request
from kvsim.errors import ConfigError
from kvsim.workload import open_trace
from tests.oracles.block_cache import Counted, lru, replay
from tests.oracles.workloads import request_lists


@pytest.fixture(scope="module")
def conversation(shared: Path) -> list[Request]:
    return list(open_trace(shared / "traces" / "mooncake" / "conversation_trace.jsonl.gz"))


@given(
    request_lists(40, 3), st.integers(1, 12), st.integers(1, 30), st.sampled_from(["drop", "keep"])
)
def test_one_pass_gives_what_a_plain_lru_cache_gives_at_any_capacity(
    requests: list[Request], size: int, capacity: int, partial: str
) -> None:
    hits = lru_curve(accesses_of(requests, size, partial=partial)).at(capacity)
    plain = replay(requests, lru(capacity), size, partial=partial)
    assert (
        Counted(*(getattr(hits, n) for n in ("blocks", "usable_blocks", "usable_tokens"))) == plain
    )


@given(request_lists(40, 3), st.integers(1, 12))
def test_more_memory_never_means_fewer_hits(requests: list[Request], size: int) -> None:
    curve = lru_curve(accesses_of(requests, size))
    for column in (curve.capacity, curve.blocks, curve.usable_blocks, curve.usable_tokens):
        assert (column[1:] >= column[:-1]).all()
    assert (curve.usable_blocks <= curve.blocks).all()


def test_the_conversation_trace_gives_the_known_hits(conversation: list[Request]) -> None:
    accesses = accesses_of(conversation)
    assert int(accesses.prompt_tokens.sum()) == 144_793_823
    curve = lru_curve(accesses)
    assert curve.at(6_400).usable_tokens == 22_500_864
    assert curve.at(math.inf).usable_tokens == 54_063_104
    assert lru_curve(accesses_of(conversation, 16)).at(math.inf).usable_tokens == 54_097_552


def test_fifty_million_tokens_reach_nearly_all_hits(conversation: list[Request]) -> None:
    """Mooncake (FAST 2025) section 5.3.1: 50 M tokens give the highest rate there is."""
    curve = lru_curve(accesses_of(conversation, partial="keep"))
    share = curve.at(50_000_000 // 512).usable_tokens / curve.at(math.inf).usable_tokens
    assert share == pytest.approx(0.992, abs=0.0005)


def test_lru_at_three_million_tokens_hits_as_block_caches_do(conversation: list[Request]) -> None:
    accesses = accesses_of(conversation, partial="keep")
    assert len(accesses) == 288_500
    assert lru_curve(accesses).at(5_859).blocks / 288_500 == pytest.approx(0.1355, abs=5e-5)


def test_the_same_id_after_another_prefix_is_another_block() -> None:
    pair = [Request(row, 0.0, 8, 1, ids, 4) for row, ids in enumerate([[1, 2], [3, 2]])]
    assert lru_curve(accesses_of(pair)).at(math.inf).blocks == 0
    again = [*pair, Request(2, 0.0, 8, 1, [3, 2], 4)]
    assert lru_curve(accesses_of(again)).at(math.inf).blocks == 2


def test_a_trace_without_ids_needs_a_block_size_and_hits_nothing() -> None:
    bare = [Request(0, 0.0, 8, 1), Request(1, 0.0, 8, 1)]
    with pytest.raises(ConfigError, match="--block-size is needed"):
        accesses_of(bare)
    assert lru_curve(accesses_of(bare, 4)).at(math.inf).usable_tokens == 0


def test_previous_accesses_are_those_of_the_same_run() -> None:
    accesses: Accesses = accesses_of([Request(r, 0.0, 4, 1, [r % 2], 4) for r in range(4)])
    assert previous(accesses.run).tolist() == [-1, -1, 0, 1]
