"""Run folders: complete or absent, the same bytes every time, and clear about what is wrong."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from kvsim.errors import ConfigError
from kvsim.runs import FILES, MANIFEST, REQUESTS, SAMPLES, SUMMARY, Recording, load_run, run_path
from kvsim.simulation.recorder import Recorder
from kvsim.tables import NUMBERS, SAMPLE_COLUMNS
from tests.recorded import DEPLOYMENT, SLOTS, manifest, record, served

REQUESTS_OF_A_RUN = [served(row, 2.0 * row, cached=row) for row in range(40)]


def write(out: Path, *, overwrite: bool = False) -> Path:
    record(*REQUESTS_OF_A_RUN, out=out, overwrite=overwrite, replicas=2, rejected=3)
    return out


def everything_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_run_is_read_back_as_it_was_recorded(tmp_path: Path) -> None:
    kept = record(*REQUESTS_OF_A_RUN, replicas=2, rejected=3)
    found = load_run(write(tmp_path / "a"))
    assert found.name == "a"
    assert found.summary == kept.summary
    assert found.manifest["scenario_hash"] == "0" * 64
    for name in NUMBERS:
        np.testing.assert_array_equal(getattr(found.requests, name), getattr(kept.requests, name))
    assert found.requests.id == kept.requests.id
    assert found.requests.rejected == kept.requests.rejected
    for name in SAMPLE_COLUMNS:
        np.testing.assert_array_equal(getattr(found.samples, name), getattr(kept.samples, name))


def test_the_same_run_is_the_same_bytes_apart_from_the_host(tmp_path: Path) -> None:
    one, other = write(tmp_path / "a"), write(tmp_path / "b")
    for name in (SUMMARY, REQUESTS, SAMPLES):
        assert (one / name).read_bytes() == (other / name).read_bytes()
    manifests = [json.loads((run / MANIFEST).read_text()) for run in (one, other)]
    assert all(found.pop("host")["cpus"] for found in manifests)
    assert manifests[0] == manifests[1]


@pytest.mark.parametrize("interruption", [KeyboardInterrupt, RuntimeError])
def test_an_interrupted_run_leaves_nothing(
    tmp_path: Path, interruption: type[BaseException]
) -> None:
    def interrupted(recording: Recording) -> None:
        recorder = Recorder(1, SLOTS, recording)
        recorder.finished(REQUESTS_OF_A_RUN[0], 0)
        recorder.close()
        raise interruption

    with pytest.raises(interruption), Recording(tmp_path / "a") as recording:
        interrupted(recording)
    assert everything_in(tmp_path) == []


def test_an_interrupted_overwrite_leaves_the_run_before(tmp_path: Path) -> None:
    before = (write(tmp_path / "a") / SUMMARY).read_bytes()
    with pytest.raises(KeyboardInterrupt), Recording(tmp_path / "a", overwrite=True):
        raise KeyboardInterrupt
    assert everything_in(tmp_path) == ["a"]
    assert (tmp_path / "a" / SUMMARY).read_bytes() == before


def test_a_run_appears_only_when_it_is_complete(tmp_path: Path) -> None:
    out = tmp_path / "deep" / "a"
    with Recording(out) as recording:
        recorder = Recorder(1, SLOTS, recording)
        recorder.finished(REQUESTS_OF_A_RUN[0], 0)
        engine = recorder.close()
        assert not out.exists()
        assert all(name.startswith(".") for name in everything_in(out.parent))
        recording.complete(manifest(), engine, DEPLOYMENT)
    assert everything_in(out.parent) == ["a"]
    assert everything_in(out) == sorted(FILES)


def test_a_run_is_replaced_only_on_request(tmp_path: Path) -> None:
    write(tmp_path / "a")
    with pytest.raises(ConfigError, match="holds a run already"):
        write(tmp_path / "a")
    (tmp_path / "a" / "plots").mkdir()
    write(tmp_path / "a", overwrite=True)
    assert everything_in(tmp_path / "a") == sorted(FILES)
    assert everything_in(tmp_path) == ["a"]


def test_an_empty_folder_becomes_the_run(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    assert load_run(write(tmp_path / "a")).summary["completed"] == 40


@pytest.mark.parametrize("overwrite", [False, True])
def test_what_is_not_a_run_is_never_touched(tmp_path: Path, overwrite: bool) -> None:
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "thesis.tex").write_text("years of work")
    (tmp_path / "file").write_text("x")
    for name, reason in [("thesis", "not a run"), ("file", "not a folder")]:
        with pytest.raises(ConfigError, match=reason):
            write(tmp_path / name, overwrite=overwrite)
    with pytest.raises(ConfigError, match="must name a folder"):
        write(tmp_path / "..", overwrite=overwrite)
    assert (tmp_path / "thesis" / "thesis.tex").read_text() == "years of work"


def test_a_place_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(ConfigError, match=r"file.*cannot be written"):
        write(tmp_path / "file" / "a")


@pytest.mark.parametrize("name", ["../a", "a/b", "", ".", "..", "/etc", ".hidden", "a\\b", "a\n"])
def test_a_run_name_cannot_lead_elsewhere(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError, match="run name"):
        run_path(tmp_path, name)
    assert run_path(tmp_path, "2024-05_paged.1") == tmp_path / "2024-05_paged.1"


def damaged(run: Path, name: str, content: str | None) -> Path:
    if content is None:
        (run / name).unlink()
    else:
        (run / name).write_text(content)
    return run


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        (MANIFEST, None, "not a complete run: manifest.json missing"),
        (REQUESTS, None, "not a complete run: requests.parquet missing"),
        (MANIFEST, '{"schema_version": 1, "sce', "cannot be read"),
        (MANIFEST, "[]", "holds list, not an object"),
        (MANIFEST, '{"schema_version": 99}', "schema_version 99; this kvsim reads 3"),
        (SUMMARY, "", "cannot be read"),
        (SUMMARY, '{"completed": [1]}', "completed is"),
    ],
)
def test_a_damaged_run_is_refused_with_the_reason(
    tmp_path: Path, name: str, content: str | None, message: str
) -> None:
    run = damaged(write(tmp_path / "a"), name, content)
    with pytest.raises(ConfigError, match=message) as refusal:
        load_run(run)
    assert "\n" not in str(refusal.value)


def test_a_missing_folder_and_a_file_are_no_runs(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="does not exist"):
        load_run(tmp_path / "nothing")
    (tmp_path / "file").write_text("x")
    with pytest.raises(ConfigError, match="is not a folder"):
        load_run(tmp_path / "file")


def test_a_damaged_table_is_refused_when_it_is_read(tmp_path: Path) -> None:
    run = write(tmp_path / "a")
    (run / REQUESTS).write_bytes((run / REQUESTS).read_bytes()[:500])
    (run / SAMPLES).write_bytes((write(tmp_path / "b") / REQUESTS).read_bytes())
    found = load_run(run)
    with pytest.raises(ConfigError, match=r"requests\.parquet: cannot be read"):
        _ = found.requests
    with pytest.raises(ConfigError, match=r"samples\.parquet: has columns row, replica"):
        _ = found.samples


def test_a_run_that_kept_only_its_summary_says_so() -> None:
    with Recording() as recording:
        recorder = Recorder(1, SLOTS, recording)
        recorder.finished(REQUESTS_OF_A_RUN[0], 0)
        result = recording.complete(manifest(), recorder.close(), DEPLOYMENT)
    with pytest.raises(ConfigError, match="kept only its summary"):
        _ = result.requests
