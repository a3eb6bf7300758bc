"""Section 6.3 of the PagedAttention paper: memory that samples and beams save by sharing blocks."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from kvsim.core import Request
from kvsim.reproductions.findings import Findings, Lines, Published, Row, amounts, published
from kvsim.reproductions.lengths import SIGMA, Pairs, alpaca, poisson, saved, sharegpt
from kvsim.reproductions.orca import ENGINE, opt_13b

WIDTHS = (2, 4, 6)
TURNOVERS = (1.0, 0.25, 0.0625)
"""Shares of steps in which a beam is dropped for a fork of another; the first is the default."""


class Sharing:
    """Blocks saved over blocks without sharing, mean over time."""

    title: ClassVar[str] = "PagedAttention, section 6.3: memory saved by sharing blocks"
    source: ClassVar[str] = "Kwon et al., SOSP 2023 (arXiv:2309.06180), section 6.3"

    def __init__(
        self,
        *,
        lengths: str | None = None,
        rate: float = 0.5,
        requests: int = 300,
        seed: int = 0,
    ) -> None:
        self._pairs = {"ShareGPT": sharegpt(lengths), "Alpaca": alpaca(10_000, seed)}
        amounts(rate=rate, requests=requests)
        self._rate = rate
        self._requests = requests
        self._seed = seed

    def run(self) -> Findings:
        """Two datasets, two ways of decoding, three widths; and beams that fork less often."""
        known = published("pagedattention-sharing")
        rows, curves = [], {}
        for dataset, pairs in self._pairs.items():
            for kind, field in (("parallel sampling", "n"), ("beam search", "beam_width")):
                figure = known[f"{kind}, {dataset}"]
                savings = [self._saving(pairs, field, width) for width in WIDTHS]
                curves[f"{kind}, {dataset}"] = tuple(zip(map(float, WIDTHS), savings, strict=True))
                rows += [
                    Row(f"{kind}, {dataset}, width {width}", saving, bound(figure, width))
                    for width, saving in zip(WIDTHS, savings, strict=True)
                ]
        rows += [
            Row(
                f"beam search, ShareGPT, width {width}, a fork in {turnover:g} of the steps",
                self._saving(self._pairs["ShareGPT"], "beam_width", width, turnover),
            )
            for turnover in TURNOVERS[1:]
            for width in WIDTHS
        ]
        chart = Lines(self.title, "sequences of a request", "% of blocks saved", curves)
        return Findings(tuple(rows), self._assumptions(), chart)

    def _saving(self, pairs: Pairs, field: str, width: int, turnover: float = 1.0) -> float:
        """Percent of the blocks that sharing saves."""
        import tempfile

        from kvsim.compose import simulate

        scheduler = {"name": "continuous", "beam_turnover": turnover}
        scenario = opt_13b(0.0, allocator="paged", enable_prefix_caching=False, scheduler=scheduler)
        requests = poisson(pairs, self._rate, self._requests, self._seed)
        with tempfile.TemporaryDirectory(prefix="kvsim-") as folder:
            wide = (widened(request, field, width) for request in requests)
            summary = simulate(scenario, saved(wide, folder)).summary
        saving = summary["kv_saved_by_sharing"]
        assert isinstance(saving, float)
        return 100 * saving

    def _assumptions(self) -> tuple[str, ...]:
        return (
            *ENGINE,
            f"{self._requests} requests with ShareGPT's lengths, {self._rate:g} a second; all sequences "
            "of a request have the answer's length",
            "Alpaca's lengths are not at hand: lognormal draws with the paper's means, 19.3 and 58.5 "
            f"tokens, and an assumed deviation of {SIGMA:g} of the logarithm",
            "of the published ranges over widths 2 to 6 the ends are taken for those of the widths",
            "beams have no scores: at each step one, drawn uniformly, is dropped and another is forked "
            "in its place. How fast beams come to share their past follows from that alone; the last "
            "rows say what fewer forks would give",
        )


def widened(request: Request, field: str, width: int) -> Request:
    """The request with several samples or beams."""
    return request._replace(n=width) if field == "n" else request._replace(beam_width=width)


def bound(figure: Published, width: int) -> Published:
    """What is published of a width: an end of the range for the first and the last."""
    if width == WIDTHS[0]:
        return replace(figure, high=figure.low)
    return replace(figure, low=figure.high) if width == WIDTHS[-1] else figure
