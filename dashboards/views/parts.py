"""What several pages show in the same way."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import pandas as pd
import plotly.graph_objects as go
import streamlit as st

from kvsim.errors import KvsimError

from ..figures.style import CONFIG
from ..shown import ABSENT
from ..workspace import Desk

CARD = 150
"""Pixels of a key figure: five beside the menu on a screen of 1,280."""
Page = Callable[[Desk], None]


def guarded(page: Page, desk: Desk) -> None:
    """Show a page; what the user can mend is said in one line."""
    try:
        page(desk)
    except (KvsimError, OSError) as error:  # a folder can go while it is read
        st.error(desk.say("error.page", reason=desk.told(error)), icon=":material/error:")


def draw(figure: go.Figure, key: str) -> None:
    """Show a figure as wide as there is room."""
    st.plotly_chart(figure, key=f"chart:{key}", config=CONFIG)


def metrics(values: Mapping[str, str]) -> None:
    """Key figures in a row, as many as fit."""
    row = st.container(horizontal=True, gap="small")
    for label, text in values.items():
        row.metric(label, text, border=True, width=CARD)


def listed(rows: Sequence[Mapping[str, object]], formats: Mapping[str, str]) -> None:
    """A table of rows, all of it on the page, with numbers as people write them."""
    columns = {
        name: st.column_config.NumberColumn(format=formats.get(name, "localized"))
        for name in rows[0]
        if any(isinstance(row[name], int | float) for row in rows)
    }
    st.dataframe(
        pd.DataFrame(rows),
        column_config=columns,
        hide_index=True,
        height="content",
        placeholder=ABSENT,
    )


def nothing_to_show(desk: Desk) -> bool:
    """Whether there is no run, which is then said, with what to do about it."""
    tell_problems(desk)
    if desk.shelf.runs:
        return False
    st.info(desk.say("error.no_runs", folder=desk.runs.name), icon=":material/folder_open:")
    return True


def tell_problems(desk: Desk) -> None:
    """Say what in the folder could not be read, and why."""
    problems = desk.shelf.problems
    if problems:
        title = desk.say("error.problems", count=len(problems))
        with st.expander(title, icon=":material/warning:"):
            for name, reason in problems.items():
                st.text(f"{name}: {reason}")


def link(desk: Desk, page: str, label: str, **given: str) -> None:
    """A link to another page with some of its choices made."""
    target = desk.links.get(page)
    if target is not None:
        chosen = {"lang": desk.say.language, **given}
        st.page_link(target, label=label, icon=":material/arrow_forward:", query_params=chosen)
