"""Decode, prefill and cascade over pages, against float64."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from inputs import DEVICE, FLOATS, NOWHERE, TOLERANCE, Case, paged, relative_error, torch
from kvsim.kernels import decode as decoding
from kvsim.kernels import reference
from kvsim.kernels.cascade import cascade_decode
from kvsim.kernels.decode import decode
from kvsim.kernels.paged import PagedKV, empty_kv
from kvsim.kernels.prefill import Tuning, prefill

from kvsim.errors import ConfigError

FEW = settings(
    max_examples=25 if DEVICE == "cuda" else 12,
    deadline=None,
    derandomize=True,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=[HealthCheck.too_slow],
)
HEADS = st.sampled_from([(4, 4), (4, 1), (6, 2), (10, 2), (40, 2)])
BLOCK_SIZES = st.sampled_from([1, 16, 48, 256])
SMALL = Tuning(rows=32 if DEVICE == "cpu" else 64, tile=32, warps=4, stages=2)
EIGHT = [torch.float8_e4m3fn, torch.int8]


@pytest.fixture(autouse=True)
def poisoned(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Memory that a kernel forgets to write holds NaN."""
    torch.utils.deterministic.fill_uninitialized_memory = True
    torch.use_deterministic_algorithms(True, warn_only=True)
    yield
    torch.use_deterministic_algorithms(False)


def decoded(case: Case, window: int = 0) -> tuple[float, float]:
    """Errors of the output (relative) and of the log-sum-exp (absolute)."""
    out, lse = decode(case.q, case.kv, case.table, case.lengths, window=window)
    scale = case.q.shape[-1] ** -0.5
    expected, expected_lse = reference.decode(
        case.q, case.kv, case.table, case.lengths, scale=scale, window=window
    )
    seen = case.lengths > 0
    return relative_error(out, expected), float((lse - expected_lse)[seen].abs().max())


@FEW
@given(
    seed=st.integers(0, 99),
    lengths=st.lists(st.integers(1, 200), min_size=1, max_size=5),
    block_size=BLOCK_SIZES,
    heads=HEADS,
    dtype=st.sampled_from(FLOATS),
    window=st.sampled_from([0, 1, 70]),
)
def test_decode_equals_float64_attention(
    seed: int,
    lengths: list[int],
    block_size: int,
    heads: tuple[int, int],
    dtype: torch.dtype,
    window: int,
) -> None:
    case = paged(seed, lengths, block_size=block_size, heads=heads, dtype=dtype)
    error, log_error = decoded(case, window)
    assert error < TOLERANCE[dtype]
    assert log_error < 0.02


@pytest.mark.parametrize("kv_dtype", EIGHT, ids=str)
@pytest.mark.parametrize("token_scales", [False, True], ids=["head-scales", "token-scales"])
@pytest.mark.parametrize("group", [(8, 2), (32, 2)], ids=str)
def test_decode_of_8_bit_kv_loses_only_float16_rounding(
    kv_dtype: torch.dtype, token_scales: bool, group: tuple[int, int]
) -> None:
    case = paged(
        1, [150, 3, 77], kv_dtype=kv_dtype, token_scales=token_scales, heads=group, head_dim=64
    )
    error, log_error = decoded(case)
    assert error < 2e-3
    assert log_error < 0.02


def test_a_skewed_batch_with_empty_sequences_is_split_evenly_and_merged() -> None:
    case = paged(2, [900, 0, 1, 0, 5, 64, 65])
    out, lse = decode(case.q, case.kv, case.table, case.lengths)
    assert decoded(case)[0] < 1e-3
    assert torch.equal(out[[1, 3]], torch.zeros_like(out[[1, 3]]))
    assert torch.isneginf(lse[[1, 3]]).all()


@pytest.mark.parametrize("parts", [1, 2, 3, 7, 29, 100])
def test_any_number_of_programs_gives_the_same_attention(
    parts: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decoding, "split_count", lambda *_: parts)
    assert decoded(paged(3, [333, 64, 1, 129]))[0] < 1e-3


def test_scores_are_multiplied_by_the_scale_that_is_given() -> None:
    case = paged(10, [90, 40], new=[20, 40])
    batch = (case.q, case.kv, case.table, case.starts, case.lengths)
    expected, _ = reference.prefill(*batch, scale=0.6)
    assert relative_error(prefill(*batch, scale=0.6, tuning=SMALL)[0], expected) < 1e-3
    case = paged(10, [90, 40])
    batch = (case.q, case.kv, case.table, case.lengths)
    expected, _ = reference.decode(*batch, scale=0.6, window=0)
    assert relative_error(decode(*batch, scale=0.6)[0], expected) < 1e-3
    prefix = torch.tensor([32], dtype=torch.int32, device=DEVICE)
    suffix = (case.table[:1, 2:], case.lengths[:1] - prefix)
    found, _ = cascade_decode(case.q[:1], case.kv, case.table[:1, :2], prefix, *suffix, scale=0.6)
    assert relative_error(found, expected[:1]) < 1e-3


def test_blocks_that_do_not_exist_are_never_read_and_count_as_zeros() -> None:
    case = paged(4, [100, 60])
    case.table[0, 2], case.table[1, 0], case.table[1, 3] = NOWHERE, -1, case.kv.num_blocks
    assert decoded(case)[0] < 1e-3


def test_a_contiguous_region_is_a_table_of_one_column() -> None:
    kv = empty_kv(300, 1, 2, 32, dtype=torch.float32, device=DEVICE)
    kv.k.normal_(), kv.v.normal_()
    case = paged(5, [100, 37])
    first, lengths = torch.tensor([[150], [10]], dtype=torch.int32, device=DEVICE), case.lengths
    out, _ = decode(case.q, kv.regions(128), first, lengths)
    for s in range(2):
        slots = slice(int(first[s]), int(first[s] + lengths[s]))
        expected, _ = reference.attention(
            case.q[s : s + 1], kv.k[slots, 0], kv.v[slots, 0], scale=32**-0.5
        )
        assert relative_error(out[s], expected[0]) < 1e-3


def test_the_heads_may_be_outside_the_tokens_in_memory() -> None:
    case = paged(6, [90, 33])
    k, v = (x.transpose(1, 2).contiguous().transpose(1, 2) for x in (case.kv.k, case.kv.v))
    case.kv = PagedKV(k, v)
    assert decoded(case)[0] < 1e-3


def test_memory_that_the_kernels_cannot_read_is_refused() -> None:
    k = torch.zeros(2, 16, 2, 24, device=DEVICE)
    with pytest.raises(ConfigError, match="head_dim is 24"):
        PagedKV(k, k)
    with pytest.raises(ConfigError, match="8-bit types need two scales"):
        PagedKV(torch.zeros(2, 16, 2, 32).to(torch.int8), torch.zeros(2, 16, 2, 32).to(torch.int8))


@FEW
@given(
    seed=st.integers(0, 99),
    chunks=st.lists(st.tuples(st.integers(1, 60), st.integers(0, 90)), min_size=1, max_size=4),
    block_size=BLOCK_SIZES,
    heads=HEADS,
    dtype=st.sampled_from(FLOATS),
    window=st.sampled_from([0, 1, 50]),
    splits=st.sampled_from([1, 3]),
)
def test_prefill_of_a_mixed_batch_equals_float64_attention(
    seed: int,
    chunks: list[tuple[int, int]],
    block_size: int,
    heads: tuple[int, int],
    dtype: torch.dtype,
    window: int,
    splits: int,
) -> None:
    new, lengths = [n for n, _ in chunks], [n + cached for n, cached in chunks]
    case = paged(seed, lengths, block_size=block_size, heads=heads, dtype=dtype, new=new)
    batch = (case.q, case.kv, case.table, case.starts, case.lengths)
    out, lse = prefill(*batch, window=window, splits=splits, tuning=SMALL)
    expected, expected_lse = reference.prefill(*batch, scale=32**-0.5, window=window)
    assert relative_error(out, expected) < TOLERANCE[dtype]
    assert float((lse - expected_lse).abs().max()) < 0.02


@pytest.mark.parametrize("kv_dtype", EIGHT, ids=str)
@pytest.mark.parametrize("token_scales", [False, True], ids=["head-scales", "token-scales"])
def test_prefill_over_8_bit_kv(kv_dtype: torch.dtype, token_scales: bool) -> None:
    case = paged(
        7, [100, 41], new=[30, 41], kv_dtype=kv_dtype, token_scales=token_scales, head_dim=64
    )
    batch = (case.q, case.kv, case.table, case.starts, case.lengths)
    expected, _ = reference.prefill(*batch, scale=64**-0.5)
    assert relative_error(prefill(*batch, tuning=SMALL)[0], expected) < 2e-3


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("prefix", [1, 100, 333])
def test_cascade_equals_decode_of_prefix_and_suffix_in_one(dtype: torch.dtype, prefix: int) -> None:
    shared, own = -(-prefix // 16), 3
    case = paged(8, [(shared + own) * 16] * 5, dtype=dtype)
    table = case.table.clone()
    table[:, :shared] = table[0, :shared]
    suffixes = torch.tensor([1, 16, 17, 48, 30], dtype=torch.int32, device=DEVICE)
    length = torch.tensor([prefix], dtype=torch.int32, device=DEVICE)
    out, lse = cascade_decode(
        case.q, case.kv, table[:1, :shared], length, table[:, shared:], suffixes
    )
    for s, suffix in enumerate(suffixes.tolist()):
        start = reference.read(case.kv, table[s], 0, prefix)
        end = reference.read(case.kv, table[s, shared:], 0, suffix)
        k, v = (torch.cat(parts) for parts in zip(start, end, strict=True))
        expected, expected_lse = reference.attention(case.q[s : s + 1], k, v, scale=32**-0.5)
        assert relative_error(out[s], expected[0]) < TOLERANCE[dtype]
        assert float((lse[s] - expected_lse[0]).abs().max()) < 0.02


@pytest.mark.parametrize("head_dim", [16, 64, 128, 256])
def test_every_head_size_fits_the_machine_untuned(head_dim: int) -> None:
    case = paged(9, [70, 9], new=[40, 9], head_dim=head_dim)
    batch = (case.q, case.kv, case.table, case.starts, case.lengths)
    expected, _ = reference.prefill(*batch, scale=head_dim**-0.5)
    assert relative_error(prefill(*batch)[0], expected) < 1e-3
    assert decoded(paged(9, [70, 9], head_dim=head_dim))[0] < 1e-3
    if head_dim > 16:
        assert decoded(paged(9, [70], head_dim=head_dim, kv_dtype=torch.int8))[0] < 2e-3
