"""A sweep and the ways in which it can be ended: by kill -9, Ctrl-C, the death of its workers.

A trigger in the ledger writes down every result that is recorded, so "exactly one" is counted and not
inferred. Processes are real, and killed for good.
"""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kvsim.sweeping.configuration import configurations
from kvsim.sweeping.ledger import Ledger
from kvsim.sweeping.spec import read_spec

ROOT = Path(__file__).resolve().parent.parent
ROW = '{{"arrival": {0}, "prompt_tokens": {1}, "output_tokens": 20, "hash_ids": [0, {2}]}}\n'
SPEC = """
trace = "few.jsonl"
[grid]
"workload.request_rate" = [5, 10, 20, 40, 80, 160, 320, 640]
allocator = ["paged", "radix", "buddy"]
"""
SIZE = 24

DIES = """
import os, signal, sqlite3, sys
from kvsim.cli.app import run

left, arguments = int(sys.argv[1]), sys.argv[2:]
connect = sqlite3.connect

def connected(*given, **more):
    connection = connect(*given, **more)
    connection.set_trace_callback(count)
    return connection

def count(statement):
    global left
    left -= 1
    if left == 0:
        os.kill(os.getpid(), signal.SIGKILL)

sqlite3.connect = connected
sys.exit(run(arguments))
"""
"""kvsim that is killed just before it executes its n-th SQL statement."""

KILLS = """
import json, os, shutil, signal, sqlite3, sys
from pathlib import Path
import kvsim.compose, kvsim.parquet
from kvsim.sweeping import drive
from kvsim.sweeping.configuration import configurations
from kvsim.sweeping.results import load_sweep
from kvsim.sweeping.spec import read_spec
from kvsim.sweeping.table import json_of
from kvsim.sweeping.worker import outcome, perform

CHANGES = {"os.mkdir", "os.rename", "os.remove", "os.rmdir", "shutil.rmtree"}
matrix = configurations(read_spec(Path("spec.toml")))
connect = sqlite3.connect
left = 0

class Here:
    def __init__(self):
        self.tasks = []

    @property
    def room(self):
        return 1 - len(self.tasks)

    def submit(self, key, task):
        self.tasks.append((key, task))

    def wait(self, seconds):
        key, task = self.tasks.pop()
        return [(key, outcome(perform(task.encoded())))]

    def close(self):
        pass

def connected(*given, **more):
    connection = connect(*given, **more)
    connection.set_trace_callback(step)
    return connection

def step(*_):
    global left
    left -= 1
    if left == 0:
        os.kill(os.getpid(), signal.SIGKILL)

def attempt(kill=0):
    global left
    child = os.fork()
    if child == 0:
        left = kill
        sqlite3.connect = connected
        sys.addaudithook(lambda event, _: step() if event in CHANGES else None)
        drive.sweep(matrix, Path("out"), Here(), resume=True, keep_runs=True)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

def recorded():
    with connect("out/sweep.sqlite") as ledger:
        assert ledger.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        return [name for name, in ledger.execute("SELECT scenario_hash FROM results")]

kills, killed = [], -signal.SIGKILL
while killed and len(kills) < int(sys.argv[1]):
    shutil.rmtree("out", ignore_errors=True)
    if Path("new").exists():
        shutil.copytree("new", "out")
    killed = attempt(len(kills) + 1)
    assert killed in (0, -signal.SIGKILL), killed
    assert attempt(7 * len(kills) % 19 + 1) in (0, -signal.SIGKILL)
    assert attempt() == 0
    kills.append({
        "recorded": recorded() if Path("new").exists() else [],
        "rows": json_of(load_sweep(Path("out"))),
        "runs": len(list(Path("out/runs").glob("*/manifest.json"))),
        "left": len(list(Path("out/runs").glob(".*"))),
    })
print(json.dumps(kills))
"""
"""A process whose children are killed, each one step later than the one before, and then once more.

A step is an SQL statement or a change of the file system. Prints what is there after a last attempt
that nobody disturbs, for each of them; the last kill was too late to hit.
"""

PLUG_INS = """
import os, signal, time
from pathlib import Path
from kvsim.memory.paged import Paged

class Deadly(Paged):
    def __init__(self, num_blocks: int, *, lives: int = 1000, block_size: int = 16) -> None:
        super().__init__(num_blocks, block_size=block_size)
        self.lives = lives

    def admit(self, *given, **more):
        deaths = Path("deaths")
        count = len(deaths.read_text()) if deaths.exists() else 0
        if count < self.lives:
            deaths.write_text("x" * (count + 1))
            os.kill(os.getpid(), signal.SIGKILL)
        return super().admit(*given, **more)

class Slow(Paged):
    def admit(self, *given, **more):
        while not Path("go").exists():
            time.sleep(0.01)
        return super().admit(*given, **more)

class Wrong(Paged):
    def admit(self, *given, **more):
        print("this is not a result")
        raise ValueError("never\\nworks")
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A working folder with a trace, a spec and plug-ins."""
    (tmp_path / "few.jsonl").write_text("".join(ROW.format(n / 20, 700, n + 1) for n in range(40)))
    (tmp_path / "spec.toml").write_text(SPEC)
    (tmp_path / "plugins.py").write_text(PLUG_INS)
    return tmp_path


def begin(folder: Path, *command: str) -> subprocess.Popen[str]:
    """A process of its own group, marked so that its children can be told apart."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "SWEEP_UNDER_TEST": str(folder)}
    return subprocess.Popen(
        [sys.executable, *command],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def sweep(folder: Path, *flags: str) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of a sweep that runs to its end."""
    running = begin(folder, "-m", "kvsim", "sweep", "spec.toml", "--out", "out", *flags)
    printed, complaint = running.communicate()
    return running.returncode, printed, complaint


def survivors(folder: Path) -> list[int]:
    """Processes of this test that are still there."""
    mark = f"SWEEP_UNDER_TEST={folder}".encode()
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if mark in (process / "environ").read_bytes().split(b"\0"):
                found.append(int(process.name))
        except OSError:  # it has just ended
            continue
    return found


def wait_until_alone(folder: Path) -> None:
    """Workers that have lost their parent end by themselves."""
    while survivors(folder):
        time.sleep(0.02)


@pytest.fixture(autouse=True)
def _nothing_is_left(tmp_path: Path) -> Iterator[None]:
    yield
    if Path("/proc").is_dir():
        wait_until_alone(tmp_path)


def counted(folder: Path) -> None:
    """Create the ledger, with a trigger that counts the results of each configuration."""
    os.chdir(folder)
    with Ledger.create(folder / "out") as ledger:
        ledger.enrol(configurations(read_spec(folder / "spec.toml")))
    with sqlite3.connect(folder / "out/sweep.sqlite") as ledger:
        ledger.execute("CREATE TABLE results (scenario_hash, result)")
        ledger.execute(
            "CREATE TRIGGER counted AFTER UPDATE OF result ON configurations "
            "WHEN new.result IS NOT NULL "
            "BEGIN INSERT INTO results VALUES (new.scenario_hash, new.result); END"
        )


def results(folder: Path) -> dict[str, dict]:
    """Every result that was ever recorded; the ledger must be sound and have each once."""
    with sqlite3.connect(folder / "out/sweep.sqlite") as ledger:
        assert ledger.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        rows = ledger.execute("SELECT scenario_hash, result FROM results").fetchall()
        done = ledger.execute("SELECT count(*) FROM configurations WHERE status = 'done'")
        assert done.fetchone() == (len(rows),)
    assert len(dict(rows)) == len(rows)
    return {name: json.loads(result) for name, result in rows}


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory) -> str:
    """What the sweep gives when nobody kills it."""
    folder = tmp_path_factory.mktemp("undisturbed")
    (folder / "few.jsonl").write_text("".join(ROW.format(n / 20, 700, n + 1) for n in range(40)))
    (folder / "spec.toml").write_text(SPEC)
    code, printed, complaint = sweep(folder, "--json")
    assert (code, complaint) == (0, "")
    return printed


def same(folder: Path, printed: str, undisturbed: str) -> bool:
    """Whether two sweeps gave the same; the place of the trace apart."""
    found, expected = json.loads(printed), json.loads(undisturbed)
    assert {row.pop("trace") for row in found} == {str(folder / "few.jsonl")}
    assert len({row.pop("trace") for row in expected}) == 1
    return bool(found == expected)


@pytest.mark.parametrize("exists", [False, True])
def test_a_sweep_that_is_killed_before_any_step_gives_each_result_once(folder, exists) -> None:
    """Before every step of a sweep whose ledger exists, and before the first ones if it does not."""
    (folder / "spec.toml").write_text(SPEC.replace("[5, 10, 20, 40, 80, 160, 320, 640]", "[5]"))
    if exists:
        counted(folder)
        (folder / "out").rename(folder / "new")
    most = 1000 if exists else 20
    harness = begin(folder, "-c", KILLS, str(most))
    printed, complaint = harness.communicate()
    assert (harness.returncode, complaint) == (0, "")
    kills = json.loads(printed)
    assert len(kills) > 40 if exists else len(kills) == most
    for kill in kills:
        assert kill["rows"] == kills[-1]["rows"]
        assert (kill["runs"], kill["left"]) == (3, 0)
        if exists:
            assert len(kill["recorded"]) == len(set(kill["recorded"])) == 3


def test_a_killed_command_leaves_no_worker_and_can_be_killed_again(folder, undisturbed) -> None:
    counted(folder)
    before: dict[str, dict] = {}
    for kill in (30, 70, 80, 90):
        command = ("-c", DIES, str(kill), "sweep", "spec.toml", "--out", "out", "--resume")
        killed = begin(folder, *command, "--jobs", "2")
        killed.communicate()
        assert killed.returncode == -signal.SIGKILL
        wait_until_alone(folder)
        found = results(folder)
        assert before.items() <= found.items()
        before = found
    assert before
    code, printed, complaint = sweep(folder, "--resume", "--json", "--jobs", "2")
    assert (code, complaint) == (0, "")
    assert len(results(folder)) == SIZE
    assert same(folder, printed, undisturbed)


def test_a_sweep_is_killed_with_its_workers_at_any_time(folder, undisturbed) -> None:
    counted(folder)
    for wait in (0.4, 0.7, 0.8, 0.9):
        killed = begin(folder, "-m", "kvsim", "sweep", "spec.toml", "--out", "out", "--resume")
        time.sleep(wait)
        os.killpg(killed.pid, signal.SIGKILL)
        killed.communicate()
        results(folder)
    code, printed, _ = sweep(folder, "--resume", "--json")
    assert code == 0
    assert len(results(folder)) == SIZE
    assert same(folder, printed, undisturbed)


def test_two_processes_share_a_sweep_and_neither_does_the_other_s_work(folder, undisturbed) -> None:
    counted(folder)
    command = ("-m", "kvsim", "sweep", "spec.toml", "--out", "out", "--resume", "--json")
    pair = [begin(folder, *command, "--jobs", "1") for _ in range(2)]
    printed = [one.communicate() for one in pair]
    assert [one.returncode for one in pair] == [0, 0]
    assert printed[0] == printed[1]
    assert len(results(folder)) == SIZE
    assert same(folder, printed[0][0], undisturbed)


def grid(folder: Path, *allocators: str) -> None:
    """Replace the spec by a grid of allocators, written as TOML."""
    listed = ", ".join(allocators)
    (folder / "spec.toml").write_text(f'trace = "few.jsonl"\n[grid]\nallocator = [{listed}]\n')


def test_a_worker_that_always_dies_is_tried_three_times_and_then_failed(folder) -> None:
    grid(folder, '"plugins:Deadly"', '"paged"')
    code, printed, complaint = sweep(folder, "--continue-on-error", "--json", "--jobs", "2")
    assert code == 1
    assert complaint == "kvsim: error: 1 of 2 configurations failed\n"
    dead, done = json.loads(printed)
    assert (dead["status"], done["status"]) == ("failed", "done")
    assert dead["error"] == "the worker was ended by SIGKILL (out of memory?), 3 times"
    assert (folder / "deaths").read_text() == "xxx"


def test_a_worker_that_dies_once_costs_nothing_but_time(folder) -> None:
    grid(folder, '{name = "plugins:Deadly", lives = 2}', '"paged"')
    code, printed, complaint = sweep(folder, "--json", "--jobs", "1")
    assert (code, complaint) == (0, "")
    revived, plain = json.loads(printed)
    assert (revived["error"], revived["metrics"]) == (None, plain["metrics"])


def test_the_first_failure_ends_a_sweep_and_resuming_tries_it_again(folder) -> None:
    grid(folder, '"plugins:Wrong"', '"paged"', '"radix"')
    code, printed, complaint = sweep(folder, "--jobs", "1")
    assert (code, printed) == (1, "")
    *said, mistake = complaint.splitlines()
    assert said == ["this is not a result"]
    assert mistake.startswith(
        "kvsim: error: configuration 1 (allocator = plugins:Wrong): ValueError: never works (plugins.py:"
    )
    source = (folder / "plugins.py").read_text()
    (folder / "plugins.py").write_text(source.replace('raise ValueError("never', '"', 1))
    (folder / "plugins.py").write_text(source[: source.index("class Wrong")] + "Wrong = Paged\n")
    code, printed, _ = sweep(folder, "--resume", "--json")
    assert code == 0
    assert {row["status"] for row in json.loads(printed)} == {"done"}


def begun(folder: Path) -> bool:
    """Whether a run is being written."""
    return any(folder.glob("out/runs/.*/requests.parquet"))


def enrolled(folder: Path) -> bool:
    """Whether the ledger knows its configurations."""
    path = folder / "out/sweep.sqlite"
    if not path.exists():
        return False
    try:
        with sqlite3.connect(path) as ledger:
            return bool(ledger.execute("SELECT count(*) FROM configurations").fetchone()[0])
    except sqlite3.OperationalError:
        return False


@pytest.mark.parametrize("started", [False, True])
def test_an_interrupt_ends_with_130_and_the_sweep_can_go_on(folder, started) -> None:
    grid(folder, '"plugins:Slow"', '"paged"', '{name = "plugins:Slow", block_size = 32}')
    command = ("-m", "kvsim", "sweep", "spec.toml", "--out", "out", "--jobs", "2", "--keep-runs")
    running = begin(folder, *command)
    until = begun if started else enrolled
    while not until(folder):
        assert running.poll() is None
        time.sleep(0.01)
    os.killpg(running.pid, signal.SIGINT)
    printed, complaint = running.communicate()
    assert printed == ""
    assert complaint == (
        "kvsim: note: --resume goes on with the sweep in out\nkvsim: error: interrupted\n"
    )
    assert running.returncode == 130
    wait_until_alone(folder)
    assert not list(folder.glob("out/runs/.*"))
    with sqlite3.connect(folder / "out/sweep.sqlite") as ledger:
        assert not ledger.execute("SELECT * FROM configurations WHERE status = 'leased'").fetchall()
    (folder / "go").touch()
    code, printed, _ = sweep(folder, "--resume", "--json")
    assert code == 0
    assert [row["status"] for row in json.loads(printed)] == ["done"] * 3
