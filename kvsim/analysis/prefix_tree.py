"""The prefixes that requests share, as a tree with how often each was asked for and found."""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Sequence as Seq
from typing import NamedTuple


class Asked(NamedTuple):
    """What one request asked of a prefix cache."""

    ids: Seq[int]
    """Names of its prompt's blocks, ``width`` tokens each."""
    width: int
    hit: int
    """Tokens that were found."""


class Branch(NamedTuple):
    """Blocks that follow one another in all prompts that have the first of them."""

    parent: int | None
    """Place in the list; None at the start of prompts."""
    tokens: int
    requests: int
    hits: int
    """Tokens found there by all requests together."""


class _Node:
    __slots__ = ("children", "hits", "requests", "tokens")

    def __init__(self) -> None:
        self.children: dict[int, _Node] = {}
        self.tokens = self.requests = self.hits = 0


def prefix_tree(asked: Iterable[Asked], *, most: int = 300) -> list[Branch]:
    """The tree of what was asked; a parent comes before its children.

    At most ``most`` branches: those that most requests went through, then the longest.
    """
    root = _Node()
    for each in asked:
        _add(root, each)
    branches: list[Branch] = []
    waiting = [(child, None) for child in root.children.values()]
    found: list[tuple[_Node, int | None]] = list(waiting)
    while found and len(branches) < most:
        found.sort(key=lambda pair: (pair[0].requests, pair[0].tokens))
        node, parent = found.pop()
        node = _merged(node)
        place = len(branches)
        branches.append(Branch(parent, node.tokens, node.requests, node.hits))
        found += [(child, place) for child in node.children.values()]
    return branches


def _add(root: _Node, asked: Asked) -> None:
    node, left = root, asked.hit
    for name in asked.ids:
        node = node.children.setdefault(name, _Node())
        node.requests += 1
        node.tokens = asked.width
        node.hits += min(asked.width, left)
        left -= min(asked.width, left)


def _merged(node: _Node) -> _Node:
    """A node with those that only ever follow it."""
    whole = _Node()
    whole.requests = node.requests
    while True:
        whole.tokens += node.tokens
        whole.hits += node.hits
        whole.children = node.children
        only = next(iter(node.children.values()), None)
        if only is None or len(node.children) > 1 or only.requests != node.requests:
            return whole
        node = only
