"""The parts of a KV pool, and the latencies, as all reports call them."""

from __future__ import annotations

from typing import NamedTuple

LATENCIES = (
    ("TTFT", "ttft"),
    ("TPOT", "tpot"),
    ("ITL", "itl"),
    ("E2E", "e2el"),
    ("queue", "queue_time"),
)


class Part(NamedTuple):
    """How a part of the KV pool is called and drawn."""

    key: str
    label: str
    glyph: str
    """Tells it apart without colour."""
    plain: str
    """The glyph on a console that has only ASCII."""
    style: str


PARTS = (
    Part("used", "used", "█", "#", "blue"),
    Part("internal_fragmentation", "internal fragmentation", "▓", "x", "red"),
    Part("reserved", "reserved", "▒", "=", "yellow"),
    Part("external_fragmentation", "external fragmentation", "░", "/", "magenta"),
    Part("cached", "cached", "▪", "o", "cyan"),
    Part("free", "free", "·", ".", "dim"),
)
