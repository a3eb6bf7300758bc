"""What the tokens of a sequence are, so that a tree finds who has the same: by the page, or by the run."""

from __future__ import annotations

from array import array
from collections.abc import Hashable
from typing import NamedTuple

from kvsim.core import Request, packed


class Content(NamedTuple):
    """What the tokens of a sequence are, from its start; generated tokens are its owner's alone."""

    ids: array[int]
    """Names of the prompt's first tokens, ``width`` tokens each."""
    width: int
    shared: int
    """Tokens that the ids describe; those after them are unlike any other request's."""
    owner: int

    def page(self, start: int, size: int) -> Hashable:
        """Name of the page at ``start`` among pages that follow the same tokens."""
        if start + size > self.shared:
            return (self.owner,)
        first, last = start // self.width, (start + size - 1) // self.width
        name = self.ids[first] if first == last else tuple(self.ids[first : last + 1])
        return name if start else (self.width, name)

    def agree(self, other: Content, start: int, end: int) -> int:
        """Where, from ``start`` on, the two first differ; ``end`` if not before it."""
        if self.owner == other.owner:
            return end
        end = min(end, self.shared, other.shared)
        first, last = start // self.width, -(-end // self.width)
        if self.ids[first:last] == other.ids[first:last]:
            return end
        return next(i for i in range(first, last) if self.ids[i] != other.ids[i]) * self.width


def content_of(request: Request) -> Content:
    """The content of a request's tokens."""
    ids = packed(request.hash_ids)
    described = min(len(ids) * request.hash_block, request.prompt_tokens)
    return Content(ids, request.hash_block, described, request.row)
