"""The pages of RadixAttention: some in a radix tree of cached prefixes, some a sequence's own, some free."""

from __future__ import annotations

from kvsim.core import NO_MATCH, Match, Sequence
from kvsim.errors import ConfigError
from kvsim.memory.eviction import LRU, MakePolicy
from kvsim.memory.radix_content import Content, content_of
from kvsim.memory.radix_tree import Node, Prefix, RadixTree


class Lease:
    """What one admitted sequence holds: a path of the tree, then pages of its own."""

    __slots__ = ("content", "decoding", "joined", "node", "phase", "tokens")

    def __init__(self, content: Content, node: Node, tokens: int) -> None:
        self.content = content
        self.node = node
        """Last node of the path; the path is locked."""
        self.tokens = tokens
        """Tokens that it has room for; of a decoder, when it joined."""
        self.decoding = False
        self.joined = 0
        """Step at which it joined the decoders."""
        self.phase = 0


class RadixCache:
    """A pool whose pages move into the tree when what they hold can be hit, as in SGLang's cache.

    ``num_slots`` slots in pages of ``page_size``; ``prefix_caching`` off, nothing enters the tree.
    """

    tree: type[RadixTree] = RadixTree

    def __init__(
        self,
        num_slots: int,
        page_size: int,
        *,
        prefix_caching: bool,
        eviction: MakePolicy | None,
    ) -> None:
        if page_size < 1:
            raise ConfigError(f"allocator.page_size is {page_size}; accepted: 1 or more")
        self.page_size = page_size
        self.prefix_caching = prefix_caching
        self.total_slots = num_slots - num_slots % page_size
        self.evictions = 0
        self.saved_slots = 0
        self._tree = self.tree(page_size, LRU() if eviction is None else eviction(self.total_slots))
        self._own = 0
        """Slots that running sequences hold outside the tree."""

    @property
    def held_slots(self) -> int:
        """Slots that running sequences hold; a shared slot counts once."""
        return self._tree.protected + self._own

    def _pages(self, tokens: int) -> int:
        """Slots of the pages that ``tokens`` tokens need."""
        return -(-tokens // self.page_size) * self.page_size

    def _available(self) -> int:
        return self.total_slots - self._tree.protected - self._own

    def match(self, sequence: Sequence) -> Match:
        """The longest cached prefix, in full pages, short of the last token."""
        if not self.prefix_caching:
            return NO_MATCH
        content = content_of(sequence.request)
        prefix = self._tree.find(content, sequence.num_tokens - 1)
        if self._tree.ages is not None:
            prefix = self._tree.fresh(prefix, sequence.arrival)
        return Match(prefix.tokens, (content, prefix))

    def _no_hit(self, sequence: Sequence) -> tuple[Content, Prefix]:
        return content_of(sequence.request), Prefix(self._tree.root, 0)

    def _empty(self, tokens: int) -> int:
        """Empty slots in the last page of ``tokens`` tokens."""
        return -tokens % self.page_size

    def _take(self, slots: int) -> None:
        """Give free slots to running sequences, evicting as many as are short."""
        short = slots - (self.total_slots - self._tree.tokens - self._own)
        if short > 0:
            self.evictions += self._tree.evict(short) // self.page_size
        self._own += slots

    def _duplicates(self, lease: Lease) -> int:
        """Slots of its own that a prompt gives up when it enters the tree: others hold the same."""
        prefix = self._tree.find(lease.content, lease.tokens, lease.node)
        return prefix.tokens - lease.node.end - self._tree.unlocked(prefix)

    def _cache(self, lease: Lease, tokens: int) -> None:
        """Move the first ``tokens`` tokens' full pages into the tree; duplicates become free."""
        end = tokens - tokens % self.page_size
        before = lease.node
        if end <= before.end or not self.prefix_caching:
            return
        self._own -= end - before.end
        lease.node = self._tree.put(lease.content, end, before)
        self._lock(lease.node, before)

    def _lock(self, node: Node, above: Node) -> None:
        """Hold the path to ``node``; what others hold already is saved."""
        held = self._tree.protected
        self._tree.lock(node, above)
        self.saved_slots += node.end - above.end - self._tree.protected + held
