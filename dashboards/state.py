"""What is chosen on a page, kept in the address so that a link shows the same.

Everything in the address is a plain string from outside: a widget takes it only if it is one of its
options or within its bounds, and falls back to its default otherwise. What was chosen on a page is
remembered while the session lasts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import streamlit as st

LONGEST = 400
"""Characters of a value that are looked at."""


def asked(name: str) -> list[str]:
    """The values of a parameter in the address, else those that were chosen before."""
    texts = st.query_params.get_all(name)
    if not texts:
        texts = st.session_state.get(f"chosen:{name}", [])
    return [text for text in texts if len(text) <= LONGEST]


def keep(name: str, texts: Sequence[str], default: Sequence[str]) -> None:
    """Write a choice into the address, unless it is what one gets without."""
    st.session_state[f"chosen:{name}"] = list(texts)
    if list(texts) == list(default):
        if name in st.query_params:
            del st.query_params[name]
    elif st.query_params.get_all(name) != list(texts):
        st.query_params[name] = list(texts)


def pick(
    label: str,
    name: str,
    options: Sequence[str],
    *,
    default: str | None = None,
    shown: Callable[[str], str] = str,
    widget: Callable[..., object] | None = None,
    help: str | None = None,
) -> str:
    """One of some options."""
    first = default if default is not None and default in options else options[0]
    if st.session_state.get(name) not in options:
        wanted = next(iter(asked(name)), first)
        st.session_state[name] = wanted if wanted in options else first
    with st.container():  # in which options wrap
        chosen = (widget or st.selectbox)(label, options, key=name, format_func=shown, help=help)
    found = str(chosen) if chosen in options else first  # a segmented control can be unset
    keep(name, [found], [first])
    return found


def picks(
    label: str,
    name: str,
    options: Sequence[str],
    *,
    default: Sequence[str],
    shown: Callable[[str], str] = str,
) -> list[str]:
    """Some of some options."""
    before = st.session_state.get(name)
    if before is None or not set(before) <= set(options):
        wanted = [text for text in before or asked(name) if text in options]
        st.session_state[name] = wanted or list(default)
    with st.container():  # in which chips wrap
        chosen = st.multiselect(label, options, key=name, format_func=shown)
    keep(name, chosen, default)
    return list(chosen)


def amount(
    label: str,
    name: str,
    bounds: tuple[float, float],
    default: float,
    step: float,
    *,
    format: str | None = None,
    help: str | None = None,
    widget: Callable[..., float] = st.slider,
) -> float:
    """A number within bounds, by a slider or another widget."""
    low, high = bounds
    if not isinstance(st.session_state.get(name), float):
        st.session_state[name] = within(next(iter(asked(name)), ""), low, high, default)
    st.session_state[name] = min(max(st.session_state[name], low), high)
    found = float(widget(label, low, high, step=step, key=name, format=format, help=help))
    keep(name, [f"{found:.12g}"], [f"{default:.12g}"])
    return found


entered = partial(amount, widget=st.number_input)
"""A number within bounds, by a field."""


def perhaps(label: str, name: str, most: int) -> int | None:
    """A whole number from 0 on, or none, by a field that may stay empty."""
    if name not in st.session_state:
        text = next(iter(asked(name)), "")
        st.session_state[name] = int(text) if text.isdecimal() and int(text) <= most else None
    found = st.number_input(label, 0, most, value=None, step=1, key=name, placeholder="–")
    keep(name, [] if found is None else [str(found)], [])
    return found


def typed(label: str, name: str, *, help: str | None = None) -> str:
    """A short text; whoever uses it checks it."""
    if not isinstance(st.session_state.get(name), str):
        st.session_state[name] = next(iter(asked(name)), "")
    found = st.text_input(label, key=name, max_chars=LONGEST, help=help).strip()
    keep(name, [found], [""])
    return found


def stretch(
    label: str, name: str, low: float, high: float, *, unit: float = 1.0, format: str | None = None
) -> tuple[float, float]:
    """A range of numbers, by a slider with two ends that counts in a unit; the address does not."""
    least, most = low / unit, high / unit
    before = st.session_state.get(name)
    if not isinstance(before, tuple) or not least <= before[0] <= before[1] <= most:
        first, _, last = next(iter(asked(name)), "").partition("..")
        start, end = within(first, low, high, low), within(last, low, high, high)
        st.session_state[name] = (min(start, end) / unit, max(start, end) / unit)
    step = (most - least) / 200
    chosen: Any = st.slider(label, least, most, step=step, key=name, format=format)
    start, end = (float(value) * unit for value in chosen)
    keep(name, [f"{start:.6g}..{end:.6g}"], [f"{low:.6g}..{high:.6g}"])
    return start, end


def within(text: str, low: float, high: float, default: float) -> float:
    """A number from text, if it is one within the bounds."""
    try:
        found = float(text)
    except ValueError:
        return default
    return found if math.isfinite(found) and low <= found <= high else default
