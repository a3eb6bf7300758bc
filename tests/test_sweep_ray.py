"""A sweep on a Ray cluster of two workers, which the test starts and ends."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kvsim.cli.app import run

ROOT = Path(__file__).resolve().parent.parent
ROW = '{{"arrival": {0}, "prompt_tokens": {1}, "output_tokens": 20, "hash_ids": [0, {2}]}}\n'
SPEC = """
trace = "few.jsonl"
[grid]
"workload.request_rate" = [5, 50, 500]
allocator = ["paged", "radix"]
"""
DEADLY = """
import os, signal
from kvsim.memory.paged import Paged

class Deadly(Paged):
    def admit(self, *given, **more):
        os.kill(os.getpid(), signal.SIGKILL)
"""

with_ray = pytest.mark.skipif(
    importlib.util.find_spec("ray") is None,
    reason="Ray is not installed: pip install 'kvsim[cluster]'",
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A working folder with a trace, a spec and a plug-in."""
    folder = tmp_path_factory.mktemp("sweep")
    (folder / "few.jsonl").write_text("".join(ROW.format(n / 20, 700, n + 1) for n in range(40)))
    (folder / "spec.toml").write_text(SPEC)
    (folder / "deadly.py").write_text(DEADLY)
    return folder


@pytest.fixture(scope="module")
def cluster(folder: Path) -> Iterator[str]:
    """The address of a cluster of two nodes with a worker each."""
    from ray.cluster_utils import Cluster

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", f"{ROOT}{os.pathsep}{folder}")
        started = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
        started.add_node(num_cpus=1)
        yield started.address
        started.shutdown()


def begin(folder: Path, *flags: str, **environment: str) -> subprocess.Popen[str]:
    path = f"{ROOT}{os.pathsep}{folder}"
    return subprocess.Popen(
        [sys.executable, "-m", "kvsim", "sweep", *flags],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": path, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@with_ray
@pytest.mark.slow
def test_a_cluster_gives_what_this_machine_gives(folder, cluster) -> None:
    local = begin(folder, "spec.toml", "--out", "local", "--json").communicate()
    flags = ("spec.toml", "--out", "ray", "--backend", "ray", "--json")
    assert begin(folder, *flags, "--ray-address", cluster).communicate() == local
    by_environment = begin(folder, *flags, "--resume", RAY_ADDRESS=cluster).communicate()
    assert by_environment == local
    assert {row["status"] for row in json.loads(local[0])} == {"done"}


@with_ray
@pytest.mark.slow
def test_a_worker_of_a_cluster_that_dies_fails_alone(folder, cluster) -> None:
    text = 'trace = "few.jsonl"\n[grid]\nallocator = ["deadly:Deadly", "paged"]\n'
    (folder / "deadly.toml").write_text(text)
    flags = ("deadly.toml", "--out", "deadly", "--backend", "ray", "--ray-address", cluster)
    running = begin(folder, *flags, "--continue-on-error", "--json")
    printed, complaint = running.communicate()
    assert running.returncode == 1
    assert complaint.endswith("kvsim: error: 1 of 2 configurations failed\n")
    dead, done = json.loads(printed)
    assert (dead["status"], done["status"]) == ("failed", "done")
    assert dead["error"].startswith("the worker died: ")
    assert dead["error"].endswith(", 3 times")


@with_ray
@pytest.mark.slow
def test_an_interrupt_on_a_cluster_can_be_resumed(folder, cluster) -> None:
    flags = ("spec.toml", "--out", "stopped", "--backend", "ray", "--ray-address", cluster)
    running = begin(folder, *flags)
    while not list(folder.glob("stopped/sweep.sqlite-wal")):
        assert running.poll() is None
    running.send_signal(signal.SIGINT)
    printed, complaint = running.communicate()
    assert (running.returncode, printed) == (130, "")
    assert complaint.endswith("kvsim: error: interrupted\n")
    resumed = begin(folder, *flags, "--resume", "--json")
    printed, _ = resumed.communicate()
    assert resumed.returncode == 0
    assert {row["status"] for row in json.loads(printed)} == {"done"}


@with_ray
@pytest.mark.slow
@pytest.mark.parametrize("address", ["127.0.0.1:1", "nonsense"])
def test_a_cluster_that_is_not_there_is_one_line(folder, address) -> None:
    flags = ("spec.toml", "--out", "none", "--backend", "ray", "--ray-address", address)
    running = begin(folder, *flags)
    printed, complaint = running.communicate()
    assert (running.returncode, printed) == (2, "")
    assert complaint.startswith(f"kvsim: error: no Ray cluster at {address}: ")
    assert complaint.count("\n") == 1


def test_without_ray_the_extra_is_named(folder, monkeypatch, capsys) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.setitem(sys.modules, "ray", None)
    assert run(["sweep", "spec.toml", "--out", "missing", "--backend", "ray"]) == 2
    printed = capsys.readouterr()
    assert "pip install 'kvsim[cluster]'" in printed.err
    assert printed.err.count("\n") == 1
    assert not (folder / "missing").exists()
