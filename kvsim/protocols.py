"""The seams of the simulation, all on one page. A plug-in fits one by its shape and imports nothing from here.

A family's members are entries of a plain dict from name to class (``ALLOCATORS``, ``SCHEDULERS``,
...). The constructor is the schema: what the simulation provides is positional, what a user may set
is keyword-only with a default.
"""

from __future__ import annotations

from collections.abc import Sequence as Seq
from typing import NamedTuple, Protocol

from kvsim.core import BatchShape, Leap, Match, Request, Sequence, Usage


class Allocator(Protocol):
    """Gives sequences room for their KV, in slots of one token each.

    A sequence is admitted with the room for its first chunk (or for a reservation), grows chunk by
    chunk while its prompt is computed, then *joins* the decoders, which all gain one token a step.
    The group of decoders grows together, so that a leap of many steps costs one call.
    """

    @property
    def evictions(self) -> int:
        """Cached blocks dropped so far to make room."""
        ...

    @property
    def saved_slots(self) -> int:
        """Slots that running sequences would hold besides if none were shared."""
        ...

    @property
    def total_slots(self) -> int:
        """Size of the pool that sequences can use, slots."""
        ...

    @property
    def held_slots(self) -> int:
        """Slots that running sequences hold, whether filled or not."""
        ...

    def fits(self, tokens: int) -> bool:
        """Whether a sequence of ``tokens`` tokens fits when it is alone in the pool."""
        ...

    def fits_group(self, sequence: Sequence, tokens: int) -> bool:
        """Whether all sequences of the request fit when they are alone, each of ``tokens`` tokens.

        They share no more than the full blocks of the prompt.
        """
        ...

    def match(self, sequence: Sequence) -> Match:
        """The longest usable cached prefix of the sequence's known tokens. Changes nothing."""
        ...

    def admit(self, sequence: Sequence, match: Match, tokens: int, *, spare: int = 0) -> bool:
        """Take the hit and room for the first ``tokens`` tokens (hit included), or nothing.

        Refused unless all known tokens of the sequence would fit now and ``spare`` slots beyond them
        stay free (a watermark).
        """
        ...

    def grow(self, sequence: Sequence, tokens: int) -> bool:
        """Make room for ``tokens`` tokens in all, or change nothing and return False."""
        ...

    def fork(self, parent: Sequence, child: Sequence, tokens: int) -> bool:
        """Let ``child`` go on from the parent's ``tokens`` computed tokens; False without room.

        What can be shared is; the child does not decode yet, whatever the parent does.
        """
        ...

    def join(self, sequence: Sequence) -> None:
        """The sequence, with ``num_computed`` tokens, gains one token a step from now on."""
        ...

    def leave(self, sequence: Sequence, tokens: int) -> None:
        """A decoder with ``tokens`` computed tokens gains no more; it keeps its room."""
        ...

    def room(self, steps: int, sequence: Sequence | None = None, chunk: int = 0) -> int:
        """Steps, up to ``steps``, for which all decoders can grow; 0 if not even the next one.

        With a sequence, it also grows by ``chunk`` tokens in each of those steps.
        """
        ...

    def advance(self, steps: int, *, grown: bool = False) -> None:
        """All decoders gain ``steps`` tokens; ``grown`` if each was given its room by ``grow``."""
        ...

    def free(self, sequence: Sequence, tokens: int, *, finished: bool) -> None:
        """Take back the room of a sequence with ``tokens`` computed tokens.

        What a cache may keep, it keeps, short of the last ``unhashed`` ones. A sequence that is not
        ``finished`` was preempted.
        """
        ...

    def usage(self) -> Usage:
        """Where every slot of the pool is now."""
        ...

    def check(self) -> None:
        """Assert that the books balance. Slow; for tests and ``--check``."""
        ...


class Batch(NamedTuple):
    """One iteration, or up to ``steps`` identical ones in a row, that a scheduler wants computed."""

    shape: BatchShape
    steps: int
    """Iterations that may follow one another without a new decision."""
    open: bool
    """Whether a request that arrives meanwhile could join: it then ends the leap early."""
    prompts: Seq[tuple[Sequence, int]]
    """Sequences whose prompt is being computed, with the tokens each gains in one step."""
    stall: int = 0
    """Picoseconds before a single iteration in which KV is copied to and from the host."""


class Outcome(NamedTuple):
    """What a batch yields once its tokens are seen."""

    ended: list[Sequence]
    """Who finishes, in running order."""
    answered: list[Sequence]
    """Whose prompt is complete: their first token, or the next one after a preemption."""


class Standing(NamedTuple):
    """A running sequence as it stands when somebody must go."""

    sequence: Sequence
    tokens: int
    """Whose KV exists."""
    generated: int
    """Output tokens."""


class VictimRule(Protocol):
    """Decides which running sequence loses its room; with it go the others of its request."""

    def rank(self, standing: Standing) -> int:
        """The highest goes first; of equals, the one that was admitted last."""
        ...


class Preemption(Protocol):
    """Decides what becomes of the KV of sequences that lose their room: of a request, or of one.

    They wait in front of the queue.
    """

    overtaking: bool
    """Whether new requests may run while those whose KV was kept wait for room."""
    moved: int
    """Tokens copied so far, to the host and back."""

    def keep(self, sequence: Sequence, tokens: int) -> int:
        """A request's ``tokens`` slots lose their room: picoseconds of keeping them elsewhere, or 0.

        All of them are kept, or none.
        """
        ...

    def kept(self, sequence: Sequence) -> int:
        """Tokens of the request that can be copied back."""
        ...

    def restore(self, sequence: Sequence, tokens: int) -> int:
        """Picoseconds of copying back ``tokens`` tokens; what was kept stays until it is let go."""
        ...

    def drop(self, sequence: Sequence) -> None:
        """What was kept for the sequence is needed no more."""
        ...


class Scheduler(Protocol):
    """Decides which sequences run in the next iteration; owns the waiting and running sets."""

    preemptions: int
    widest: int
    """Most sequences of one request that it can run."""
    gaps: list[int]
    """Waits of preempted sequences for their next token, picoseconds; whoever reads it clears it."""

    @property
    def waiting_count(self) -> int:
        """Requests in the queue."""
        ...

    @property
    def running_count(self) -> int:
        """Sequences that hold memory."""
        ...

    def add(self, sequence: Sequence) -> None:
        """A request has arrived."""
        ...

    def schedule(self, now: int) -> Batch | None:
        """The next iteration (or leap), its memory taken; None when there is nothing to do."""
        ...

    def complete(self, batch: Batch, steps: int, now: int) -> list[Sequence]:
        """``steps`` iterations of the batch have ended at ``now``; returns who finished, in order.

        The finished still hold their memory.
        """
        ...

    def retire(self, finished: list[Sequence]) -> None:
        """Give back the memory of sequences that ``complete`` returned."""
        ...

    def check(self) -> None:
        """Assert that the books balance."""
        ...


class CostModel(Protocol):
    """How long an iteration takes."""

    label: str
    """``analytic``, ``fixed``, ``measured ...``: shown wherever its times are shown."""

    def time(self, shape: BatchShape, steps: int = 1) -> int:
        """Picoseconds of ``steps`` iterations in a row, the shape advancing (see BatchShape).

        Exactly the sum of the single iterations, and monotone in ``steps``.
        """
        ...


class Observer(Protocol):
    """Is told what happens in a simulation; changes nothing. Times in picoseconds."""

    def leap(self, leap: Leap, allocator: Allocator) -> None:
        """Iterations have run; who finished with them still holds memory."""
        ...

    def gap(self, picoseconds: int) -> None:
        """A preempted sequence waited this long for its next token."""
        ...

    def finished(self, sequence: Sequence, replica: int) -> None:
        """A sequence has its last token."""
        ...

    def rejected(self, request: Request, replica: int, arrival: int, reason: str) -> None:
        """A request can never be served."""
        ...

    def idle(self, replica: int, allocator: Allocator) -> None:
        """The replica has nothing to do until its next leap."""
        ...


class Load(Protocol):
    """What a router may know about a replica."""

    @property
    def queue_length(self) -> int:
        """Requests waiting or running."""
        ...


class Router(Protocol):
    """Chooses the replica that serves a request; must not look at its output length."""

    def route(self, request: Request, replicas: Seq[Load], now: int) -> int:
        """Index of the chosen replica."""
        ...
