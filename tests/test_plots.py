"""Figures: there is one for each question, drawn the same every time, from faithful series."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from matplotlib.image import imread

from kvsim.analysis.summary import mean_parts
from kvsim.analysis.timeseries import grid, resample
from kvsim.errors import ConfigError
from kvsim.plots import write_plots
from kvsim.tables import POOL_PARTS
from tests.recorded import SLOTS, record, served

RUN = record(*(served(row, 3.0 * row, queue=0.1 * row) for row in range(30)), replicas=2)
NAMES = ["kv_memory.png", "batch_size.png", "queue.png", "latency.png"]


def test_every_figure_is_a_picture_with_something_on_it(tmp_path: Path) -> None:
    written = write_plots(RUN, tmp_path / "plots")
    assert [path.name for path in written] == NAMES
    assert sorted(path.name for path in (tmp_path / "plots").iterdir()) == sorted(NAMES)
    for path in written:
        pixels = imread(path)
        assert pixels.shape[0] > 600
        assert pixels.std() > 0.05


def test_the_same_run_gives_the_same_pictures(tmp_path: Path) -> None:
    one, other = (write_plots(RUN, tmp_path / name) for name in ("a", "b"))
    for first, second in zip(one, other, strict=True):
        assert first.read_bytes() == second.read_bytes()


def test_a_run_that_served_nobody_cannot_be_drawn(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="completed no request"):
        write_plots(record(rejected=1), tmp_path)


@pytest.mark.filterwarnings("error")
def test_a_run_of_one_request_with_one_token_can_be_drawn(tmp_path: Path) -> None:
    assert len(write_plots(record(served(0, 5.0, output=1)), tmp_path)) == 4


@pytest.mark.parametrize("points", [1, 7, 400])
def test_a_series_keeps_the_mean_of_its_samples(points: int) -> None:
    edges = grid(RUN.samples, 0.0, points)
    series = resample(RUN.samples, edges)
    means = mean_parts(RUN.samples, 0.0)
    for part in POOL_PARTS:
        assert series[part].mean() == pytest.approx(means[part])


def test_the_parts_of_the_pool_sum_to_it_at_every_instant() -> None:
    series = resample(RUN.samples, grid(RUN.samples, 0.0, 50))
    np.testing.assert_allclose(sum(series[part] for part in POOL_PARTS), 2 * SLOTS)
