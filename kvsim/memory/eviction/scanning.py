"""Going through single blocks: for policies that know a faster way than the queue's."""

from __future__ import annotations

from collections.abc import Sequence as Seq
from dataclasses import dataclass
from typing import Protocol, runtime_checkable


@dataclass(frozen=True, slots=True)
class Blocks:
    """The blocks that a trace accesses, one after the other."""

    accesses: Seq[int]
    """Which block: numbers below ``distinct``."""
    depth: Seq[int]
    """Of each block, how many precede it in its prompt."""

    @property
    def distinct(self) -> int:
        """How many different blocks there are."""
        return len(self.depth)


@dataclass(frozen=True, slots=True)
class Runs:
    """The same in runs: blocks that are always accessed together, one after the other."""

    accesses: Seq[int]
    """Which run: numbers below ``distinct``."""
    sizes: Seq[int]
    """Of each access, the blocks of its run."""
    distinct: int


@runtime_checkable
class RunScanning(Protocol):
    """A policy under which the blocks of a run hit together or not at all."""

    def scan_runs(self, trace: Runs, capacity: int) -> bytearray:
        """For each access 1 if a cache of ``capacity`` blocks hits, else 0."""
        ...


@runtime_checkable
class Scanning(Protocol):
    """A policy that decides about equal blocks, accessed one by one, faster than its queue does."""

    def scan(self, trace: Blocks, capacity: int) -> bytearray:
        """For each access 1 if a cache of ``capacity`` blocks hits, else 0."""
        ...
