"""The pages by name, and the desk that each is given."""

from __future__ import annotations

import importlib
from functools import partial
from pathlib import Path
from typing import NamedTuple

import streamlit as st
from streamlit.navigation.page import StreamlitPage

from . import state
from .text import LANGUAGES, Words
from .views.parts import guarded
from .workspace import Desk, open_shelf, runs_folder


class Listed(NamedTuple):
    """A page of the menu."""

    name: str
    """Of its module in ``views`` and in the address."""
    icon: str


PAGES: dict[str, tuple[Listed, ...]] = {
    "runs": (
        Listed("compare", "compare_arrows"),
        Listed("run", "timeline"),
        Listed("replay", "play_circle"),
    ),
    "memory": (Listed("memory", "grid_view"), Listed("prefix", "account_tree")),
    "plan": (Listed("plan", "savings"), Listed("sizing", "straighten")),
    "evidence": (Listed("calibration", "speed"),),
}
ICON = str(Path(__file__).with_name("icon.svg"))
"""Shown on the browser's tab; the named ones are fetched from elsewhere."""
NAMES = tuple(page.name for found in PAGES.values() for page in found)


def desk() -> Desk:
    """The language that is asked for, and what lies in the folder of runs."""
    with st.sidebar:
        language = state.pick(
            "Language · 语言", "lang", list(LANGUAGES), shown=LANGUAGES.__getitem__
        )
    say = Words(language)
    with st.spinner(say("wait.samples")):
        runs = runs_folder()
    return Desk(say, runs, open_shelf(runs), {})


def menu(given: Desk) -> dict[str, list[StreamlitPage]]:
    """The pages by section, in the reader's language; the desk learns how to link to them."""
    for page in (page for found in PAGES.values() for page in found):
        given.links[page.name] = st.Page(
            partial(show, page.name, given),
            title=given.say(f"{page.name}.nav"),
            icon=f":material/{page.icon}:",
            url_path=page.name,
            default=page.name == NAMES[0],
        )
    return {
        given.say(f"section.{section}"): [given.links[page.name] for page in found]
        for section, found in PAGES.items()
    }


def show(name: str, given: Desk) -> None:
    """A page; its module is loaded when it is first looked at."""
    assert name in NAMES
    module = importlib.import_module(f".views.{name}", __package__)
    guarded(module.page, given)


def alone(name: str) -> None:
    """One page without the menu, for tests of the page."""
    show(name, desk())
