"""What a calibration measures: one module a family of operators."""

from __future__ import annotations

from .attention import attentions
from .elementwise import elementwise
from .gemm import gemms
from .machine import machine
from .moe import moes
from .series import Source

SOURCES: tuple[Source, ...] = (machine, elementwise, attentions, moes, gemms)
"""Families in the order in which they are measured."""

__all__ = ["SOURCES"]
