"""The steps of attention on one tile of keys and values, for plain rows and for packed 8-bit rows.

An 8-bit row is read as 16-bit words, two neighbouring dims each, since the tensor cores' transposed
shared-memory load exists for 16 bits only. Even and odd dims then go through products of their own:
a query has two halves, and so has an accumulator. Plain rows use the first half alone.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def unpack(words, E4M3: tl.constexpr, ASSEMBLY: tl.constexpr):
    """The lower and the upper byte of 16-bit words, each an 8-bit number, as float16."""
    if E4M3 and ASSEMBLY:
        return tl.inline_asm_elementwise(
            """{
            .reg .b16 low, high;
            .reg .b32 sorted;
            prmt.b32 sorted, $2, 0, 0x3120;
            mov.b32 {low, high}, sorted;
            cvt.rn.f16x2.e4m3x2 $0, low;
            cvt.rn.f16x2.e4m3x2 $1, high;
            }""",
            "=r,=r,r",
            [words],
            dtype=(tl.float16, tl.float16),
            is_pure=True,
            pack=2,
        )
    elif ASSEMBLY:
        # A byte b under the byte 0x64 is the float16 number 1024 + b; 0x6480 is 1152.
        return tl.inline_asm_elementwise(
            """{
            .reg .b32 biased, offset;
            xor.b32 biased, $2, 0x80808080;
            mov.b32 offset, 0x64806480;
            prmt.b32 $0, biased, 0x64646464, 0x4240;
            prmt.b32 $1, biased, 0x64646464, 0x4341;
            sub.f16x2 $0, $0, offset;
            sub.f16x2 $1, $1, offset;
            }""",
            "=&r,=&r,r",
            [words],
            dtype=(tl.float16, tl.float16),
            is_pure=True,
            pack=2,
        )
    else:
        low, high = (words & 0xFF).to(tl.int8), (words >> 8).to(tl.int8)
        if E4M3:
            low, high = low.to(tl.float8e4nv, bitcast=True), high.to(tl.float8e4nv, bitcast=True)
        return low.to(tl.float16), high.to(tl.float16)


@triton.jit
def load_query(at, present, PACKED: tl.constexpr):
    """The even and the odd dims of a query in float16, or all of them twice."""
    query = tl.load(at, mask=present[:, None], other=0.0)
    if PACKED:
        odd = tl.load(at + 1, mask=present[:, None], other=0.0)
        return query.to(tl.float16), odd.to(tl.float16)
    else:
        return query, query


@triton.jit
def score(query, query_odd, keys, PACKED: tl.constexpr, E4M3: tl.constexpr, ASSEMBLY: tl.constexpr):
    """Products of queries and keys, unscaled, float32."""
    if PACKED:
        even, odd = unpack(keys, E4M3, ASSEMBLY)
        return tl.dot(query_odd, tl.trans(odd), tl.dot(query, tl.trans(even)))
    else:
        return tl.dot(query, tl.trans(keys), input_precision="ieee")


@triton.jit
def soften(scores, factor, top, GUARD: tl.constexpr):
    """An online-softmax step in base 2: weights, the new maximum, the factor for what came before.

    ``GUARD`` for tiles that may hold no key that a row sees.
    """
    new_top = tl.maximum(top, tl.max(scores, 1) * factor)
    ground = new_top
    if GUARD:
        ground = tl.where(new_top > float("-inf"), new_top, 0.0)
    return tl.exp2(scores * factor - ground[:, None]), new_top, tl.exp2(top - ground)


@triton.jit
def accumulate(
    weights, values, keep, acc, acc_odd,
    PACKED: tl.constexpr, E4M3: tl.constexpr, ASSEMBLY: tl.constexpr,
):  # fmt: skip
    """Add a tile's weighted values to the accumulators of the even and the odd dims."""
    acc *= keep[:, None]
    if PACKED:
        even, odd = unpack(values, E4M3, ASSEMBLY)
        weights = weights.to(tl.float16)
        return tl.dot(weights, even, acc), tl.dot(weights, odd, acc_odd * keep[:, None])
    else:
        return tl.dot(weights.to(values.dtype), values, acc, input_precision="ieee"), acc_odd


@triton.jit
def store_halves(at, acc, acc_odd, weight, present, PACKED: tl.constexpr):
    """Write normalised accumulators; a row of no weight becomes zeros."""
    share = 1.0 / tl.where(weight > 0, weight, 1.0)[:, None]
    tl.store(at, acc * share, mask=present[:, None])
    if PACKED:
        tl.store(at + 1, acc_odd * share, mask=present[:, None])
