"""Numbers as people read them."""

from __future__ import annotations

ABSENT = "–"


def number(value: object) -> float | None:
    """A number of a summary; None for anything else, which is how a partial run shows."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value)


def duration(value: object) -> str:
    """Seconds with the unit that suits them."""
    seconds = number(value)
    if seconds is None:
        return ABSENT
    for size, unit in ((3600.0, "h"), (60.0, "min"), (1.0, "s"), (1e-3, "ms"), (1e-6, "µs")):
        if abs(seconds) >= size * (2 if size > 1 else 1):
            return f"{seconds / size:,.3g} {unit}"
    return "0 s" if not seconds else f"{seconds:.3g} s"


def brief(milliseconds: object) -> str:
    """Milliseconds with the unit that suits them, short enough for a card."""
    found = number(milliseconds)
    if found is None:
        return ABSENT
    value, unit = (found, "ms") if found < 1e3 else (found / 1e3, "s")
    return f"{value:,.0f} {unit}" if value >= 10 else f"{value:.1f} {unit}"


def percent(value: object, digits: int = 1) -> str:
    """A share."""
    found = number(value)
    return ABSENT if found is None else f"{found:.{digits}%}"


def quantity(value: object, unit: str = "") -> str:
    """An amount, in thousands, millions ... from ten thousand on."""
    found = number(value)
    if found is None:
        return ABSENT
    for size, prefix in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(found) >= size:
            return f"{found / (1e3 if prefix == 'k' else size):,.3g} {prefix}{unit}"
    text = f"{found:,.0f}" if abs(found) >= 100 or found == int(found) else f"{found:,.3g}"
    return f"{text} {unit}".rstrip()


def size(value: object) -> str:
    """Bytes, decimal."""
    found = number(value)
    if found is None:
        return ABSENT
    for unit, prefix in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if abs(found) >= unit:
            return f"{found / unit:,.3g} {prefix}"
    return f"{found:,.0f} B"


def dollars(value: object) -> str:
    """An amount of money, to the cent below a thousand and finer below a dollar."""
    found = number(value)
    if found is None:
        return ABSENT
    digits = 0 if abs(found) >= 1000 else 2 if abs(found) >= 1 else 3
    return f"${found:,.{digits}f}"
