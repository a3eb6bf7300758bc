"""RadixAttention's memory: who gets pages of the pool, and what of them the radix tree keeps."""

from __future__ import annotations

from bisect import bisect_right

from kvsim.core import Match, Sequence, Usage
from kvsim.memory.eviction import MakePolicy
from kvsim.memory.phases import DecodePhases
from kvsim.memory.radix_cache import Lease, RadixCache


class Radix(RadixCache):
    """Pages on demand; prompts enter the tree chunk by chunk, answers when they end.

    The rules are SGLang's: the tokens computed so far are cached after each chunk of a prompt, when
    the prompt is complete and when the sequence ends, in full pages; whoever computed what the tree
    has by then gives up its duplicate; the path of a running sequence is locked; a preempted
    (retracted) sequence's answer is not kept; whole leaves are evicted, only as far as free pages do
    not suffice. A hit is never the whole prompt. One difference: a request that waits does not
    refresh what it would hit before it is admitted.

    Source: SGLang 0.5.23 ``mem_cache/radix_cache.py``, ``managers/schedule_policy.py``.

    ``page_size`` tokens a page; ``prefix_caching``: whether anything is kept (off, sequences have
    only pages of their own); ``eviction``: makes what says which leaf goes first, for a cache of so
    many slots; ``slots_per_sequence``: constant
    state (full windows, recurrent state) that every sequence needs besides its tokens, rounded up to
    pages.
    """

    def __init__(
        self,
        num_slots: int,
        *,
        page_size: int = 1,
        prefix_caching: bool = True,
        eviction: MakePolicy | None = None,
        slots_per_sequence: int = 0,
    ) -> None:
        super().__init__(num_slots, page_size, prefix_caching=prefix_caching, eviction=eviction)
        self._forks = 0
        self._constant = self._pages(slots_per_sequence)
        self._phases = DecodePhases(page_size)
        self._running: set[Lease] = set()
        self._slack = 0
        """Empty slots in last pages, of those that do not decode."""
        self._grown: set[Lease] = set()
        """Decoders that ``grow`` gave a page for the step to come."""
        self._step = 0
        self._growing: tuple[Lease, int] | None = None
        """The prompt whose chunks the next steps compute, and the tokens in each."""

    def fits(self, tokens: int) -> bool:
        """Whether a sequence of ``tokens`` tokens fits when it is alone in the pool."""
        return self._pages(tokens) + self._constant <= self.total_slots

    def fits_group(self, sequence: Sequence, tokens: int) -> bool:
        """Whether ``width`` sequences fit that share the full pages of their prompt, if it is cached."""
        prompt = sequence.request.prompt_tokens
        shared = prompt - prompt % self.page_size if self.prefix_caching else 0
        own = self._pages(tokens) - shared + self._constant
        return shared + sequence.request.width * own <= self.total_slots

    def admit(self, sequence: Sequence, match: Match, tokens: int, *, spare: int = 0) -> bool:
        """Lock the hit and take room for ``tokens`` tokens, if all known tokens would fit."""
        content, prefix = match.handle or self._no_hit(sequence)
        need = self._pages(sequence.num_tokens) - prefix.tokens + self._constant
        if need + spare > self._available() - self._tree.unlocked(prefix):
            return False
        self._tree.serve(sequence.arrival, sequence.num_tokens)
        lease = Lease(content, self._tree.use(prefix), tokens)
        self._lock(lease.node, self._tree.root)
        if self._tree.ages is not None:
            self._tree.expire()
        self._take(self._pages(tokens) - prefix.tokens + self._constant)
        self._slack += self._empty(tokens)
        self._running.add(lease)
        sequence.kv = lease
        return True

    def grow(self, sequence: Sequence, tokens: int) -> bool:
        """Make room for ``tokens`` tokens in all: a longer prompt, or a decoder's next token.

        The part of a prompt that has room already is computed by now and enters the tree.
        """
        lease: Lease = sequence.kv
        if lease.decoding:
            return self._grow_decoder(lease)
        if tokens <= lease.tokens:
            return True
        short = self._more(lease, tokens) - self._available()
        if short > 0 and short > self._duplicates(lease):
            return False
        self._cache(lease, lease.tokens)
        self._extend(lease, tokens)
        return True

    def _grow_decoder(self, lease: Lease) -> bool:
        if lease.phase != self._phases.step or lease in self._grown:
            return True
        if self.page_size > self._available():
            return False
        self._take(self.page_size)
        self._grown.add(lease)
        return True

    def _more(self, lease: Lease, tokens: int) -> int:
        """Slots that a prompt with room for ``lease.tokens`` lacks for ``tokens``."""
        return self._pages(tokens) - self._pages(lease.tokens)

    def _extend(self, lease: Lease, tokens: int) -> None:
        self._take(self._more(lease, tokens))
        self._slack += self._empty(tokens) - self._empty(lease.tokens)
        lease.tokens = tokens

    def fork(self, parent: Sequence, child: Sequence, tokens: int) -> bool:
        """Share the parent's full pages through the tree, and copy the page that both write to.

        Without prefix caching there is no tree to share through, and all pages are copied.
        """
        lease: Lease = parent.kv
        self._cache(lease, tokens)
        shared = lease.node.end
        own = self._pages(tokens) - shared + self._constant
        if own > self._available():
            return False
        self._take(own)
        self._forks += 1
        content = lease.content._replace(owner=-1 - self._forks)
        twin = Lease(content, lease.node, tokens)
        self._lock(twin.node, self._tree.root)
        self._slack += self._empty(tokens)
        self._running.add(twin)
        child.kv = twin
        return True

    def join(self, sequence: Sequence) -> None:
        """The prompt, complete, enters the tree; the sequence gains one token a step from now on."""
        lease: Lease = sequence.kv
        self._cache(lease, sequence.num_computed)
        slack = self._empty(lease.tokens)
        self._slack -= slack
        lease.decoding = True
        lease.joined = self._step
        lease.phase = self._phases.join(slack)

    def leave(self, sequence: Sequence, tokens: int) -> None:
        """The sequence stops decoding and keeps its pages."""
        lease: Lease = sequence.kv
        self._phases.leave(lease.phase)
        lease.tokens = self._filled(lease)
        lease.decoding = False
        self._slack += self._empty(lease.tokens)

    def _filled(self, lease: Lease) -> int:
        return lease.tokens + (self._step - lease.joined if lease.decoding else 0)

    def room(self, steps: int, sequence: Sequence | None = None, chunk: int = 0) -> int:
        """Steps for which every decoder (and the prompt) can grow without preempting anyone."""
        if sequence is None:
            self._growing = None
            return self._phases.max_steps(steps, self._available() // self.page_size)
        lease: Lease = sequence.kv
        self._growing = (lease, chunk)
        available = self._available() + self._duplicates(lease)

        def needed(count: int) -> int:
            tokens = lease.tokens + count * chunk
            return self._phases.needed(count) * self.page_size + self._more(lease, tokens)

        return bisect_right(range(1, steps + 1), available, key=needed)

    def advance(self, steps: int, *, grown: bool = False) -> None:
        """All decoders gain ``steps`` tokens, and the prompt that ``room`` was asked for its chunks.

        With a prompt the steps go one by one, for its chunks enter the tree one by one.
        """
        if grown:
            self._grown.clear()
            self._phases.advance(steps)
        elif self._growing is None:
            self._advance_decoders(steps)
        else:
            lease, chunk = self._growing
            for _ in range(steps):
                self._cache(lease, lease.tokens)
                self._advance_decoders(1)
                self._extend(lease, lease.tokens + chunk)
        self._growing = None
        self._step += steps

    def _advance_decoders(self, steps: int) -> None:
        self._take(self._phases.advance(steps) * self.page_size)

    def free(self, sequence: Sequence, tokens: int, *, finished: bool) -> None:
        """Unlock the path and give the rest back; what is finished, or a prompt, is cached first."""
        lease: Lease = sequence.kv
        sequence.kv = None
        if finished or not lease.decoding:
            self._cache(lease, tokens - sequence.unhashed)
        self._own -= self._own_slots(lease)
        held = self._tree.protected
        self._tree.unlock(lease.node)
        self.saved_slots -= lease.node.end - held + self._tree.protected
        if lease.decoding:
            self._phases.leave(lease.phase)
        else:
            self._slack -= self._empty(lease.tokens)
        self._running.remove(lease)
        self._grown.discard(lease)

    def _own_slots(self, lease: Lease) -> int:
        grown = self.page_size if lease in self._grown else 0
        return self._pages(self._filled(lease)) - lease.node.end + self._constant + grown

    def usage(self) -> Usage:
        """A last page's empty slots count as internal fragmentation until they are filled."""
        empty = self._phases.slack + self._slack + len(self._grown) * self.page_size
        cached = self._tree.evictable
        return Usage(
            used=self.held_slots - empty,
            internal=empty,
            reserved=0,
            external=0,
            cached=cached,
            free=self._available() - cached,
        )

    def check(self) -> None:
        """Assert that the tree's books balance and that the sums are those of the running."""
        running = self._running
        self._tree.check(lease.node for lease in running)
        assert self._own == sum(map(self._own_slots, running))
        assert self._slack == sum(self._empty(one.tokens) for one in running if not one.decoding)
        assert self._phases.decoders == sum(lease.decoding for lease in running)
        assert self._phases.slack == sum(
            self._empty(self._filled(lease)) for lease in running if lease.decoding
        )
        assert all(lease.node.end <= self._filled(lease) for lease in running)
        assert self.saved_slots == sum(lease.node.end for lease in running) - self._tree.protected
        usage = self.usage()
        assert sum(usage) == self.total_slots
        assert min(usage) >= 0
