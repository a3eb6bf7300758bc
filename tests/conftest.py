"""What several tests need: the shared real data, when it lies beside the checkout."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


def pytest_configure() -> None:
    """A shell starts what runs in its background deaf to interrupts, and some tests send them."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def root() -> Path:
    """The folder of the checkout."""
    return ROOT


@pytest.fixture(scope="session")
def shared() -> Path:
    """Folder of real traces and measurements; too large or not ours to be part of the project."""
    folder = ROOT.parent / "shared"
    if not folder.is_dir():
        pytest.skip("the real traces are not beside the checkout (../shared)")
    return folder


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str, str], Path]:
    """Write a text file into the test's own folder."""

    def write_file(name: str, text: str) -> Path:
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        return path

    return write_file
