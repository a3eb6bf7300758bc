"""A leap is exactly the iterations that it stands for, and the iterations are vLLM's.

The fast replay must equal the plain loop of ``oracles/plain_loop.py`` to the last picosecond, and
itself with leaps switched off, on workloads made to provoke every boundary case.
"""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from kvsim.core import PICOSECONDS, Request
from kvsim.memory.paged import Paged
from kvsim.scheduling.chunked import Chunked
from tests.oracles.costs import Crossing
from tests.oracles.plain_loop import Limits, PlainLoop
from tests.oracles.replay import Log, Seen, replay
from tests.oracles.workloads import request_lists

COSTS = st.builds(
    Crossing,
    base=st.integers(1, 50_000_000_000),
    per_context=st.integers(0, 300_000_000),
    per_token=st.integers(0, 2_000_000_000),
    per_pair=st.integers(0, 100_000_000),
)


@st.composite
def limits(draw: st.DrawFn, block_sizes: Sequence[int] = (1, 2, 4, 5)) -> Limits:
    """Small engines, many of them short of memory."""
    max_num_seqs = draw(st.sampled_from([1, 2, 3, 8]))
    return Limits(
        num_blocks=draw(st.integers(4, 40)),
        block_size=draw(st.sampled_from(block_sizes)),
        max_num_seqs=max_num_seqs,
        max_num_batched_tokens=draw(st.integers(max_num_seqs, 40)),
        long_prefill_token_threshold=draw(st.sampled_from([0, 0, 0, 3])),
        watermark_blocks=draw(st.sampled_from([0, 0, 0, 1])),
    )


def fitting(requests: list[Request], limits: Limits) -> list[Request]:
    capacity = (limits.num_blocks - 1) * limits.block_size
    return [r for r in requests if r.prompt_tokens + r.output_tokens - 1 <= capacity]


def on_boundaries(requests: list[Request], ends: list[int], picks: list[int]) -> list[Request]:
    """The same requests, arriving exactly when iterations end."""
    times = sorted(ends[pick % len(ends)] for pick in picks[: len(requests)])
    times += [times[-1]] * (len(requests) - len(times))
    return [r._replace(arrival=time / PICOSECONDS) for r, time in zip(requests, times, strict=True)]


def plain(requests: list[Request], limits: Limits, cost: Crossing) -> tuple[PlainLoop, set[Seen]]:
    loop = PlainLoop(requests, limits, cost)
    return loop, {
        Seen(x.request.row, x.scheduled, x.first_token, x.finished, x.cached, x.preemptions)
        for x in loop.run()
    }


def fast(
    requests: list[Request], limits: Limits, cost: Crossing, *, leaps: bool
) -> tuple[Paged, Log]:
    allocator = Paged(limits.num_blocks, block_size=limits.block_size)
    scheduler = Chunked(
        allocator,
        max_num_seqs=limits.max_num_seqs,
        max_num_batched_tokens=limits.max_num_batched_tokens,
        long_prefill_token_threshold=limits.long_prefill_token_threshold,
        watermark=limits.watermark_blocks * limits.block_size / allocator.total_slots,
        leaps=leaps,
    )
    return allocator, replay(requests, scheduler, allocator, cost, check=True)


@settings(max_examples=400, deadline=None)
@given(request_lists(40, 30), limits(), COSTS, st.lists(st.integers(0, 10**6), max_size=14))
def test_a_replay_equals_the_plain_loop_to_the_last_picosecond(
    requests: list[Request], limits: Limits, cost: Crossing, picks: list[int]
) -> None:
    requests = fitting(requests, limits)
    if requests and picks:
        ends = plain(requests, limits, cost)[0].boundaries
        requests = on_boundaries(requests, ends, picks)
    loop, expected = plain(requests, limits, cost)
    for leaps in (True, False):
        allocator, log = fast(requests, limits, cost, leaps=leaps)
        assert set(log.seen) == expected
        assert log.iterations == len(loop.boundaries)
        assert allocator.evictions == loop.blocks.evictions
        assert leaps or log.leaps == log.iterations
