"""The nouns that every part of kvsim shares.

Inside a simulation time is an integer number of picoseconds, so that sums do not depend on their
order and a leap over many iterations ends on the same instant as the iterations one by one. Seconds
appear only in traces, reports and names without a unit.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from collections.abc import Sequence as Seq
from typing import Any, NamedTuple

PICOSECONDS = 1_000_000_000_000
"""Picoseconds in a second: the unit of the simulation clock."""


def picoseconds(seconds: float) -> int:
    """Seconds as the nearest whole number of picoseconds."""
    return round(seconds * PICOSECONDS)


class Request(NamedTuple):
    """One line of a trace: immutable, and all that is known about a request from outside.

    A request either has an ``arrival`` or is a later turn of a session: then ``arrival`` is None and
    the turn arrives ``think_time`` after the previous turn of ``session`` has ended. ``hash_ids``
    name the content of the prompt, ``hash_block`` tokens an id, from its start: equal ids at the
    same place after equal ids mean equal tokens. The last id may stand for a partial block; tokens
    past the last id are unlike those of any other request. No ids at all: nothing is shared.
    """

    row: int
    """Position in the trace, from 0."""
    arrival: float | None
    """Seconds from the start of the trace; None for a turn that waits for the one before."""
    prompt_tokens: int
    output_tokens: int
    """True length of the answer. Only the execution side may read it (the oracle boundary)."""
    hash_ids: Seq[int] | None = None
    """From 0 to 2**64 - 1; readers give an ``array("Q")``, which takes a fifth of a list's memory."""
    hash_block: int = 0
    """Tokens that one hash id stands for; 0 without ids."""
    session: str | None = None
    think_time: float | None = None
    """Seconds between the end of the session's previous turn and this arrival."""
    id: str | None = None
    """The trace's own name of the request, if it has one."""
    n: int = 1
    """Answers that are sampled in parallel, each of ``output_tokens``; they share the prompt."""
    beam_width: int = 1
    """Candidates that beam search keeps at every step; 1: no beam search."""
    priority: int = 0
    """Who goes first: lower values, as in vLLM."""
    tenant: str | None = None
    """Whose deployment it is part of: a customer, or an API key."""
    user: str | None = None
    """Who of the tenant asks."""

    @property
    def width(self) -> int:
        """Sequences that decode side by side once the prompt is computed."""
        return self.beam_width if self.beam_width > 1 else self.n


def packed(ids: Iterable[int] | None) -> array[int]:
    """Hash ids in the form that caches keep and compare; empty without any."""
    return ids if type(ids) is array else array("Q", ids or ())


class Sequence:
    """The mutable state of one request while it is served.

    ``order`` is the rank of its latest admission: running sequences are kept, preempted and finished
    in this order. While a sequence decodes, ``num_computed`` is not updated step by step; the decode
    clock (:class:`kvsim.scheduling.running.Running`) knows it.
    """

    __slots__ = (
        "answer_hit",
        "arrival",
        "cached_tokens",
        "finished",
        "first_token",
        "generated",
        "group",
        "kv",
        "last_token",
        "num_computed",
        "num_tokens",
        "order",
        "preemptions",
        "recomputed_tokens",
        "request",
        "scheduled",
        "stalled",
        "start_step",
        "unhashed",
    )

    def __init__(self, request: Request, arrival: int) -> None:
        self.request = request
        self.arrival = arrival
        """Picoseconds."""
        self.scheduled: int | None = None
        """When it was first admitted, picoseconds."""
        self.first_token: int | None = None
        self.last_token: int | None = None
        """When its latest token came, picoseconds; known only from a preemption to the next token."""
        self.finished: int | None = None
        self.num_tokens = request.prompt_tokens
        """Tokens that are known: the prompt and what has been generated, as of the last join."""
        self.num_computed = 0
        """Tokens whose KV exists, as of the last join."""
        self.generated = 0
        """Output tokens so far, as of the last join."""
        self.unhashed = 0
        """Of its computed tokens, the last ones that no cache may know yet: they were sampled after
        the step that computes them was scheduled. Only of a sequence that is about to lose its KV."""
        self.cached_tokens = 0
        """Prompt tokens that hit the prefix cache at the first admission."""
        self.answer_hit = 0
        """The same at the admission that led to its first token, what vLLM's clients are told: a prompt
        that was preempted on its way may hit what it had computed itself."""
        self.recomputed_tokens = 0
        """Tokens whose KV was lost in preemptions, less those that it hit when it came back."""
        self.preemptions = 0
        self.stalled = 0
        """Picoseconds between tokens that preemptions tore apart, summed."""
        self.order = -1
        self.start_step = 0
        """Step of the decode clock at which it began to decode."""
        self.kv: Any = None
        """What the allocator keeps about it: an opaque handle that only the allocator reads."""
        self.group: Any = None
        """The sequences of the same request, if it has several: kept by the scheduler."""

    def admit(self, order: int, hit: int, now: int) -> None:
        """It runs from ``now`` on as the ``order``-th to be admitted; ``hit`` tokens were cached."""
        self.order = order
        self.num_computed = hit
        if self.scheduled is None:
            self.scheduled = now
            self.cached_tokens = hit
        else:
            self.recomputed_tokens -= hit
        if not self.generated:
            self.answer_hit = hit

    def preempt(self) -> None:
        """It has lost its KV and waits to be admitted again."""
        self.order = -1
        self.recomputed_tokens += self.num_computed
        self.num_computed = self.unhashed = 0
        self.preemptions += 1

    def see_token(self, now: int) -> int | None:
        """Its prompt has given a token; returns how long that took if a preemption tore the answer."""
        if self.first_token is None:
            self.first_token = now
        if self.last_token is None:
            return None
        gap, self.last_token = now - self.last_token, None
        self.stalled += gap
        return gap


class BatchShape(NamedTuple):
    """What an iteration computes, as far as its duration depends on it.

    Repeating an iteration advances the shape: every decode reads one token more, and the one chunk
    (``prefills == 1``) moves on by its own length.
    """

    decodes: int
    """Sequences that decode one token."""
    context_tokens: int
    """Tokens whose KV the decodes read, summed over them; their new tokens are not counted."""
    prefills: int = 0
    """Prompts (or chunks of prompts) in the batch."""
    prefill_tokens: int = 0
    """Their new tokens, summed."""
    prefill_context: int = 0
    """Their tokens already in the cache, summed."""
    prefill_pairs: int = 0
    """Query-key pairs of causal attention: sum of n*c + n*(n+1)/2 for n new tokens on c cached."""
    sampled: int = 0
    """Rows that go through the output head: decodes and prompts that complete."""
    context_squares: int = 0
    """Squares of what each decode reads, summed: how unequal they are."""
    prompts: tuple[tuple[int, int], ...] = ()
    """New and cached tokens of each of several prompts; without, each has their mean."""

    @property
    def prefill_longest(self) -> int:
        """Tokens in the cache of the prompt that has most; 0 stands for their mean."""
        return max((cached for _, cached in self.prompts), default=0)


class Leap(NamedTuple):
    """Iterations of one replica that ran one after another; times in picoseconds."""

    replica: int
    start: int
    end: int
    steps: int
    shape: BatchShape
    """Of the first iteration."""
    waiting: int
    """Requests that were left in the queue when they began."""
    running: int
    """Sequences that have memory."""
    held: int
    """Slots that were held when they began; the first iteration's are counted."""
    preemptions: int = 0
    """Of the replica's scheduler so far."""
    last: int = 0
    """Picoseconds of the last iteration, if a prompt's chunks made each longer than the one before."""
    grown: int | None = None
    """Slots that they held in the end, if what follows has been given memory since; else those held now."""
    late: int = 0
    """Picoseconds that passed at the end, of the last iteration alone, until its tokens were seen."""

    def gaps(self) -> list[tuple[int, int]]:
        """Picoseconds of iterations, and of how many in a row that take as good as equal times."""
        steps, mean = self.steps, (self.end - self.start - self.late) // self.steps
        if self.last:
            rise = 2 * (self.last - mean)
            lefts = reversed(range(1, steps))
            return [
                *((self.last - rise * left // (steps - 1), 1) for left in lefts),
                (self.last + self.late, 1),
            ]
        if self.late and steps > 1:
            return [(mean, steps - 1), (mean + self.late, 1)]
        return [(mean + self.late, steps)]


class Match(NamedTuple):
    """What a prefix cache can give to a sequence; valid until the cache next changes."""

    tokens: int
    """Usable hit: prefix-contiguous, never the whole prompt."""
    handle: Any = None
    """The allocator's own note of where the hit lies."""


NO_MATCH = Match(0)


class Usage(NamedTuple):
    """Where the slots of a KV pool are: the six parts always sum to the pool's size."""

    used: int
    """Hold the KV of a running sequence; a shared slot counts once."""
    internal: int
    """Allocated to a sequence and never to be used (internal fragmentation)."""
    reserved: int
    """Allocated to a sequence that will use them later."""
    external: int
    """Free, but of no use to the request that waits (external fragmentation)."""
    cached: int
    """Hold reusable KV of no running sequence; evictable."""
    free: int
