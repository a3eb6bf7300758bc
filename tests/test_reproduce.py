"""``kvsim reproduce``: published figures beside reproduced ones."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kvsim.cli.app import run
from kvsim.reproductions import REPRODUCTIONS
from kvsim.reproductions.document import as_dict, cells, markdown
from kvsim.reproductions.figures import png
from kvsim.reproductions.findings import Bars, Findings, Published, Row, published
from kvsim.reproductions.lengths import LONGEST, poisson, sharegpt
from kvsim.reproductions.mooncake_cache import MooncakeCache
from kvsim.reproductions.pagedattention_batching import Batching
from kvsim.reproductions.pagedattention_fig2 import Figure2
from kvsim.reproductions.pagedattention_sharing import Sharing
from kvsim.reproductions.pagedattention_swap import SwapOrRecompute, ratio
from kvsim.reproductions.radix_optimum import Optimum
from kvsim.workload import open_trace


def values(findings: Findings) -> dict[str, float | None]:
    return {row.quantity: row.reproduced for row in findings.rows}


@pytest.fixture(scope="module")
def figure2() -> Findings:
    return Figure2(requests=1500).run()


def test_orca_max_wastes_what_the_paper_says_and_paging_hardly_anything(figure2: Findings) -> None:
    shares = values(figure2)
    useful = [shares[f"{name}: useful"] for name in ("Orca (Max)", "Orca (Pow2)", "Orca (Oracle)")]
    assert useful == sorted(useful)  # type: ignore[type-var]
    assert shares["vLLM: useful"] == pytest.approx(96.3, abs=1.5)
    assert shares["Orca (Max): external fragmentation"] == pytest.approx(
        100 * 1392 / 15728, abs=0.05
    )


def test_the_parts_of_each_system_are_the_whole_pool(figure2: Findings) -> None:
    for system in ("Orca (Max)", "Orca (Pow2)", "contiguous (oracle)", "vLLM"):
        parts = [row.reproduced or 0 for row in figure2.rows if row.quantity.startswith(system)]
        assert sum(parts) == pytest.approx(100, abs=0.01)


def test_a_reproduction_repeats() -> None:
    assert Figure2(requests=150).run() == Figure2(requests=150).run()
    assert Figure2(requests=150, seed=1).run() != Figure2(requests=150).run()


def test_paging_runs_more_requests_at_once_and_the_more_the_slower_the_engine() -> None:
    found = values(Batching(requests=900).run())
    fast, slow = found["vLLM over Orca (Max)"], found["vLLM over Orca (Max), 20 ms of host time"]
    assert fast is not None
    assert slow is not None
    assert 1.5 < fast < slow


def test_depth_first_order_is_optimal_and_any_order_is_not() -> None:
    found = values(Optimum(trees=6).run())
    assert found["depth-first order over the optimum"] == 100
    assert found["longest-shared-prefix order over the optimum"] == 100
    assert (found["random order over the optimum"] or 0) < 90


def test_beams_save_more_than_samples_and_wide_groups_more_than_narrow_ones() -> None:
    found = Sharing(requests=12)
    pairs = sharegpt(None)
    samples = [found._saving(pairs, "n", width) for width in (2, 6)]
    beams = [found._saving(pairs, "beam_width", width) for width in (2, 6)]
    assert 10 < samples[0] < samples[1] < beams[1]
    assert samples[0] < beams[0] < beams[1]


def test_small_blocks_make_swapping_slow_and_leave_recomputing_as_it_is() -> None:
    times = SwapOrRecompute()._overheads(16.0)
    assert len(set(times["recompute"].values())) == 1
    both = list(times["swap out and in"].values())
    assert both == sorted(both, reverse=True)
    assert both[0] > 3 * times["recompute"][1] > 3 * both[-1]
    assert max(ratio(times).values()) <= 120, "PagedAttention, section 7.3"


def test_the_mooncake_ratios_need_the_trace_and_count_what_it_holds() -> None:
    sample = Path(__file__).parents[1] / "traces" / "mooncake.jsonl.gz"
    found = values(MooncakeCache(trace=str(sample)).run())
    assert found["requests"] == sum(1 for _ in open_trace(sample))
    for policy in ("lru", "lfu", "length-aware"):
        assert found[f"{policy}, unbounded"] == found["lru, unbounded"]
        assert (found[f"{policy}, 1,000 blocks"] or 0) < (found["lru, unbounded"] or 0)


def test_lengths_are_those_of_sharegpt() -> None:
    pairs = sharegpt(None)
    assert (pairs.prompts + pairs.answers).max() <= LONGEST
    assert pairs.prompts.mean() == pytest.approx(161.31, rel=0.05)
    assert pairs.answers.mean() == pytest.approx(337.99, rel=0.08)
    requests = list(poisson(pairs, 2.0, 2000, seed=3))
    assert requests[-1].arrival == pytest.approx(1000, rel=0.1)


@pytest.mark.parametrize(
    ("low", "high", "value", "gap"), [(2, 4, 3, 0), (2, 4, 1.5, -0.5), (2, 2, 3, 1), (2, 4, 5, 1)]
)
def test_a_gap_is_counted_from_the_published_range(
    low: float, high: float, value: float, gap: float
) -> None:
    assert Row("", value, Published(low, high, "x", "", "")).gap == gap


def test_every_published_figure_has_its_reproduction_and_source() -> None:
    import csv
    from importlib.resources import files

    text = files("kvsim.reproductions").joinpath("published.csv").read_text(encoding="utf-8")
    rows = list(csv.DictReader(text.splitlines()))
    assert {row["reproduction"] for row in rows} <= set(REPRODUCTIONS)
    assert all(row["source"] and row["confidence"] for row in rows)


def test_a_page_shows_published_beside_reproduced_with_the_gap() -> None:
    known = published("pagedattention-fig2")["Orca (Max): useful"]
    row = Row("Orca (Max): useful", 21.04, known)
    assert cells(row) == ("Orca (Max): useful", "20.4 %", "21.0 %", "+0.6 points")
    chart = Bars("t", "%", ("a",), {"used": (21.0,)})
    page = markdown("x", Optimum(), Findings((row,), ("one",), chart), "kvsim reproduce x")
    assert "| Orca (Max): useful | 20.4 % | 21.0 % | +0.6 points |" in page
    assert as_dict("x", Optimum(), Findings((row,), ("one",), chart))["rows"]
    assert png(chart).startswith(b"\x89PNG")


def test_the_command_writes_a_page_and_a_figure_and_prints_json(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["reproduce", "radixattention-optimum", "--set", "trees=2"]
    assert run([*command, "--out", str(tmp_path / "pages"), "--json"]) == 0
    (answer,) = json.loads(capsys.readouterr().out)
    assert answer["rows"][0]["gap"] == 0
    names = sorted(path.name for path in (tmp_path / "pages").iterdir())
    assert names == ["radixattention-optimum.md", "radixattention-optimum.png"]
    page = (tmp_path / "pages" / names[0]).read_text()
    assert "`kvsim reproduce radixattention-optimum --seed 0 --set trees=2 --out pages`" in page


def test_the_list_names_all(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["reproduce", "--list"]) == 0
    assert {line.split()[0] for line in capsys.readouterr().out.splitlines()} == set(REPRODUCTIONS)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "pagedattention-fig2"),
        (["pagedattention-fig9"], "pagedattention-fig2"),
        (["mooncake-cache"], "needs --trace"),
        (["--all", "--set", "requests=2"], "--set"),
        (["pagedattention-fig2", "--set", "requests"], "requests=500"),
        (["pagedattention-fig2", "--set", "colour=red"], "requests"),
        (["pagedattention-fig2", "--set", "requests=5"], "none of them waits"),
        (["pagedattention-fig2", "--lengths", "nowhere.csv"], "nowhere.csv"),
        (["pagedattention-fig2", "--set", "requests=-5"], "requests is -5; accepted"),
        (["pagedattention-sharing", "--set", "requests=0"], "requests is 0; accepted"),
        (["pagedattention-swap", "--set", "link=0"], "link is 0.0; accepted"),
        (["pagedattention-rates", "--set", "minutes=inf"], "minutes is inf; accepted"),
        (["pagedattention-rates", "--set", "host=-1"], "host is -1.0; accepted"),
        (["pagedattention-batching", "--set", "rate=nan"], "rate is nan; accepted"),
        (["radixattention-optimum", "--set", "trees=0"], "trees is 0; accepted"),
    ],
)
def test_a_mistake_is_one_line(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["reproduce", *arguments]) in (2, 3)
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert said in error
