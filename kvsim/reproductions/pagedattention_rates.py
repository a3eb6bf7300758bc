"""Figure 12 of the PagedAttention paper: the rate that each engine sustains at equal latency."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from kvsim.errors import ConfigError
from kvsim.reproductions.findings import Findings, Lines, Row, amounts, published
from kvsim.reproductions.lengths import poisson, saved, sharegpt
from kvsim.reproductions.orca import ENGINE, SYSTEMS, opt_13b

RATES = (0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 1.75, 2.0, 2.5, 3.0, 4.0)
"""Requests a second at which the curves are drawn."""


class Rates:
    """The highest Poisson rate whose mean normalised latency stays within a limit."""

    title: ClassVar[str] = "PagedAttention, Figure 12: sustained request rates"
    source: ClassVar[str] = "Kwon et al., SOSP 2023 (arXiv:2309.06180), section 6.2, Figure 12 (a)"

    def __init__(
        self,
        *,
        lengths: str | None = None,
        limit: float = 0.5,
        minutes: float = 60.0,
        host: float = 0.0,
        seed: int = 0,
    ) -> None:
        """``limit`` in seconds per output token; ``host``: seconds added to each iteration."""
        amounts(limit=limit, minutes=minutes)
        if not 0 <= host <= 10:
            raise ConfigError(f"host is {host}; accepted: seconds from 0 to 10")
        self._pairs = sharegpt(lengths)
        self._limit = limit
        self._seconds = minutes * 60
        self._host = host
        self._seed = seed

    def run(self) -> Findings:
        """Bisect the rate of each system to 2 %."""
        sustained, curves = {}, {}
        for name, how in SYSTEMS.items():
            seen = {rate: self._latency(how, rate) for rate in RATES}
            curves[name] = tuple((r, min(seen[r], 2 * self._limit)) for r in RATES)
            sustained[name] = highest(lambda r, how=how: self._latency(how, r) <= self._limit)  # type: ignore[misc]
        known = published("pagedattention-rates")
        rows = [
            Row(f"vLLM over {name}", sustained["vLLM"] / rate, known.get(f"vLLM over {name}"), "x")
            for name, rate in sustained.items()
            if name != "vLLM"
        ]
        rows += [Row(f"{name}: requests/s", rate, None, "") for name, rate in sustained.items()]
        chart = Lines(self.title, "requests a second", "seconds per output token", curves)
        return Findings(tuple(rows), self._assumptions(), chart)

    def _latency(self, how: dict[str, object], rate: float) -> float:
        """Mean normalised latency, seconds per output token."""
        import tempfile

        from kvsim.compose import simulate

        with tempfile.TemporaryDirectory(prefix="kvsim-") as folder:
            requests = poisson(self._pairs, rate, max(1, round(rate * self._seconds)), self._seed)
            summary = simulate(opt_13b(self._host, **how), saved(requests, folder)).summary
        mean = summary["mean_normalized_latency_ms"]
        assert isinstance(mean, float)
        return mean / 1000

    def _assumptions(self) -> tuple[str, ...]:
        return (
            *ENGINE,
            f"{self._seconds / 60:g} minutes of Poisson arrivals, lengths drawn from ShareGPT's",
            f"sustained: mean end-to-end latency per output token of at most {self._limit:g} s; the "
            "paper compares at similar latencies and names no limit",
            f"{1000 * self._host:g} ms of host time added to each iteration",
            "the published ranges span OPT-13B, 66B and 175B; this is OPT-13B",
        )


def highest(good: Callable[[float], bool]) -> float:
    """The highest rate that is good, to 2 %, where lower rates are good too."""
    low, high = 0.05, 0.1
    while high < 100 and good(high):
        low, high = high, high * 2
    while high / low > 1.02:
        middle = (low * high) ** 0.5
        low, high = (middle, high) if good(middle) else (low, middle)
    return low
