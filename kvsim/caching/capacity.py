"""Capacities of a cache as people write them: ``64GiB``, ``6400blocks``, ``3Mtokens``, ``10%``, ``inf``."""

from __future__ import annotations

import math
import re
from typing import NamedTuple

from kvsim.errors import ConfigError, shown

PREFIXES = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
BINARY = {"ki": 2**10, "mi": 2**20, "gi": 2**30, "ti": 2**40}
WRITTEN = re.compile(
    r"(?P<number>\d+(?:\.\d+)?)\s*(?P<prefix>[kmgt]i?)?(?P<unit>blocks?|tokens?|b|%)?"
)
ACCEPTED = "accepted: a number of blocks, or with a unit as 64GiB, 6400blocks, 3Mtokens, 10%, inf"


class Units(NamedTuple):
    """What capacities are converted with."""

    block_size: int
    """Tokens in a block."""
    distinct_blocks: int
    """Of the whole trace: what 100 % holds."""
    block_bytes: int
    """Bytes of a block's KV."""


class Capacity(NamedTuple):
    """A capacity, as it was written and in blocks."""

    text: str
    blocks: float
    """A whole number, or ``math.inf``."""


def read_capacity(text: str, units: Units) -> Capacity:
    """The whole blocks that a written capacity holds."""
    plain = text.strip().lower()
    if plain == "inf":
        return Capacity("inf", math.inf)
    match = WRITTEN.fullmatch(plain)
    if match is None:
        raise ConfigError(f"--capacities {shown(text)} is not a capacity; {ACCEPTED}")
    prefix = match["prefix"] or ""
    amount = float(match["number"]) * {**PREFIXES, **BINARY}[prefix]
    blocks = int(amount / _per_block(match["unit"] or "blocks", units))
    if match["unit"] == "%" and amount:
        blocks = max(1, blocks)
    if blocks < 1:
        raise ConfigError(f"--capacities {shown(text)} holds no block; accepted: one block or more")
    return Capacity(text.strip(), blocks)


def _per_block(unit: str, units: Units) -> float:
    if unit == "b":
        return units.block_bytes
    if unit == "%":
        return 100 / units.distinct_blocks if units.distinct_blocks else math.inf
    return units.block_size if unit.startswith("token") else 1
