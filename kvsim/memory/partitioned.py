"""A pool in parts: every tenant's blocks are in its own, so that its quota bounds it."""

from __future__ import annotations

from collections.abc import Callable

from kvsim.core import Match, Sequence, Usage
from kvsim.errors import CapacityError
from kvsim.protocols import Allocator
from kvsim.quotas import Quotas


class Partitioned:
    """An allocator for each tenant, each with the tenant's share of the pool.

    At its bound a tenant gives up its own cached blocks first, then its requests wait, or the running
    ones are preempted; others notice nothing of that. ``make`` gives an allocator for a share of the
    pool. Slots that no tenant has are external to all.
    """

    def __init__(self, make: Callable[[float], Allocator], quotas: Quotas) -> None:
        self._make = make
        self._quotas = quotas
        self._parts: dict[str, Allocator] = {}
        self._of_tenant: dict[str | None, Allocator] = {}
        self.short: Allocator | None = None
        """The part that refused last, or that ended the steps which there was room for."""
        whole = make(1.0)
        self._fits = whole.fits
        self.total_slots = whole.total_slots
        for name in ("block_size", "page_size"):
            if hasattr(whole, name):
                setattr(self, name, getattr(whole, name))

    def part(self, sequence: Sequence) -> Allocator:
        """The memory of the sequence's tenant."""
        tenant = sequence.request.tenant
        found = self._of_tenant.get(tenant)
        if found is None:
            name = self._quotas.part(sequence.request)
            if name not in self._parts:
                self._parts[name] = self._new(name)
            found = self._of_tenant[tenant] = self._parts[name]
        return found

    def _new(self, name: str) -> Allocator:
        share = self._quotas.share(name)
        try:
            return self._make(share)
        except CapacityError as why:
            raise CapacityError(
                f"the quota of {name!r}, {share:.2%}, is too small: {why}"
            ) from None

    def refuses(self, sequence: Sequence, tokens: int) -> str | None:
        """Why a request whose sequences come to ``tokens`` tokens exceeds the quota; None if not."""
        part = self.part(sequence)
        if part.fits(tokens):
            return None
        slots = part.total_slots
        return f"{tokens} tokens exceed the {slots} slots of tenant {sequence.request.tenant!r}"

    @property
    def evictions(self) -> int:
        """Cached blocks dropped so far to make room."""
        return sum(part.evictions for part in self._parts.values())

    @property
    def saved_slots(self) -> int:
        """Slots that sharing saves."""
        return sum(part.saved_slots for part in self._parts.values())

    @property
    def held_slots(self) -> int:
        """Slots that running sequences hold."""
        return sum(part.held_slots for part in self._parts.values())

    def fits(self, tokens: int) -> bool:
        """Whether a sequence of ``tokens`` tokens fits when it has the whole pool."""
        return self._fits(tokens)

    def fits_group(self, sequence: Sequence, tokens: int) -> bool:
        """Whether all sequences of the request fit into the tenant's part."""
        return self.part(sequence).fits_group(sequence, tokens)

    def match(self, sequence: Sequence) -> Match:
        """The longest usable prefix that the tenant has cached."""
        return self.part(sequence).match(sequence)

    def admit(self, sequence: Sequence, match: Match, tokens: int, *, spare: int = 0) -> bool:
        """Take the hit and room for ``tokens`` tokens in the tenant's part."""
        return self.part(sequence).admit(sequence, match, tokens, spare=spare)

    def grow(self, sequence: Sequence, tokens: int) -> bool:
        """Make room for ``tokens`` tokens in all."""
        part = self.part(sequence)
        return self._noted(part, part.grow(sequence, tokens))

    def fork(self, parent: Sequence, child: Sequence, tokens: int) -> bool:
        """Let ``child`` go on from the parent's tokens; both are of one request."""
        part = self.part(parent)
        return self._noted(part, part.fork(parent, child, tokens))

    def _noted(self, part: Allocator, took: bool) -> bool:
        if not took:
            self.short = part
        return took

    def join(self, sequence: Sequence) -> None:
        """The sequence gains one token a step from now on."""
        self.part(sequence).join(sequence)

    def leave(self, sequence: Sequence, tokens: int) -> None:
        """A decoder gains no more tokens."""
        self.part(sequence).leave(sequence, tokens)

    def room(self, steps: int, sequence: Sequence | None = None, chunk: int = 0) -> int:
        """Steps for which every tenant's decoders (and the prompt) can grow."""
        own = None if sequence is None else self.part(sequence)
        for part in self._parts.values():
            found = part.room(steps, sequence, chunk) if part is own else part.room(steps)
            if found < steps:
                steps, self.short = found, part
        return steps

    def advance(self, steps: int, *, grown: bool = False) -> None:
        """All decoders gain ``steps`` tokens."""
        for part in self._parts.values():
            part.advance(steps, grown=grown)

    def free(self, sequence: Sequence, tokens: int, *, finished: bool) -> None:
        """Take back the room of a sequence."""
        self.part(sequence).free(sequence, tokens, finished=finished)

    def usage(self) -> Usage:
        """The parts' slots; those in no part are external."""
        parts = [part.usage() for part in self._parts.values()]
        usage = Usage(*map(sum, zip(*parts, strict=True))) if parts else Usage(0, 0, 0, 0, 0, 0)
        return usage._replace(external=usage.external + self.total_slots - sum(usage))

    def check(self) -> None:
        """The books of all parts balance, and together they are no more than the pool."""
        for part in self._parts.values():
            part.check()
        assert sum(part.total_slots for part in self._parts.values()) <= self.total_slots
