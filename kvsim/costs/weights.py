"""Times of products with weights that were not timed: from those of all weights like them.

The library that computes products chooses a kernel for every shape, so the times of neighbouring
shapes scatter by several percent around their trend. Rather than between two neighbours, a time is
taken from a local regression (Cleveland 1979): the plane through the logarithms of a ratio over those
of n and k, fitted to the timed weights, of which the nearest count most. The ratio is that of the
time to what the shape's bytes and FLOPs need, which bends where time does. At a given number of rows
it is a weighted geometric mean whose exponents depend on n and k only.

The kernels for fp8 cut every product into tiles of one size; tiles beyond a whole number of waves over
the multiprocessors take as long as another wave (1,024 outputs of 8,192 inputs: 24 us for 2,048 rows,
42 us for 2,560). Those for bf16 come in many sizes, of which the library picks one that fits.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import ceil, exp, log
from statistics import mean
from typing import NamedTuple

from kvsim.catalog.hardware import Gpu, gpu_names, load_gpu
from kvsim.costs.operators import Estimate, Line, Profile
from kvsim.costs.roofline import peak_flops
from kvsim.errors import ConfigError

NEAR_N, NEAR_K = 0.1, 0.2
"""Distances in logarithms at which a weight counts 0.6 of one that is equal."""
ENOUGH = 4.0
"""Sum of the counts below which the distances are widened. These three had the least errors when each
timed weight of the H200 was predicted from the others."""
FLOOR, SHARE_OF_PEAK = 4.0, 0.8
"""Microseconds of the smallest product, and what a large one reaches of a GPU's FLOP rate."""
MOST_ROWS = 16_384
"""Rows beyond which no wave is notable."""
NOTABLE = 0.03
"""Part by which another wave makes a product longer, from which on its time is taken to jump."""
TILE = 128
"""Rows and columns of a tile of the kernels for fp8."""
MICRO = 1e6
COOL, HOT = 256, 512
"""Rows up to which products leave a card cool, being bound by memory, and from which they heat it."""
FAR = 0.001
"""Count below which a weight tells nothing."""
SLIGHT = 1e-6
"""Area between three shapes, in logarithms, below which they lie on a line."""

Shape = tuple[int, int]


class Share(NamedTuple):
    """A timed weight and its exponent."""

    shape: Shape
    exponent: float


class Need:
    """Microseconds that a product's bytes and FLOPs take, about: what times are compared with.

    Of a GPU that is not in the catalog it is 1, whatever the shape.
    """

    def __init__(self, profile: Profile, dtype: str) -> None:
        self._size, self._tiled = (1, True) if dtype == "fp8" else (2, False)
        self._gpu: Gpu | None = load_gpu(profile.gpu) if profile.gpu in gpu_names() else None
        self._processors = multiprocessors(profile)

    def __call__(self, n: int, k: int, m: float) -> float:
        """Of ``[m, k] x [n, k]^T``."""
        if self._gpu is None:
            return 1.0
        rate = SHARE_OF_PEAK * peak_flops(self._gpu, "fp8" if self._tiled else "bfloat16")
        compute = 2 * k * self._products(n, m) / rate
        moved = (self._size * k * (n + m) + 2 * m * n) / self._gpu.bandwidth
        return FLOOR + MICRO * float((compute**4 + moved**4) ** 0.25)

    def edges(self, n: int, most: int) -> Iterator[int]:
        """Rows, up to the most, before and after which tiles begin another wave that is notable."""
        if not self._tiled or not self._processors:
            return
        for m in range(TILE, most, TILE):
            if self._products(n, m + 1) > (1 + NOTABLE) * self._products(n, m):
                yield m
                yield m + 1

    def _products(self, n: int, m: float) -> float:
        """Results that are computed: those of whole waves of tiles where tiles are of one size."""
        if not self._tiled or not self._processors:
            return m * n
        waves = ceil(ceil(m / TILE) * ceil(n / TILE) / self._processors)
        return waves * self._processors * TILE * TILE


class Products:
    """Times of products of one dtype by the shape of their weights and their rows.

    Looking at one raises a ConfigError if it was not timed, and neither were three others that span a
    plane to tell it from.
    """

    def __init__(self, profile: Profile, dtype: str) -> None:
        self._name = f"{profile.source}: {dtype}"
        self._lines: dict[Shape, Line] = {}
        self._series: dict[Shape, Mapping[str, Sequence[float]]] = {}
        several = ["gemm_model"] if "gemm_model" in profile.operators else []
        for name in ("gemm", *several):  # the latter has more rows, and wins
            for one in profile.series(name):
                kind, n, k = one["at"]
                if kind == dtype:
                    self._lines[n, k] = Line(one["x"], one)
                    self._series[n, k] = one
        self._need = Need(profile, dtype)
        self._ratios: dict[Shape, Line] = {}
        self._shares: dict[Shape, list[Share]] = {}

    def at(self, n: int, k: int, m: float) -> Estimate:
        """Time of ``[m, k] x [n, k]^T``."""
        shape = (n, k)
        if shape in self._lines:
            return self._timed(shape, m)
        shares = self._like(shape)
        lines = [self._ratio(share.shape) for share in shares]
        found = [line.at(min(m, line.xs[-1])) for line in lines]
        powers = [share.exponent for share in shares]
        inside = self._surrounded(shape) and m <= max(line.xs[-1] for line in lines)
        return Estimate(
            blend([near.time for near in found], powers),
            blend([near.low for near in found], powers),
            blend([near.high for near in found], powers),
            "interpolated" if inside else "extrapolated",
        ).scaled(self._need(n, k, m))

    def rows(self, n: int, k: int) -> tuple[int, ...]:
        """Rows at which the time of weights bends, ascending."""
        shape = (n, k)
        if shape in self._lines:
            xs = self._lines[shape].xs
            edges = (m for m in self._need.edges(n, MOST_ROWS) if m > xs[-1])
            return (*xs, *edges)
        timed = {x for share in self._like(shape) for x in self._lines[share.shape].xs}
        return tuple(sorted(timed.union(self._need.edges(n, MOST_ROWS))))

    def _like(self, shape: Shape) -> list[Share]:
        """How much each timed weight tells about one that was not timed."""
        if shape not in self._shares:
            if aligned(list(self._lines)):
                raise ConfigError(f"{self._name} products of too few shapes to tell {shape} from")
            self._shares[shape] = exponents(shape, list(self._lines))
        return self._shares[shape]

    def _timed(self, shape: Shape, m: float) -> Estimate:
        """Time of a timed weight; beyond the most rows, as much longer as more is needed."""
        line = self._lines[shape]
        most = line.xs[-1]
        if m <= most:
            return line.at(m)
        return line.at(most).scaled(
            self._need(*shape, m) / self._need(*shape, most), "extrapolated"
        )

    def _ratio(self, shape: Shape) -> Line:
        """Times of a timed weight over what they need."""
        line = self._ratios.get(shape)
        if line is None:
            one = self._series[shape]
            needs = [self._need(*shape, m) for m in one["x"]]
            parts = {
                name: [time / need for time, need in zip(one[name], needs, strict=True)]
                for name in ("median", "p10", "p90")
            }
            xs = [int(m) for m in one["x"]]
            line = self._ratios[shape] = Line(xs, parts, rising=False)
        return line

    def _surrounded(self, shape: Shape) -> bool:
        """Whether both sides of a weight lie between sides that were timed."""
        for side, sides in zip(shape, zip(*self._lines, strict=True), strict=True):
            if not min(sides) <= side <= max(sides):
                return False
        return True


def multiprocessors(profile: Profile) -> int | None:
    """Of the GPU that was measured; None where its first run does not say."""
    return profile.runs[0].get("multiprocessors") if profile.runs else None


def sustained(profile: Profile) -> float:
    """How many times longer products take after seconds of load than at first; 1 where it was not timed."""
    if "gemm_sustained" not in profile.operators:
        return 1.0
    products = Products(profile, "bf16")
    ratios: list[float] = []
    for one in profile.series("gemm_sustained"):
        m, n, k = one["at"]
        ratios.append(one["median"][-1] / min(one["median"][0], products.at(n, k, m).time))
    return max(1.0, mean(ratios))


def slowdown(heat: float, m: float) -> float:
    """What heat costs a product of ``m`` rows: nothing below COOL, all of it from HOT on."""
    return 1 + (heat - 1) * min(max((m - COOL) / (HOT - COOL), 0.0), 1.0)


def blend(times: Sequence[float], powers: Sequence[float]) -> float:
    """Geometric mean by exponents."""
    return exp(sum(power * log(time) for time, power in zip(times, powers, strict=True)))


def exponents(shape: Shape, timed: Sequence[Shape]) -> list[Share]:
    """How much each timed weight tells about a shape."""
    offsets = {other: (log(other[0] / shape[0]), log(other[1] / shape[1])) for other in timed}
    counts = counted(offsets)
    # The plane a + b x + c y at x = y = 0 is a; solve the 3 x 3 normal equations for it.
    sums = [[0.0] * 3 for _ in range(3)]
    for other, count in counts.items():
        terms = (1.0, *offsets[other])
        for i in range(3):
            for j in range(3):
                sums[i][j] += count * terms[i] * terms[j]
    row = first_row_of_inverse(sums)
    return [
        Share(other, count * sum(a * b for a, b in zip(row, (1.0, *offsets[other]), strict=True)))
        for other, count in counts.items()
    ]


def counted(offsets: Mapping[Shape, tuple[float, float]]) -> dict[Shape, float]:
    """Counts of the timed weights by their distance, which is widened until there are enough."""
    widened = 1.0
    while True:
        counts = {
            other: exp(-0.5 * ((x / NEAR_N) ** 2 + (y / NEAR_K) ** 2) / widened**2)
            for other, (x, y) in offsets.items()
        }
        counts = {other: count for other, count in counts.items() if count > FAR}
        if sum(counts.values()) >= min(ENOUGH, len(offsets) / 2) and not aligned(list(counts)):
            return counts
        widened *= 1.2


def aligned(shapes: Sequence[Shape]) -> bool:
    """Whether shapes lie on one line by the logarithms of their sides: no plane goes through them."""
    if len(shapes) < 3:
        return True
    n, k = shapes[0]
    steps = [(log(other[0] / n), log(other[1] / k)) for other in shapes[1:]]
    x, y = steps[0]
    return all(abs(x * v - y * u) < SLIGHT for u, v in steps)


def first_row_of_inverse(m: Sequence[Sequence[float]]) -> tuple[float, float, float]:
    """First row of the inverse of a symmetric 3 x 3 matrix, by cofactors."""
    a = m[1][1] * m[2][2] - m[1][2] * m[2][1]
    b = m[0][2] * m[2][1] - m[0][1] * m[2][2]
    c = m[0][1] * m[1][2] - m[0][2] * m[1][1]
    determinant = m[0][0] * a + m[1][0] * b + m[2][0] * c
    return a / determinant, b / determinant, c / determinant
