"""SGLang's radix tree: which prefixes are cached, who holds them, and what is evicted first.

An edge is a run of tokens, kept as two offsets into the ids of a prompt that has them, so that work
is by the run and never by the token. Runs begin and end on page boundaries.

Source: Zheng et al., SGLang (arXiv:2312.07104), section 3; SGLang 0.5.23 ``mem_cache/radix_cache.py``.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from typing import NamedTuple

from kvsim.core import packed
from kvsim.memory.eviction import (
    Entry,
    EvictionPolicy,
    EvictionQueue,
    Expiring,
    Use,
    queue_of,
)
from kvsim.memory.eviction.policy import ByPriority
from kvsim.memory.radix_content import Content

NO_USE = Use(0, 0, 0)


class Node(Entry):
    """A run of cached tokens, ``start`` to ``end`` counted from the start of the prompt."""

    __slots__ = ("children", "content", "locks", "parent")

    def __init__(
        self,
        content: Content,
        start: int,
        end: int,
        key: Hashable,
        parent: Node | None,
        use: Use = NO_USE,
    ) -> None:
        super().__init__(start, end, key, use)
        self.content = content
        """Of some sequence whose tokens these are; the same list of ids for many nodes."""
        self.parent = parent
        """Where it hangs, under the name of its first page."""
        self.children: dict[Hashable, Node] = {}
        self.locks = 0
        """Running sequences whose prefix goes through it."""


class Prefix(NamedTuple):
    """A cached prefix: the path to ``node``, of which it may use only the first tokens."""

    node: Node
    tokens: int


class RadixTree:
    """Cached prefixes, in pages of ``page_size`` tokens; whole leaves are evicted, unlocked ones."""

    def __init__(self, page_size: int, policy: EvictionPolicy | EvictionQueue) -> None:
        self.page_size = page_size
        self.root = Node(Content(packed(None), 1, 0, -1), 0, 0, None, None)
        self.root.locks = 1
        self.evictable = 0
        """Tokens that no running sequence holds."""
        self.protected = 0
        """Tokens that running sequences hold."""
        self._uses = 0
        self._arrival = self._prompt = 0
        """Of the request that uses the tree now."""
        self._queue = queue_of(policy)
        self._ranked = isinstance(self._queue, ByPriority)
        self.ages = self._queue if isinstance(self._queue, Expiring) else None
        """The policy, if entries also leave because of their age."""
        self._nodes = 0

    def serve(self, arrival: int, prompt: int) -> None:
        """A request of ``prompt`` known tokens that arrived at ``arrival`` uses the tree from now on."""
        self._prompt = prompt
        if arrival > self._arrival:
            self._arrival = arrival

    def fresh(self, prefix: Prefix, arrival: int) -> Prefix:
        """The part of the prefix that is not too old at ``arrival``; changes nothing."""
        ages, (node, tokens) = self.ages, prefix
        if ages is None:
            return prefix
        while not node.locks and ages.outlived(node, arrival):
            assert node.parent is not None
            node, tokens = node.parent, node.start
        return Prefix(node, tokens)

    def expire(self) -> None:
        """Drop the leaves that are too old."""
        ages = self.ages
        while ages is not None and (leaf := ages.expired(self._arrival)) is not None:
            assert isinstance(leaf, Node)
            self._drop(leaf)

    @property
    def tokens(self) -> int:
        """Cached tokens, held or not."""
        return self.evictable + self.protected

    def find(self, content: Content, tokens: int, node: Node | None = None) -> Prefix:
        """The longest cached prefix, in full pages, of the first ``tokens`` tokens; changes nothing.

        ``node``: one that the content is known to go through.
        """
        page, node = self.page_size, node or self.root
        at, end = node.end, tokens - tokens % page
        while at < end and (child := node.children.get(content.page(at, page))) is not None:
            at = content.agree(child.content, at, min(child.end, end))
            at -= at % page
            node = child
            if at < child.end:
                break
        return Prefix(node, at)

    def use(self, prefix: Prefix) -> Node:
        """Note a use of the prefix; returns its last node, split off if the prefix ends inside one.

        All of a node that is used in part counts as used, as SGLang stamps it before it compares.
        """
        self._uses += 1
        use = Use(self._uses, self._arrival, self._prompt)
        node, hit = prefix.node, self._queue.hit
        while node.parent is not None:
            node.touch(use)
            if not self._ranked:
                hit(node)
            node = node.parent
        if self._ranked:  # whose place a use changes only while it is offered, as only leaves are
            hit(prefix.node)
        return self._end(prefix)

    def _end(self, prefix: Prefix) -> Node:
        """The last node of the prefix, which ends where the prefix does."""
        if prefix.tokens == prefix.node.end:
            return prefix.node
        return self._split(prefix.node, prefix.tokens)

    def _stamp(self, node: Node, tokens: int) -> None:
        """The path to a node is part of ``tokens`` tokens that are cached now; that is no hit."""
        self._uses = order = self._uses + 1
        while node.parent is not None:
            node.last_access, node.prompt = order, tokens
            node = node.parent

    def _split(self, node: Node, at: int) -> Node:
        """Cut a node; the front becomes its parent, so that who holds the node holds both."""
        assert node.parent is not None
        front = Node(node.content, node.start, at, node.key, node.parent)
        node.parent.children[node.key] = front
        offered = self._is_evictable_leaf(node)
        if offered:
            self._queue.withdraw(node)
        front.inherit(node)
        front.locks = node.locks
        node.start, node.parent = at, front
        node.key = node.content.page(at, self.page_size)
        front.children[node.key] = node
        if offered:
            self._queue.offer(node)
        self._nodes += 1
        return front

    def insert(self, content: Content, tokens: int, node: Node | None = None) -> Node:
        """Cache the full pages of the first ``tokens`` tokens; returns the node that ends them.

        ``node``: one that the content is known to go through.
        """
        last = self.put(content, tokens, node)
        if self._is_evictable_leaf(last):
            self._queue.offer(last)
        return last

    def put(self, content: Content, tokens: int, node: Node | None = None) -> Node:
        """The same for a caller who locks the node at once."""
        prefix = self.find(content, tokens, node)
        at, end = prefix.tokens, tokens - tokens % self.page_size
        self._stamp(prefix.node, tokens)
        last = self._end(prefix)
        if at == end:
            return last
        key = content.page(at, self.page_size)
        if not last.locks and not last.children:
            self._queue.withdraw(last)
        use = Use(self._uses, self._arrival, tokens)
        leaf = last.children[key] = Node(content, at, end, key, last, use)
        self.evictable += end - at
        self._nodes += 1
        self._queue.insert(leaf)
        return leaf

    def lock(self, node: Node, above: Node | None = None) -> None:
        """Hold the path to ``node`` (from below ``above``, whose path is held already)."""
        above = above or self.root
        while node is not above:
            if not node.locks:
                self._protect(node.end - node.start)
                if not node.children:
                    self._queue.withdraw(node)
            node.locks += 1
            assert node.parent is not None
            node = node.parent

    def unlock(self, node: Node) -> None:
        """Let go of the path to ``node``."""
        last = node
        while node.parent is not None:
            node.locks -= 1
            if not node.locks:
                self._protect(node.start - node.end)
            node = node.parent
        if self._is_evictable_leaf(last):
            self._queue.offer(last)

    def _protect(self, tokens: int) -> None:
        self.evictable -= tokens
        self.protected += tokens

    def unlocked(self, prefix: Prefix) -> int:
        """Tokens of the prefix that nobody holds."""
        node = prefix.node
        while not node.locks:
            assert node.parent is not None
            node = node.parent
        return max(0, prefix.tokens - node.end)

    def evict(self, tokens: int) -> int:
        """Drop unlocked leaves until ``tokens`` are free or none is left; returns what it freed."""
        freed = 0
        while freed < tokens and (leaf := self._queue.victim()) is not None:
            assert isinstance(leaf, Node)
            freed += leaf.end - leaf.start
            self._drop(leaf)
        return freed

    def _drop(self, leaf: Node) -> None:
        assert leaf.parent is not None
        del leaf.parent.children[leaf.key]
        self.evictable -= leaf.end - leaf.start
        self._nodes -= 1
        if self._is_evictable_leaf(leaf.parent):
            self._queue.offer(leaf.parent)

    def _is_evictable_leaf(self, node: Node) -> bool:
        return not node.locks and not node.children

    def __iter__(self) -> Iterator[Node]:
        stack = list(self.root.children.values())
        while stack:
            node = stack.pop()
            yield node
            stack.extend(node.children.values())

    def check(self, held: Iterable[Node]) -> None:
        """Assert that the books balance when running sequences hold the paths to ``held``."""
        locks: dict[Node, int] = {}
        for last in held:
            node = last
            while node.parent is not None:
                locks[node] = locks.get(node, 0) + 1
                node = node.parent
        nodes = list(self)
        for node in nodes:
            self._check_node(node)
            assert node.locks == locks.pop(node, 0)
        assert not locks
        assert self._nodes == len(nodes)
        assert self.protected == sum(n.end - n.start for n in nodes if n.locks)
        assert self.evictable == sum(n.end - n.start for n in nodes if not n.locks)
        assert all((n in self._queue) == self._is_evictable_leaf(n) for n in nodes)

    def _check_node(self, node: Node) -> None:
        assert node.parent is not None
        assert node.parent.end == node.start < node.end
        assert node.end % self.page_size == 0
        assert node.key == node.content.page(node.start, self.page_size)
        assert node.parent.children[node.key] is node
        assert node.parent is self.root or node.parent.last_access >= node.last_access
