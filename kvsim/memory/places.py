"""What the prefixes of sequences have in common, and which pages of each group of layers hold them.

A tree of contents, of which pages come and go: unlike :class:`kvsim.memory.prefix.PrefixTree` it says
nothing of what is cached, since layers with a window keep the end of a prefix without its start.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from kvsim.memory.extents import Content, Extent
from kvsim.memory.pages import Run

if TYPE_CHECKING:
    from kvsim.memory.layer_tables import Table

WHOLE = 1 << 62
"""Tokens of an iteration without limit, or of a block that never ends."""


class Place(Extent):
    """A run of blocks of one content behind one prefix, and the pages by group that hold some of them."""

    __slots__ = ("pins", "runs")

    def __init__(self, start: int, end: int) -> None:
        super().__init__(start, end, cached=True)
        self.pins = 0
        """Sequences whose content ends here."""
        self.runs: dict[int, list[Run]] = {}
        """By group, in the order in which others could hit them."""


class Piece(NamedTuple):
    """Some blocks of a run."""

    run: Run
    start: int
    end: int


Path = list[tuple[Place, int]]
"""Places from the start of a prompt on, each with the block up to which it agrees with the prompt."""


class Places:
    """The tree of contents, in blocks of the smallest group; a block of group i is ``widths[i]`` of these.

    A larger block is known by the last of those that it covers.
    """

    def __init__(self, widths: list[int]) -> None:
        self._widths = widths
        self.root = Place(0, 0)

    def walk(self, content: Content) -> Path:
        """The places along a content, as far as they are known."""
        path: Path = []
        at, place = 0, self.root
        while place.children:
            child = place.children.get(content.key(at))
            if child is None:
                break
            at = content.common(child)
            assert isinstance(child, Place)
            path.append((child, at))
            if at < child.end:
                break
            place = child
        return path

    def hold(self, content: Content, upto: int) -> Place:
        """The place at which the first ``upto`` blocks of a content end; it stays until let go."""
        place = self._reach(content, upto)
        place.pins += 1
        return place

    def let_go(self, place: Place) -> None:
        """A sequence less needs the place."""
        place.pins -= 1
        self._prune(place)

    def _reach(self, content: Content, upto: int) -> Place:
        at, place = 0, self.root
        while at < upto:
            if at < place.end:
                place = self._split(place, at)
            key = content.key(at)
            child = place.children.get(key)
            if child is None:
                end = content.stretch(at) or WHOLE
                child = Place(at, end)
                child.content = content.part(at, end)
                place.adopt(child, key)
            assert isinstance(child, Place)
            place, at = child, content.common(child)
        return place

    def _split(self, place: Place, at: int) -> Place:
        """Cut a place before block ``at``; returns the front, the place itself becomes the back."""
        front = Place(place.start, at)
        assert place.content is not None
        assert place.parent is not None
        front.content = place.content
        place.parent.adopt(front, place.key)
        place.start = at
        front.adopt(place, place.content.key(at))
        for group, runs in list(place.runs.items()):
            edge = at // self._widths[group]
            _keep(front.runs, group, [run for run in runs if run.start < edge])
            _keep(place.runs, group, [run for run in runs if run.end > edge])
        front.pins += 1
        self._prune(place)
        front.pins -= 1
        return front

    def cover(self, path: Path, group: int) -> list[tuple[int, int]]:
        """Stretches of blocks of the group that are there, in order and apart."""
        found = sorted(
            (max(run.start, start), min(run.end, end))
            for place, at in path
            for start, end in [self._span(place, at, group)]
            for run in place.runs.get(group, ())
        )
        joined: list[tuple[int, int]] = []
        for start, end in found:
            if start >= end:
                continue
            if joined and start <= joined[-1][1]:
                joined[-1] = joined[-1][0], max(end, joined[-1][1])
            else:
                joined.append((start, end))
        return joined

    def pieces(self, path: Path, table: Table) -> list[Piece]:
        """The pages of a table's blocks, all of which are there; of several the first is hit."""
        found: list[Piece] = []
        for place, at in path:
            first, last = self._span(place, at, table.index)
            first, last = max(first, table.first), min(last, table.end)
            while first < last:
                piece = self._first(place.runs[table.index], first, last)
                found.append(piece)
                first = piece.end
        return found

    def _first(self, runs: list[Run], start: int, end: int) -> Piece:
        for run in runs:
            if run.start <= start < run.end:
                return Piece(run, start, min(end, run.end))
            if start < run.start < min(run.end, end):
                end = run.start
        raise AssertionError("a block that is hit has a page")

    def _span(self, place: Place, at: int, group: int) -> tuple[int, int]:
        width = self._widths[group]
        return place.start // width, at // width

    def _along(self, run: Run) -> Iterator[Place]:
        """The places that a run may lie in, the last first."""
        width, place = self._widths[run.group], run.place
        while place is not None and place.end // width > run.start:
            before = place.parent
            assert isinstance(place, Place)
            yield place
            place = before

    def add(self, run: Run) -> None:
        """Let others hit a run that lies in the places up to its own."""
        width = self._widths[run.group]
        for place in self._along(run):
            if place.start // width < run.end:
                place.runs.setdefault(run.group, []).append(run)

    def cut(self, front: Run, back: Run) -> None:
        """``front`` was cut off ``back``, which may be hit."""
        for place in self._along(front):
            runs = place.runs.get(back.group, [])
            if back in runs:
                at, (first, last) = runs.index(back), self._span(place, place.end, back.group)
                parts = (run for run in (front, back) if run.start < last and run.end > first)
                runs[at : at + 1] = parts
                _keep(place.runs, back.group, runs)
                self._prune(place)

    def drop(self, run: Run) -> None:
        """Nobody hits the run any more."""
        for place in self._along(run):
            runs = place.runs.get(run.group, [])
            if run in runs:
                runs.remove(run)
                _keep(place.runs, run.group, runs)
                self._prune(place)

    def _prune(self, place: Place) -> None:
        """Forget a place that nobody needs, and those before it that then lead nowhere."""
        while place.parent is not None and not (place.runs or place.children or place.pins):
            parent = place.parent
            assert isinstance(parent, Place)
            if parent.children.get(place.key) is place:
                del parent.children[place.key]
            place = parent

    def check(self, runs: set[Extent]) -> None:
        """All runs that can be hit are where their content is, and every place has a use."""
        places = [self.root]
        for place in places:
            places += [child for child in place.children.values() if isinstance(child, Place)]
            assert place is self.root or place.runs or place.children or place.pins
        known = {run for place in places for same in place.runs.values() for run in same}
        assert known == {run for run in runs if isinstance(run, Run) and run.cached}


def _keep(runs: dict[int, list[Run]], group: int, kept: list[Run]) -> None:
    if kept:
        runs[group] = kept
    else:
        runs.pop(group, None)
