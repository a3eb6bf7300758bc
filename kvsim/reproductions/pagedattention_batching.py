"""Section 6.2 of the PagedAttention paper: how many requests run together at equal load."""

from __future__ import annotations

from typing import ClassVar

from kvsim.reproductions.findings import Bars, Findings, Row, amounts, published
from kvsim.reproductions.lengths import poisson, saved, sharegpt
from kvsim.reproductions.orca import ENGINE, SYSTEMS, opt_13b

HOST = 0.02
"""Seconds between iterations that an engine of 2023 may have taken on its host; assumed."""


class Batching:
    """Requests in an iteration, mean over time until the last arrival."""

    title: ClassVar[str] = "PagedAttention, Figure 13: requests that run together"
    source: ClassVar[str] = "Kwon et al., SOSP 2023 (arXiv:2309.06180), section 6.2, Figure 13"

    def __init__(
        self,
        *,
        lengths: str | None = None,
        rate: float = 2.0,
        requests: int = 7200,
        seed: int = 0,
    ) -> None:
        self._pairs = sharegpt(lengths)
        amounts(rate=rate, requests=requests)
        self._rate = rate
        self._requests = requests
        self._seed = seed

    def run(self) -> Findings:
        """ShareGPT for an hour, through each system, on an engine without and with a slow host."""
        known = published("pagedattention-batching")
        rows: list[Row] = []
        parts = {}
        for host in (0.0, HOST):
            note = f", {1000 * host:g} ms of host time" if host else ""
            batches = {name: self._batch(how, host) for name, how in SYSTEMS.items()}
            parts[f"mean{note}"] = batches
            for name, batch in batches.items():
                if name != "vLLM":
                    figure = known.get(f"vLLM over {name}")
                    rows.append(
                        Row(f"vLLM over {name}{note}", batches["vLLM"] / batch, figure, "x")
                    )
            rows += [
                Row(f"{name}{note}: requests", batch, None, "") for name, batch in batches.items()
            ]
        labels = tuple(f"{name}{note[4:]}" for note in parts for name in SYSTEMS)
        means = tuple(batch for batches in parts.values() for batch in batches.values())
        chart = Bars(self.title, "requests in an iteration", labels, {"mean": means})
        return Findings(tuple(rows), self._assumptions(), chart)

    def _batch(self, how: dict[str, object], host: float) -> float:
        import tempfile

        import numpy as np

        from kvsim.compose import simulate

        with tempfile.TemporaryDirectory(prefix="kvsim-") as folder:
            requests = poisson(self._pairs, self._rate, self._requests, self._seed)
            samples = simulate(opt_13b(host, **how), saved(requests, folder)).samples
        weights = np.diff(samples.time, prepend=0.0)
        weights[samples.time > self._requests / self._rate] = 0
        return float(np.average(samples.batch, weights=weights))

    def _assumptions(self) -> tuple[str, ...]:
        return (
            *ENGINE,
            f"{self._requests:,} requests whose lengths are drawn from ShareGPT's, Poisson arrivals "
            f"of {self._rate:g} a second; means over the time until the last arrival",
            "the batches of engines whose memory is full depend on lengths alone; vLLM's is not full "
            "at this rate, and is then what the speed of an iteration makes it. The engine of 2023 "
            f"did much between iterations in Python; {1000 * HOST:g} ms of that is an assumption",
        )
