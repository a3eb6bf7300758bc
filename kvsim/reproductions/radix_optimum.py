"""Theorem 3.1 of the SGLang paper: depth-first order computes every edge of the prefix tree once."""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import ClassVar, NamedTuple

from kvsim.core import Request, Sequence
from kvsim.memory.radix import Radix
from kvsim.reproductions.findings import Findings, Lines, Row, amounts, published


class Edge(NamedTuple):
    """A node of a random prefix tree: the run of tokens that leads to it."""

    tokens: int
    below: tuple[Edge, ...]


def random_tree(rng: random.Random, depth: int, branches: int) -> tuple[Edge, ...]:
    """Edges of 8 to 512 tokens, each with up to ``branches`` below it, ``depth`` levels."""
    if not depth:
        return ()
    return tuple(
        Edge(rng.randint(8, 512), random_tree(rng, depth - 1, branches))
        for _ in range(rng.randint(1, branches))
    )


def prompts(edges: tuple[Edge, ...], before: tuple[int, ...] = ()) -> Iterable[tuple[int, ...]]:
    """The token ids of each path to a leaf, depth first; ids are unique to an edge."""
    for edge in edges:
        start = id(edge)
        path = before + tuple(range(start << 10, (start << 10) + edge.tokens))
        if edge.below:
            yield from prompts(edge.below, path)
        else:
            yield path


class Optimum:
    """Hit rates of an offline batch by order, against one less the share of distinct tokens."""

    title: ClassVar[str] = "RadixAttention, Theorem 3.1: the order of an offline batch"
    source: ClassVar[str] = "Zheng et al., SGLang (arXiv:2312.07104), Theorem 3.1 and section 6.2"

    def __init__(self, *, trees: int = 40, seed: int = 0) -> None:
        amounts(trees=trees)
        self._trees = trees
        self._seed = seed

    def run(self) -> Findings:
        """Every tree in depth-first, longest-shared-prefix-first and random order."""
        rng = random.Random(self._seed)
        batches = [list(prompts(random_tree(rng, 4, 4))) for _ in range(self._trees)]
        shares: dict[str, list[float]] = {name: [] for name in ORDERS}
        for batch in batches:
            best = optimum(batch)
            for name, order in ORDERS.items():
                shares[name].append(hit_rate(order(batch, rng)) / best if best else 1.0)
        means = {name: 100 * sum(all_) / len(all_) for name, all_ in shares.items()}
        known = published("radixattention-optimum")
        online = "online schedule over the optimum"
        rows = [
            Row(f"{n} order over the optimum", m, known.get(f"{n} order over the optimum"))
            for n, m in means.items()
        ]
        rows.append(Row(online, None, known[online]))
        curves = {
            name: tuple((float(i), 100 * value) for i, value in enumerate(sorted(values)))
            for name, values in shares.items()
        }
        chart = Lines(self.title, "batch, sorted", "% of the optimal hit rate", curves)
        return Findings(tuple(rows), ASSUMPTIONS, chart)


ASSUMPTIONS = (
    "random prefix trees, 4 levels of 1 to 4 branches, edges of 8 to 512 tokens; one request a leaf, "
    "served one after another",
    "the cache holds exactly the longest request; pages of one token; the last token of a prompt "
    "always counts as computed, as in the engine",
    "the ten programs of the online figure were not published as traces, so it is not reproduced",
)


def optimum(batch: list[tuple[int, ...]]) -> float:
    """One less the distinct prefix tokens over all prompt tokens."""
    distinct = len({token for prompt in batch for token in prompt})
    return 1 - distinct / sum(map(len, batch))


def hit_rate(batch: list[tuple[int, ...]]) -> float:
    """Hits over prompt tokens with a cache as large as the longest request."""
    cache = Radix(max(map(len, batch)))
    hits = 0
    for row, prompt in enumerate(batch):
        sequence = Sequence(Request(row, 0.0, len(prompt), 1, prompt, 1), 0)
        match = cache.match(sequence)
        assert cache.admit(sequence, match, len(prompt))
        hits += match.tokens
        cache.free(sequence, len(prompt), finished=True)
    return hits / sum(map(len, batch))


def depth_first(batch: list[tuple[int, ...]], _: random.Random) -> list[tuple[int, ...]]:
    """As the tree lists them."""
    return batch


def shuffled(batch: list[tuple[int, ...]], rng: random.Random) -> list[tuple[int, ...]]:
    """In any order."""
    return rng.sample(batch, len(batch))


def longest_first(batch: list[tuple[int, ...]], rng: random.Random) -> list[tuple[int, ...]]:
    """From a random start, always the one that shares the longest prefix with the one before."""
    left = shuffled(batch, rng)
    order = [left.pop()]
    while left:
        best = max(range(len(left)), key=lambda i: common(order[-1], left[i]))
        order.append(left.pop(best))
    return order


def common(one: tuple[int, ...], other: tuple[int, ...]) -> int:
    """Equal tokens at the start."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((i for i, (a, b) in pairs if a != b), min(len(one), len(other)))


ORDERS = {
    "depth-first": depth_first,
    "longest-shared-prefix": longest_first,
    "random": shuffled,
}
