"""Allocators that set aside all of a sequence's room when they admit it, before PagedAttention.

What they share is here: the books of used, reserved and wasted slots. How an address range is found
is their :class:`Space`. A sequence's range never moves and never grows; one that reaches its end is
refused more and, once preempted, reserves anew at least what it then needs.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from kvsim.core import NO_MATCH, Match, Sequence, Usage
from kvsim.memory.block_table import BlockTable
from kvsim.memory.reservation import ReservationRule


class Space(Protocol):
    """An address space of slots from which contiguous ranges are taken."""

    total: int
    """Slots."""
    free: int
    """Slots in no range."""
    gap: int
    """Slots added to ranges by rounding."""

    @property
    def largest(self) -> int:
        """The longest range that the empty space can give."""
        ...

    def holds(self, slots: int) -> int:
        """How many ranges of ``slots`` the empty space can give."""
        ...

    def finds(self, slots: int) -> int:
        """How many it can give now."""
        ...

    def take(self, slots: int, spare: int) -> int | None:
        """Address of a new range of ``slots`` that leaves ``spare`` slots free, if there is one."""
        ...

    def give(self, address: int, slots: int) -> None:
        """Take a range back."""
        ...

    def useless(self, slots: int) -> int:
        """Free slots in holes that cannot give a range of ``slots``."""
        ...

    def holes(self) -> Iterable[tuple[int, int]]:
        """Address and size of every hole."""
        ...

    def check(self, ranges: list[tuple[int, int]]) -> None:
        """Assert that ``ranges`` (address, slots) and the holes tile the space."""
        ...


class Range:
    """The range of one running sequence."""

    __slots__ = (
        "address",
        "decoding",
        "final",
        "joined",
        "row",
        "slots",
        "table",
        "tight",
        "tokens",
    )

    def __init__(self, address: int, slots: int, final: int, tokens: int) -> None:
        self.address = address
        self.slots = slots
        self.final = min(final, slots)
        """Slots of the range that it will use in the end."""
        self.tight = final > slots
        """Whether it may outgrow the range."""
        self.tokens = tokens
        """Slots in use; of a decoder, when it joined."""
        self.decoding = False
        self.joined = 0
        """Step at which it joined the decoders."""
        self.table: BlockTable
        """Set where the range is real memory (:mod:`kvsim.memory.mapped`), as is the row."""
        self.row: int
        """Of the request."""


def absent(sequence: Sequence) -> int:
    """How many sequences are still to be forked from this one."""
    return 0 if sequence.group is None else int(sequence.group.absent)


class Reserving:
    """An Allocator that reserves, at admission, what ``reservation`` says, in one range."""

    def __init__(self, space: Space, reservation: ReservationRule, slots_per_sequence: int) -> None:
        self.evictions = self.saved_slots = 0
        self._space = space
        self._reservation = reservation
        self._constant = slots_per_sequence
        self._running: set[Range] = set()
        self._held = 0
        self._final = 0
        self._used = 0
        self._decoders = 0
        self._step = 0
        self._carriers: dict[Sequence, None] = {}
        """Those that run and of which others are or will be forked."""
        self._tight = 0
        """Running sequences that may outgrow their range."""
        self._refused: tuple[Sequence, int] | None = None
        """The sequence that was refused last and still waits, and the slots it asked for."""

    @property
    def total_slots(self) -> int:
        """Size of the pool, slots."""
        return self._space.total

    @property
    def held_slots(self) -> int:
        """Slots in ranges of running sequences; what a range was rounded up by is not counted."""
        return self._held

    def fits(self, tokens: int) -> bool:
        """Whether a sequence of ``tokens`` tokens fits when it is alone in the pool."""
        return tokens + self._constant <= self._space.largest

    def fits_group(self, sequence: Sequence, tokens: int) -> bool:
        """Whether the space has a range for each; ranges are never shared."""
        slots = max(self._wish(sequence), tokens + self._constant)
        return self.fits(tokens) and sequence.request.width <= self._space.holds(slots)

    def _wish(self, sequence: Sequence) -> int:
        """Slots to reserve for a sequence, at most the longest range."""
        wish = max(self._reservation.slots(sequence), sequence.num_tokens) + self._constant
        return min(wish, self._space.largest)

    def match(self, sequence: Sequence) -> Match:
        """Nothing: a range is never shared."""
        return NO_MATCH

    def admit(self, sequence: Sequence, match: Match, tokens: int, *, spare: int = 0) -> bool:
        """Reserve a range for all that the sequence will ever need, or nothing.

        No range exceeds the pool: a reservation that would is cut to it. While others run, nobody
        gets one unless as many are left as there will be forks of it and of them.
        """
        slots = self._wish(sequence)
        forks = sum(map(absent, (sequence, *self._carriers))) if self._running else 0
        if forks and self._space.finds(slots) <= forks:
            self._refused = (sequence, slots)
            return False
        if not self._reserve(sequence, slots, tokens, spare):
            return False
        if sequence.group is not None:
            self._carriers[sequence] = None
        return True

    def _reserve(self, sequence: Sequence, slots: int, tokens: int, spare: int = 0) -> bool:
        fits = self.fits(sequence.num_tokens)
        address = self._space.take(slots, spare) if fits else None
        if address is None:
            self._refused = (sequence, slots)
            return False
        if self._refused is not None and self._refused[0] is sequence:
            self._refused = None
        self._hold(sequence, address, slots, tokens)
        return True

    def _hold(self, sequence: Sequence, address: int, slots: int, tokens: int) -> None:
        final = self._reservation.final(sequence) + self._constant
        held = Range(address, slots, final, tokens + self._constant)
        sequence.kv = held
        self._running.add(held)
        self._held += slots
        self._final += held.final
        self._used += held.tokens
        self._tight += held.tight

    def grow(self, sequence: Sequence, tokens: int) -> bool:
        """Whether the range has room for ``tokens`` tokens; a prompt then fills it."""
        held: Range = sequence.kv
        tokens += self._constant
        if tokens > held.slots:
            return False
        if not held.decoding:
            self._fill(held, tokens)
        return True

    def _fill(self, held: Range, tokens: int) -> None:
        self._used += tokens - held.tokens
        held.tokens = tokens

    def fork(self, parent: Sequence, child: Sequence, tokens: int) -> bool:
        """A range of its own for the child, into which all of the parent's tokens are copied."""
        return self._reserve(child, self._wish(child), tokens)

    def join(self, sequence: Sequence) -> None:
        """The sequence gains one token a step from now on."""
        held: Range = sequence.kv
        self._fill(held, sequence.num_computed + self._constant)
        held.decoding = True
        held.joined = self._step
        self._decoders += 1

    def leave(self, sequence: Sequence, tokens: int) -> None:
        """The sequence stops decoding and keeps its range."""
        held: Range = sequence.kv
        held.tokens = self._filled(held)
        held.decoding = False
        self._decoders -= 1

    def room(self, steps: int, sequence: Sequence | None = None, chunk: int = 0) -> int:
        """All ``steps``, unless some range could be outgrown."""
        if not self._tight:
            return steps
        ends = [held.slots - self._filled(held) for held in self._running if held.decoding]
        if sequence is not None:
            ends.append((sequence.kv.slots - sequence.kv.tokens) // chunk)
        return min([steps, *ends])

    def _filled(self, held: Range) -> int:
        return held.tokens + (self._step - held.joined if held.decoding else 0)

    def advance(self, steps: int, *, grown: bool = False) -> None:
        """All decoders fill ``steps`` slots of their ranges."""
        self._step += steps
        self._used += self._decoders * steps

    def free(self, sequence: Sequence, tokens: int, *, finished: bool) -> None:
        """Take back the whole range."""
        held: Range = sequence.kv
        sequence.kv = None
        self._carriers.pop(sequence, None)
        self._running.remove(held)
        self._space.give(held.address, held.slots)
        self._held -= held.slots
        self._final -= held.final
        self._used -= self._filled(held)
        self._decoders -= held.decoding
        self._tight -= held.tight

    def usage(self) -> Usage:
        """Where every slot is.

        External fragmentation is what ranges were rounded up by (as in the PagedAttention paper's
        Figure 2) and the free slots in holes too small for the sequence that was refused last.
        """
        useless = self._space.useless(self._refused[1]) if self._refused is not None else 0
        return Usage(
            used=self._used,
            internal=self._held - self._final,
            reserved=self._final - self._used,
            external=self._space.gap + useless,
            cached=0,
            free=self._space.free - useless,
        )

    def check(self) -> None:
        """Assert that ranges tile the space with the holes, and that the sums are theirs."""
        held = self._running
        self._space.check([(one.address, one.slots) for one in held])
        assert self._space.free + self._space.gap + self._held == self._space.total
        assert self._held == sum(one.slots for one in held)
        assert self._final == sum(one.final for one in held)
        assert self._used == sum(self._filled(one) for one in held)
        assert self._decoders == sum(one.decoding for one in held)
        assert self._tight == sum(one.tight for one in held)
        assert all(self._filled(one) <= one.final <= one.slots for one in held)
        usage = self.usage()
        assert sum(usage) == self.total_slots
        assert min(usage) >= 0
