"""Measured operators and a constant of the host."""

from __future__ import annotations

import pytest

from kvsim.catalog.hardware import load_gpu
from kvsim.catalog.models import load_model
from kvsim.core import BatchShape
from kvsim.costs import Hosted, Measured
from kvsim.errors import ConfigError
from kvsim.layout import KVLayout

PLACE = (KVLayout(load_model("llama-3-8b")), load_gpu("h200"))


@pytest.mark.parametrize(
    "shape", [BatchShape(8, 9000, sampled=8), BatchShape(8, 9000, 1, 512, 0, 131_328, 9)]
)
def test_the_host_adds_its_time_to_every_iteration(shape: BatchShape) -> None:
    bare, hosted = Measured(*PLACE), Hosted(*PLACE, host=0.5e-3)
    assert hosted.time(shape, 7) == bare.time(shape, 7) + 7 * 500_000_000
    assert hosted.label == f"{bare.label}, host 0.5 ms"


def test_the_host_may_take_longer_for_more_sequences() -> None:
    shape = BatchShape(8, 9000, 1, 512, 0, 131_328, 9)
    bare, hosted = Measured(*PLACE), Hosted(*PLACE, host=0.5e-3, host_per_sequence=4e-6)
    assert hosted.time(shape, 7) == bare.time(shape, 7) + 7 * (500_000_000 + 9 * 4_000_000)
    assert hosted.label == f"{bare.label}, host 0.5 ms and 4 µs a sequence"


def test_a_negative_time_is_refused() -> None:
    with pytest.raises(ConfigError, match="seconds, 0 or more"):
        Hosted(*PLACE, host=-1.0)
    with pytest.raises(ConfigError, match="seconds, 0 or more"):
        Hosted(*PLACE, host_per_sequence=-1.0)
