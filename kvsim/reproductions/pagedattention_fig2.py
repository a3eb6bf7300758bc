"""Figure 2 of the PagedAttention paper: how much of the KV memory holds tokens."""

from __future__ import annotations

from typing import ClassVar

from kvsim.errors import ConfigError
from kvsim.reproductions.findings import Bars, Findings, Published, Row, amounts, published
from kvsim.reproductions.lengths import poisson, saved, sharegpt
from kvsim.reproductions.orca import ENGINE, SYSTEMS, opt_13b

NAMES = {
    "used": "useful",
    "reserved": "reserved",
    "internal_fragmentation": "internal fragmentation",
    "external_fragmentation": "external fragmentation",
    "free": "free",
}
FIRST_FIT: dict[str, dict[str, object]] = {
    f"contiguous ({rule})": {"allocator": "contiguous", "reservation": rule}
    for rule in ("max", "pow2", "oracle")
}


class Figure2:
    """Shares of a pool that requests wait for, as means over time."""

    title: ClassVar[str] = "PagedAttention, Figure 2: what the KV memory holds"
    source: ClassVar[str] = "Kwon et al., SOSP 2023 (arXiv:2309.06180), Figure 2"

    def __init__(self, *, lengths: str | None = None, requests: int = 2000, seed: int = 0) -> None:
        amounts(requests=requests)
        self._pairs = sharegpt(lengths)
        self._requests = requests
        self._seed = seed

    def run(self) -> Findings:
        """Each system with as many requests at hand as it can take."""
        shares = {name: self._shares(how) for name, how in (SYSTEMS | FIRST_FIT).items()}
        known = published("pagedattention-fig2")
        rows = [
            Row(f"{system}: {part}", share, known.get(f"{system}: {part}"))
            for system, parts in shares.items()
            for part, share in parts.items()
            if share or f"{system}: {part}" in known
        ]
        return Findings(tuple(rows), self._assumptions(), self._chart(shares, known))

    def _chart(self, shares: dict[str, dict[str, float]], known: dict[str, Published]) -> Bars:
        """Every system, under it what was published of it."""
        bars = {}
        for system, parts in shares.items():
            bars[system] = parts
            figures = {part: known.get(f"{system}: {part}") for part in NAMES.values()}
            if any(figures.values()):
                bars[f"{system}, published"] = {
                    part: figure.low if figure else 0.0 for part, figure in figures.items()
                }
        columns = {part: tuple(one[part] for one in bars.values()) for part in NAMES.values()}
        return Bars(self.title, "% of the pool", tuple(bars), columns)

    def _shares(self, how: dict[str, object]) -> dict[str, float]:
        """Percent of the pool by part, while requests wait."""
        import tempfile

        import numpy as np

        from kvsim.compose import simulate

        scenario = opt_13b(0.0, **how, workload={"request_rate": "inf"})
        with tempfile.TemporaryDirectory(prefix="kvsim-") as folder:
            trace = saved(poisson(self._pairs, 1.0, self._requests, self._seed), folder)
            samples = simulate(scenario, trace).samples
        weights = np.diff(samples.time, prepend=0.0) * (samples.waiting > 0)
        if not weights.any():
            raise ConfigError(f"requests = {self._requests}: none of them waits; accepted: more")
        means = {part: np.average(getattr(samples, part), weights=weights) for part in NAMES}
        total = sum(means.values())
        return {NAMES[part]: float(100 * mean / total) for part, mean in means.items()}

    def _assumptions(self) -> tuple[str, ...]:
        means = (float(column.mean()) for column in self._pairs)
        lengths = "lengths of {:,} ShareGPT first turns, means {:.0f} and {:.0f} tokens".format(
            len(self._pairs.prompts), *means
        )
        return (
            *ENGINE,
            f"{lengths} (the paper's: 161 and 338), drawn with replacement",
            f"{self._requests:,} requests, all at hand from the start; means over the time in which "
            "some of them wait, so that nothing depends on an arrival rate",
            "Orca's ranges come from a buddy allocator; what it rounds up by counts as external "
            "fragmentation; the contiguous allocator, which the paper does not have, takes first fits",
        )
