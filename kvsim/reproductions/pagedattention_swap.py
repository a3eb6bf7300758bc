"""Figure 19 of the PagedAttention paper: what it takes to bring a preempted request back."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from kvsim.reproductions.findings import Findings, Lines, Row, amounts, published
from kvsim.reproductions.lengths import poisson, saved, sharegpt
from kvsim.reproductions.orca import ENGINE, opt_13b

BLOCKS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
END_TO_END = (16, 32, 64)
SLOTS = 15_728
MILLISECONDS = 1e9
"""Picoseconds in one."""


class SwapOrRecompute:
    """Swapping block by block, against one prefill of the same tokens."""

    title: ClassVar[str] = "PagedAttention, Figure 19: recomputation and swapping"
    source: ClassVar[str] = "Kwon et al., SOSP 2023 (arXiv:2309.06180), section 7.3, Figure 19"

    def __init__(
        self,
        *,
        lengths: str | None = None,
        tokens: int = 256,
        rate: float = 4.0,
        requests: int = 1500,
        link: float = 16.0,
        seed: int = 0,
    ) -> None:
        amounts(tokens=tokens, rate=rate, requests=requests, link=link)
        self._link = link
        self._pairs = sharegpt(lengths)
        self._tokens = tokens
        self._rate = rate
        self._requests = requests
        self._seed = seed

    def run(self) -> Findings:
        """The overheads by block size, and whole replays under pressure."""
        times = self._overheads(self._link)
        ratios, faster = ratio(times), ratio(self._overheads(2 * self._link))
        known = published("pagedattention-swap")
        most = "recompute over swap, most of all block sizes"
        rows = [Row(most, max(ratios.values()), known[most])]
        rows += [Row(f"recompute over swap, blocks of {block}", r) for block, r in ratios.items()]
        rows.append(Row("the same over a link twice as fast, most", max(faster.values())))
        for block in END_TO_END:
            ends = [self._latency(block, how) for how in ("recompute", "swap")]
            rows.append(
                Row(f"latency with recompute over swap, blocks of {block}", 100 * ends[0] / ends[1])
            )
        curves = {
            name: tuple((float(block), time) for block, time in by_block.items())
            for name, by_block in times.items()
        }
        chart = Lines(self.title, "tokens in a block", "milliseconds", curves, log=True)
        return Findings(tuple(rows), self._assumptions(), chart)

    def _overheads(self, bandwidth: float) -> dict[str, dict[int, float]]:
        """Milliseconds by way and block size, over a link of so many GB/s."""
        from kvsim.catalog import load_gpu, load_model
        from kvsim.costs.hostlink import HostLink
        from kvsim.costs.roofline import Roofline
        from kvsim.layout import KVLayout

        layout = KVLayout(load_model("opt-13b"))
        gpu = replace(load_gpu("a100-40gb"), pcie_bandwidth=bandwidth * 1e9)
        cost = Roofline(layout, gpu)
        links = {block: HostLink(layout, gpu, cost, block_size=block) for block in BLOCKS}
        out = {block: link.out(self._tokens) / MILLISECONDS for block, link in links.items()}
        back = {block: link.back(self._tokens) / MILLISECONDS for block, link in links.items()}
        return {
            "recompute": {
                block: link.compute(self._tokens) / MILLISECONDS for block, link in links.items()
            },
            "swap out": out,
            "swap in": back,
            "swap out and in": {block: out[block] + back[block] for block in BLOCKS},
        }

    def _latency(self, block: int, preemption: str) -> float:
        """Mean end-to-end latency per output token, milliseconds."""
        import tempfile

        from kvsim.compose import simulate

        scenario = opt_13b(
            0.0,
            allocator="paged",
            enable_prefix_caching=False,
            block_size=block,
            num_gpu_blocks_override=SLOTS // block,
            preemption=preemption,
            host_bandwidth=self._link,
        )
        requests = poisson(self._pairs, self._rate, self._requests, self._seed)
        with tempfile.TemporaryDirectory(prefix="kvsim-") as folder:
            summary = simulate(scenario, saved(requests, folder)).summary
        mean = summary["mean_normalized_latency_ms"]
        assert isinstance(mean, float)
        return mean

    def _assumptions(self) -> tuple[str, ...]:
        return (
            *ENGINE,
            f"{self._tokens} tokens move, a copy for each block of each layer, keys and values apart; "
            "times of copies measured on an H200 (kvsim profile show), the bytes over a link of "
            f"{self._link:g} GB/s by its data sheet: PCIe 3.0, which is what the hosts of the paper's "
            "machines (Google Cloud's A2, Cascade Lake) have, from memory; an A100's own is twice as "
            "fast, which the row without a published value has; nothing was fitted to the figure",
            "the paper's recomputation that is never higher than 20 % of swapping's latency is read as at "
            "most 20 % above it, since it finds swapping the faster one for large blocks",
            f"end to end: {self._requests:,} requests with ShareGPT's lengths, {self._rate:g} a second, "
            "mean latency per output token; the engine waits for copies",
        )


def ratio(times: dict[str, dict[int, float]]) -> dict[int, float]:
    """What recomputing takes of swapping out and in, percent, by block size."""
    swap = times["swap out and in"]
    return {block: 100 * time / swap[block] for block, time in times["recompute"].items()}
