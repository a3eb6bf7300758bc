"""vLLM's scheduler with a host tier: prefixes are loaded before their requests run."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from kvsim.core import Match, Sequence
from kvsim.protocols import Allocator, Batch
from kvsim.scheduling.chunked import Chunked


class Tiered(Allocator, Protocol):
    """Memory with a tier behind its prefix cache."""

    def on_host(self, sequence: Sequence, match: Match) -> int:
        """Tokens beyond a match that can be loaded from there."""
        ...

    def load(
        self, sequence: Sequence, match: Match, tokens: int, under_way: Iterable[Sequence]
    ) -> bool:
        """Take the hit and room for ``tokens`` tokens, if prompts under way keep enough."""
        ...

    def resume(self, sequence: Sequence, tokens: int) -> bool:
        """Make room for a loaded sequence's first ``tokens`` tokens, if all of them would fit."""
        ...


class Offloading(Chunked):
    """Chunked prefill that loads from the host what the GPU's prefix cache has lost.

    A request whose prefix the host has gets its memory, keeps its place in the queue and is passed
    over until it is loaded; the engine takes ``loads`` and says :meth:`loaded`. Then it runs as soon
    as there is room for all its tokens. Source: vLLM 0.23.0 ``v1/core/sched/scheduler.py``
    (``WAITING_FOR_REMOTE_KVS``).
    """

    def __init__(
        self,
        allocator: Tiered,
        *,
        max_num_seqs: int = 256,
        max_num_batched_tokens: int = 8192,
        long_prefill_token_threshold: int = 0,
        watermark: float = 0.0,
        leaps: bool = True,
    ) -> None:
        super().__init__(
            allocator,
            max_num_seqs=max_num_seqs,
            max_num_batched_tokens=max_num_batched_tokens,
            long_prefill_token_threshold=long_prefill_token_threshold,
            watermark=watermark,
            leaps=leaps,
        )
        self.loads: list[tuple[Sequence, int]] = []
        """Sequences that are to be loaded, and how many tokens of them."""
        self._tiers = allocator
        self._loading: set[Sequence] = set()
        self._ready: set[Sequence] = set()  # loaded, and waiting still

    @property
    def waiting_count(self) -> int:
        """Requests in the queue that nothing is loaded for."""
        return len(self._waiting) - len(self._loading) - len(self._ready)

    @property
    def loading_count(self) -> int:
        """Requests in the queue that have memory: their KV comes, or has come."""
        return len(self._loading) + len(self._ready)

    def loaded(self, sequence: Sequence) -> None:
        """Its KV has come."""
        self._loading.remove(sequence)
        self._ready.add(sequence)
        self._blocked = False

    @property
    def _expects(self) -> bool:
        return bool(self._loading)

    def _leap(self) -> Batch | None:
        """None while anything is loaded: it may join at any time.

        Nor where the first in the queue is looked up between the chunks that a prompt stores.
        """
        looked_up = self._waiting and self._prefilling
        return None if self._loading or self._ready or looked_up else super()._leap()

    def _admit(self, prompts: list[tuple[Sequence, int]], budget: int, now: int) -> None:
        place = 0
        while place < len(self._waiting) and budget > 0 and len(self._running) < self._max_seqs:
            sequence = self._waiting[place]
            if sequence in self._loading:
                place += 1
                continue
            if sequence in self._ready:
                tokens = self._resume(place, prompts, budget, now)
            else:
                loads = self._load(sequence)
                if loads:
                    place += 1
                    continue
                tokens = 0 if loads is False else self._try(place, prompts, budget, now)
            if not tokens:
                self._blocked = True
                break
            budget -= tokens
        if not prompts and not self._running and not self._loading and self._ready:
            self._give_way()
            self._admit(prompts, budget, now)

    def _load(self, sequence: Sequence) -> bool | None:
        """Begin to load what the host has of a request; None if it has nothing, False without room.

        Its memory can be neither used nor given up while it comes, so there must be room as well for
        the prompts that are under way.
        """
        match = self._tiers.match(sequence)
        tokens = self._tiers.on_host(sequence, match)
        if not tokens:
            return None
        under_way = [*self._prefilling, *self._loading, *self._ready]
        if not self._tiers.load(sequence, match, match.tokens + tokens, under_way):
            return False
        sequence.num_computed = match.tokens + tokens
        self._loading.add(sequence)
        self.loads.append((sequence, tokens))
        return True

    def _resume(
        self, place: int, prompts: list[tuple[Sequence, int]], budget: int, now: int
    ) -> int:
        """Run a loaded request; returns the tokens it computes, 0 without room."""
        sequence = self._waiting[place]
        start = sequence.num_computed
        tokens = self._chunk_from(start, sequence, budget)
        if not self._tiers.resume(sequence, start + tokens):
            return 0
        del self._waiting[place]
        self._ready.remove(sequence)
        self._start(sequence, start, now)
        if start + tokens < sequence.num_tokens:
            self._prefilling.append(sequence)
        prompts.append((sequence, tokens))
        return tokens

    def _give_way(self) -> None:
        """Nobody runs and no loaded request has room to go on: the last one gives its memory up."""
        sequence = next(one for one in reversed(self._waiting) if one in self._ready)
        self._ready.remove(sequence)
        self._allocator.free(sequence, sequence.num_computed, finished=False)
        sequence.num_computed = 0
        self._blocked = False
