"""Which trace and which model: asked on several pages."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import TYPE_CHECKING

import streamlit as st

from kvsim.catalog import model_names
from kvsim.scenario import Scenario

from .. import state
from ..samples import SAMPLES
from ..workspace import UPLOADS, Desk, scratch

if TYPE_CHECKING:
    from streamlit.runtime.uploaded_file_manager import UploadedFile

OWN = "own"
SUFFIXES = ("jsonl", "json", "csv", "gz", "parquet")


def chosen_trace(desk: Desk, default: str = "chat") -> Path | None:
    """A sample, or a file from the user."""
    say = desk.say
    which = state.pick(
        say("replay.trace"),
        "trace",
        (*SAMPLES, OWN),
        default=default,
        shown=lambda name: say(f"trace.{name}"),
    )
    if which != OWN:
        return desk.trace(which)
    given = st.file_uploader(say("replay.upload"), type=list(SUFFIXES))
    return None if given is None else kept(given)


def kept(given: UploadedFile) -> Path:
    """An uploaded file, under a name that says what it holds and leads nowhere."""
    content = given.getvalue()
    stem = re.sub(r"[^A-Za-z0-9._-]", "_", given.name)[-60:].lstrip(".")
    path = scratch() / UPLOADS / f"{hashlib.sha256(content).hexdigest()[:12]}-{stem}"
    if not path.exists():
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content)
    return path


@st.cache_data(show_spinner=False)
def models() -> list[str]:
    """Models of the catalog, the default first."""
    return [Scenario().model, *model_names()]
