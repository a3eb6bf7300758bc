"""What the command line loads before it knows what to do: nothing heavy."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from kvsim.cli.app import run

HEAVY = ("matplotlib", "numpy", "orjson", "pandas", "pyarrow", "pydantic", "scipy", "simpy", "yaml")

PROBE = """
import contextlib, io, sys
from kvsim.cli.app import run
with contextlib.redirect_stdout(io.StringIO()):
    code = run(sys.argv[1:])
print(code, *(name for name in {heavy} if name in sys.modules))
"""


def loaded(*arguments: str) -> list[str]:
    """Exit code and heavy modules of a run of the command line in a process of its own."""
    probe = PROBE.format(heavy=HEAVY)
    done = subprocess.run(
        [sys.executable, "-c", probe, *arguments], capture_output=True, text=True, check=True
    )
    return done.stdout.split()


@pytest.mark.parametrize("argument", ["--help", "--version"])
def test_help_and_version_load_nothing_heavy(argument: str) -> None:
    assert loaded(argument) == ["0"]


def test_a_replay_without_a_run_folder_needs_neither_pyarrow_nor_matplotlib(tmp_path) -> None:
    trace = tmp_path / "t.jsonl"
    trace.write_text('{"timestamp": 0, "input_length": 9, "output_length": 2}\n')
    code, *modules = loaded("replay", str(trace), "--format", "mooncake", "--json")
    assert code == "0"
    assert not {"pandas", "scipy", "matplotlib", "pyarrow"} & set(modules)


def test_importing_kvsim_loads_nothing_heavy_and_its_public_names_exist() -> None:
    probe = (
        "import sys, kvsim\n"
        f"print(*(name for name in {HEAVY} if name in sys.modules))\n"
        "[getattr(kvsim, name) for name in kvsim.__all__]"
    )
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


@pytest.mark.parametrize("executor", ["gpu", "cpu"])
def test_without_pytorch_the_message_says_what_to_install(
    root: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    executor: str,
) -> None:
    monkeypatch.delitem(sys.modules, "kvsim.execution.assembly", raising=False)
    monkeypatch.setitem(sys.modules, "torch", None)
    trace = str(root / "traces" / "chat.jsonl.gz")
    assert run(["replay", trace, "--limit", "1", "--executor", executor]) == 2
    said = capsys.readouterr().err
    assert "pip install 'kvsim[gpu]'" in said
    assert said.count("\n") == 1
