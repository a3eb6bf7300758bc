"""How a number is shown to a person. One form for each kind of quantity, in text and on axes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

Form = Literal[
    "text", "count", "number", "dollars", "cents", "share", "fine share", "time", "ms", "times"
]
ABSENT = "–"


def shown(value: object, form: Form) -> str:
    """A value as its form has it; a dash for none."""
    if value is None:
        return ABSENT
    if isinstance(value, bool):
        return "yes" if value else "no"
    if not isinstance(value, int | float):
        return str(value)
    return FORMS[form](value)


def number(value: float) -> str:
    """Three or more significant digits."""
    if abs(value) >= 1e9:
        return f"{value / 1e9:,.4g} G"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:,.3g}"


def dollars(value: float) -> str:
    """Whole dollars."""
    return f"-${-value:,.0f}" if value < 0 else f"${value:,.0f}"


def cents(value: float) -> str:
    """Dollars and cents; more digits below ten cents."""
    return f"${value:,.2f}" if abs(value) >= 0.1 or not value else f"${value:.2g}"


def share(value: float) -> str:
    """A percentage; only what is all is 100 %."""
    return "100%" if value == 1 else f"{min(value, 0.999) if value < 1 else value:.1%}"


def fine_share(value: float) -> str:
    """A percentage with two decimals; only what is all is 100 %."""
    return "100%" if value == 1 else f"{min(value, 0.9999) if value < 1 else value:.2%}"


def time(seconds: float) -> str:
    """A time with the unit that suits it."""
    for size, unit in ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs")):
        if seconds >= size:
            return f"{_digits(seconds / size)} {unit}"
    return f"{seconds:.3g} s"


def milliseconds(value: float) -> str:
    """A time whose unit stands elsewhere."""
    return f"{value:,.0f}" if value >= 100 else f"{value:,.1f}"


def _digits(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


SPELLED = {
    "TTFT": "time to first token",
    "TPOT": "time per output token",
    "E2EL": "end-to-end time",
    "<=": "≤",
}


def plain(text: str) -> str:
    """An objective without abbreviations."""
    for short, long in SPELLED.items():
        text = text.replace(short, long)
    return text


FORMS: dict[Form, Callable[[float], str]] = {
    "text": str,
    "count": lambda value: f"{value:,.0f}",
    "number": number,
    "dollars": dollars,
    "cents": cents,
    "share": share,
    "fine share": fine_share,
    "time": time,
    "ms": milliseconds,
    "times": lambda value: f"{value:.1f}×",
}
