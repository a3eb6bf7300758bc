"""The folders that the pages work in and what they read there, kept between visits."""

from __future__ import annotations

import os
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import streamlit as st
from streamlit.navigation.page import StreamlitPage

from kvsim.analysis.digest import Digest, digest
from kvsim.runs import REQUESTS, RunResult
from kvsim.tables import SampleTable

from . import store
from .launch import RUNS_VARIABLE
from .samples import sample_runs, sample_trace
from .text import Words, plain

UPLOADS = "uploads"


class Desk(NamedTuple):
    """What every page is given."""

    say: Words
    runs: Path
    """The folder of runs."""
    shelf: store.Shelf
    links: dict[str, StreamlitPage]
    """Pages by name, for links to them."""

    def trace(self, name: str) -> Path:
        """The file of a sample trace."""
        return sample_trace(name, scratch() / "traces")

    def told(self, error: Exception) -> str:
        """What went wrong, with places as they are called here: nobody learns where the folders lie."""
        text = str(error)
        for place in (self.runs, scratch() / UPLOADS, scratch()):
            text = text.replace(f"{place}/", "")
        return plain(text)


@st.cache_resource(show_spinner=False)
def folder() -> TemporaryDirectory[str]:
    """A folder that goes when the server does."""
    return TemporaryDirectory(prefix="kvsim-dashboard-")


def scratch() -> Path:
    """Where samples and uploads are kept."""
    return Path(folder().name)


def runs_folder() -> Path:
    """The folder that was named when the server was started, else one with replayed samples."""
    given = os.environ.get(RUNS_VARIABLE)
    if given:
        return Path(given)
    return Path(sampled())


@st.cache_resource(show_spinner=False)
def sampled() -> str:
    """A folder with runs of the sample trace."""
    runs = scratch() / "runs"
    sample_runs(scratch() / "traces", runs)
    return str(runs)


def open_shelf(root: Path) -> store.Shelf:
    """What lies in the folder of runs now."""
    return shelved(tuple(store.scan(root)))


@st.cache_resource(max_entries=4, show_spinner=False)
def shelved(found: tuple[store.Found, ...]) -> store.Shelf:
    """What was found, read."""
    return store.read(found)


def digest_of(run: RunResult) -> Digest:
    """The digest of a run's requests; ConfigError if it kept none or they cannot be read."""
    return digested(run, *place_of(run))


def samples_of(run: RunResult) -> SampleTable:
    """The samples of a run, likewise."""
    return sampled_states(run, *place_of(run))


def place_of(run: RunResult) -> tuple[str, int]:
    """Where its tables are, and when they were written."""
    if run.path is None:
        return run.name, 0
    return str(run.path), (run.path / REQUESTS).stat().st_mtime_ns


@st.cache_resource(max_entries=256, show_spinner=False)
def digested(_run: RunResult, place: str, stamp: int) -> Digest:
    """Read anew, so that a large table does not stay in memory."""
    return digest(fresh(_run).requests)


@st.cache_resource(max_entries=64, show_spinner=False)
def sampled_states(_run: RunResult, place: str, stamp: int) -> SampleTable:
    """Samples are few: they stay."""
    return fresh(_run).samples


def fresh(run: RunResult) -> RunResult:
    """The same run with nothing read."""
    return RunResult(run.name, run.manifest, run.summary, run.path)
