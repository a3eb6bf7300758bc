"""A step time composed of operators that were measured on a GPU.

step = tokens(n) + rows(s) + sequences(q) + decode attention(b, K) + prompt attention(n, c)

Each term sums the layers' operators. Only attention changes within a leap, and it is a piecewise-linear
curve of whole numbers, so any number of steps has a closed form.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from math import ceil, isqrt, sqrt
from typing import Literal

from kvsim.catalog.hardware import Gpu, load_gpu
from kvsim.core import PICOSECONDS, BatchShape
from kvsim.costs.attending import whole
from kvsim.costs.composition import Builder, unlinked
from kvsim.costs.curves import Curve, Surface
from kvsim.costs.demand import Demand, Operator, Per, rescaled
from kvsim.costs.levelling import rising
from kvsim.costs.operators import Estimate, Profile, load_profile, shipped
from kvsim.costs.skew import apart, further
from kvsim.costs.weights import sustained
from kvsim.errors import ConfigError
from kvsim.layout import KVLayout

MANY = tuple(2**i for i in range(15, 31))
FEW = MANY[::5]
BEYOND: dict[Per, tuple[int, ...]] = {"decode": (384, 512, 768, 1024, 2048, 4096), "prompt": MANY}
"""Counts beyond every table, so that a bound still bends where it should."""
PAST_TABLES = (262_144, 1_048_576, 2**24, 2**30)
"""Contexts beyond every table, for windows and bounds likewise."""
PER_MICROSECOND = PICOSECONDS // 10**6


class Measured:
    """Step times from a profile that ``kvsim calibrate`` measured (see :mod:`.composition`).

    ``profile`` names a shipped profile or a file; ``auto`` is the one of the GPU or, where there is
    none, the first that is shipped, whose times are scaled as the physical bounds of both GPUs and
    labelled projected. No operator is ever faster than its bytes or its FLOPs allow. What an engine's
    host adds to a step is not included. Under ``sustained`` load products of many rows are as slow as
    after seconds without a pause, when the power limit has lowered the clock; under ``brief`` load as
    they were timed. ``weight_dtype`` as of :class:`.roofline.Roofline`;
    ``block_size`` is that of the KV pages; routed experts are computed by ``expert_kernel`` (Triton's is
    ``tiled``, PyTorch's ``grouped``), or by whichever was faster.

    Unequal decodes take what they were measured to take longer than equal ones (:mod:`.skew`), but a
    longer context never makes a batch cheaper. Another, short sequence may, by some percent, beside
    a few long ones: several were timed faster than one of as many tokens, and which of them is long
    is not known.

    Simplifications: windows clip the mean of the decodes; several prompts in one step cost what one prompt
    on the longest of their pasts does with as many query-key pairs; a batch of prompts and decodes runs
    their attentions one after the other.
    """

    def __init__(
        self,
        layout: KVLayout,
        gpu: Gpu,
        *,
        profile: str = "auto",
        weight_dtype: str = "auto",
        block_size: int = 16,
        load: Literal["sustained", "brief"] = "sustained",
        expert_kernel: Literal["", "tiled", "grouped"] = "",
    ) -> None:
        unlinked(layout, gpu)
        self.profile = profile_for(gpu) if profile == "auto" else load_profile(profile)
        self.gpu, self.timed = gpu, load_gpu(self.profile.gpu)
        projected = self.timed.name != gpu.name
        name = self.profile.source.removesuffix(".json")
        self.label = f"projected from {name}" if projected else f"measured ({name})"
        builder = Builder(
            layout,
            self.profile,
            self.timed,
            weight_dtype=weight_dtype,
            block_size=block_size,
            heat=sustained(self.profile) if load == "sustained" else 1.0,
            expert_kernel=expert_kernel,
        )
        if builder.untimed:
            self.label += f", {' and '.join(builder.untimed)} extrapolated"
        self.operators = list(builder.operators())
        self._tokens = self.surface(self.some("token")).by_row()
        self._rows = self.surface(self.some("row")).by_row()
        self._sequences = self.surface(self.some("sequence")).by_row()
        self._decode_table = self.surface(self.some("decode"))
        self._prompt_table = self.surface(self.some("prompt"))
        self._decodes: dict[int, tuple[Curve, Curve]] = {}
        self._prompts: dict[int, Curve] = {}
        self._constants: dict[tuple[int, int], int] = {}
        self._read = self._reading_bound()

    def time(self, shape: BatchShape, steps: int = 1) -> int:
        """Picoseconds of ``steps`` iterations in a row: exactly the sum of the single ones."""
        decodes, context, prefills, new, _, _, sampled, *_ = shape
        if new:
            total = steps * self._constant(decodes + new, decodes + prefills, sampled)
            total += self._prompt_attention(shape, steps)
        else:
            key = (decodes, sampled)
            constant = self._constants.get(key)
            if constant is None:
                constant = self._constants[key] = self._constant(decodes, decodes, sampled)
            total = steps * constant
        if decodes:
            even, uneven = self._decodes.get(decodes) or self._attention(decodes)
            total += even.total(context, decodes, steps)
            total += uneven.total(context + further(shape), decodes, steps)
        return total

    def _attention(self, decodes: int) -> tuple[Curve, Curve]:
        """Decode attention by the tokens of a batch, and by those and the further ones."""
        even, alone = self._decode_table.curve(decodes, decodes), self._decode_table.curve(1)
        skewed = sum(self.skewed(operator, decodes) for operator in self.some("decode"))
        found = self._decodes[decodes] = apart(even, alone, sqrt(decodes) * skewed)
        return found

    def skewed(self, operator: Operator, decodes: int) -> float:
        """Picoseconds that an operator takes longer, times how unequal the decodes are."""
        slower = self.timed.bandwidth / self.gpu.bandwidth
        return PER_MICROSECOND * operator.runs * operator.skew(decodes) * slower

    def longer(self, shape: BatchShape) -> int:
        """Picoseconds that decode attention takes longer for being unequal."""
        _, uneven = self._decodes.get(shape.decodes) or self._attention(shape.decodes)
        return uneven(shape.context_tokens + further(shape)) - uneven(shape.context_tokens)

    def _constant(self, tokens: int, sequences: int, sampled: int) -> int:
        """The part of a step that does not depend on any context."""
        total = self._tokens(tokens) + (self._rows(sampled) if sampled else 0)
        return total + (self._sequences(sequences) if sequences else 0)

    def _prompt_attention(self, shape: BatchShape, steps: int) -> int:
        """Attention of the prompts' new tokens; a single chunk moves on by itself every step."""
        if shape.prefills == 1:
            new, cached = shape.prefill_tokens, shape.prefill_context
            return self._prompt_curve(new).total(cached, new, steps)
        return steps * self.together(shape)[1]

    def together(self, shape: BatchShape) -> tuple[int, int]:
        """Picoseconds of the prompt that stands for several, and of them: all their KV is read."""
        alone, past = self.costliest(shape)
        standing = self._prompt_curve(alone)(past)
        return standing, max(standing, self._read * (shape.prefill_context + shape.prefill_tokens))

    def costliest(self, shape: BatchShape) -> tuple[int, int]:
        """New tokens and past of the prompt that stands for several.

        Of all that are no more work than they are (no more new tokens than all of them, no more past
        than the longest, no more query-key pairs) it takes longest: so a batch is never cheaper than a
        part of it, nor than one of its prompts alone. New tokens are rounded up to the next of LADDER.
        """
        new, pairs = shape.prefill_tokens, shape.prefill_pairs
        longest = shape.prefill_longest or -(-shape.prefill_context // shape.prefills)
        found, most, rung = (LADDER[0], 0), -1, bisect_right(LADDER, min(new, alone(pairs)))
        past = -1
        while rung and past < longest:  # then all below have fewer new tokens on the same past
            less = LADDER[rung - 1]
            past = min((pairs - less * (less + 1) // 2) // less, longest)
            time = self._prompt_curve(LADDER[rung])(past)
            if time > most:
                found, most = (LADDER[rung], past), time
            rung -= 1
        return found

    def _prompt_curve(self, new: int) -> Curve:
        curve = self._prompts.get(new)
        if curve is None:
            tiles = whole(new)
            made = self._prompts.get(tiles) or self._prompt_table.curve(tiles)
            curve = self._prompts[new] = self._prompts[tiles] = made
        return curve

    def _reading_bound(self) -> int:
        """Picoseconds per token of a prompt's context or chunk for reading its KV, at least."""
        unlimited = (op for op in self.some("prompt") if op.demand(1, 2**40).bytes > 2**38)
        size = sum(op.runs * op.demand(1, 2**40).bytes / 2**40 for op in unlimited)
        return ceil(PICOSECONDS * size / self.gpu.bandwidth)

    # Operators as curves of their arguments.

    def some(self, per: Per) -> list[Operator]:
        """Operators whose time depends on the same thing."""
        return [operator for operator in self.operators if operator.per == per]

    def settled(self, operator: Operator, x: float, y: float = 0.0) -> Estimate:
        """Microseconds of all runs of an operator on this GPU, never below the physical bound."""
        found, demand = operator.estimate(x, y), operator.demand(x, y)
        bound = demand.bound(self.gpu)
        if self.gpu.name != self.timed.name:
            its = demand.bound(self.timed)
            before, after = (
                (its, bound) if its else (1 / self.timed.bandwidth, 1 / self.gpu.bandwidth)
            )
            found = rescaled(found, before, after, self._lasting(operator, demand), "projected")
        low, high = max(found.low, bound), max(found.high, bound)
        return Estimate(max(found.time, bound), low, high, found.provenance).scaled(operator.runs)

    def _lasting(self, operator: Operator, demand: Demand) -> float:
        """Microseconds that do not turn on the GPU: a launch, or a message with next to nothing in it."""
        if not demand.linked:
            return self.profile.launch
        return min(float(one["median"][0]) for one in self.profile.series(operator.table))

    def bound(self, operator: Operator, x: float, y: float = 0.0) -> float:
        """Microseconds below which no GPU with these peaks can run it."""
        return operator.runs * operator.demand(x, y).bound(self.gpu)

    def surface(self, operators: Iterable[Operator]) -> Surface:
        """Picoseconds of operators by the one or two numbers that they depend on."""
        return Surface.sum([self._rising(operator) for operator in operators])

    def _rising(self, operator: Operator) -> Surface:
        """An operator where it bends: it falls along neither axis.

        Where it does, it is levelled (isotonic regression, first by column, then by row), so that a
        kernel that is slow at one size only does not slow down all larger ones.
        """
        counts, contexts = operator.bends
        rows = beyond(counts, BEYOND.get(operator.per, FEW))
        columns = from_nothing(contexts) if contexts else [0]
        times = [rising([self.settled(operator, x, y).time for y in columns]) for x in rows]
        levelled = zip(*map(rising, zip(*times, strict=True)), strict=True)
        return Surface(
            rows, columns, [[PER_MICROSECOND * time for time in row] for row in levelled]
        )


def beyond(timed: Sequence[int], further: Sequence[int]) -> list[int]:
    """What was timed of more than nothing, and what is further, ascending."""
    return sorted({1, *timed} - {0}) + [x for x in further if x > max(timed)]


def from_nothing(contexts: Sequence[int]) -> list[int]:
    """Contexts that were timed, with none at all before them and longer ones after."""
    return [0, *beyond(contexts, PAST_TABLES)]


def alone(pairs: int) -> int:
    """Tokens of the longest prompt without a past that has no more query-key pairs."""
    return (isqrt(8 * pairs + 1) - 1) // 2


LADDER = tuple(sorted({whole(round(2 ** (i / 16))) for i in range(16 * 40)}))
"""Numbers of new tokens: all small ones, then whole tiles, at most sixteen an octave."""


def profile_for(gpu: Gpu) -> Profile:
    """The shipped profile that was measured on the GPU, or the first of all."""
    profiles = [load_profile(name) for name in shipped()]
    if not profiles:
        raise ConfigError("no profile is shipped; give one with --set cost_model.profile=FILE")
    return next((profile for profile in profiles if profile.gpu == gpu.name), profiles[0])
