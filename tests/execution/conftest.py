"""Without a GPU the kernels run in Triton's interpreter; this must be said before triton loads."""

from __future__ import annotations

import importlib.util
import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

if importlib.util.find_spec("torch"):
    import torch

    if not torch.cuda.is_available():
        os.environ["TRITON_INTERPRET"] = "1"


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Small products are slower on several threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def model(tmp_path: Path) -> str:
    """The folder of a tiny model's configuration."""
    from tiny import CONFIG

    (tmp_path / "config.json").write_text(json.dumps(CONFIG), encoding="utf-8")
    return str(tmp_path)


@pytest.fixture
def busy(tmp_path: Path) -> str:
    """A trace that the pool is too small for."""
    from tiny import BUSY, written

    return written(BUSY, tmp_path / "busy.jsonl")
