"""What a calibration measures: one module a family of operators."""

from __future__ import annotations

from .attention import decodes, prompts
from .elementwise import elementwise
from .gemm import few_rows, many_rows
from .machine import machine
from .moe import moes
from .series import Source

SOURCES: tuple[Source, ...] = (machine, elementwise, decodes, few_rows, moes, prompts, many_rows)
"""Families in the order in which they are measured: what leaves the card cool comes first."""

__all__ = ["SOURCES"]
