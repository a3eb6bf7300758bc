"""What every allocator promises a scheduler, checked on random histories.

 1  The parts of ``usage()`` are never negative and sum to the pool.
 2  ``held_slots`` is what is used, internal and reserved.
 3  Used slots hold the running sequences' tokens: each at most once a sequence, none left out.
 4  A refusal changes nothing; neither does a question (``match``, ``room``).
 5  A hit is never the whole sequence.
 6  ``room`` is honest: that many steps never fail, and after them the next one would.
 7  A sequence that leaves the pool leaves nothing held: only cache, and free slots.
 8  ``fits`` is honest: what fits is admitted to an empty pool and served to its end, else refused.
 9  More spare slots than are free refuse every admission.
10  A leap leaves the pool exactly as its steps do one by one.
11  Room for all known tokens is asked for at admission, however few are taken.
12  The books balance (``check``) after every operation.
"""

from __future__ import annotations

import inspect
import random
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvsim.core import Request, Sequence, Usage
from kvsim.memory import ALLOCATORS
from kvsim.memory.eviction import MakePolicy
from kvsim.memory.reservation import RESERVATIONS
from kvsim.protocols import Allocator

EVERY = pytest.mark.parametrize("name", sorted(ALLOCATORS))


def build(
    name: str,
    slots: int,
    page: int = 1,
    constant: int = 0,
    rule: str = "oracle",
    eviction: MakePolicy | None = None,
) -> Any:
    """An allocator of about ``slots`` slots, in pages of ``page`` if it has pages."""
    kind = ALLOCATORS[name]
    known = inspect.signature(kind).parameters
    options: dict[str, object] = {
        "block_size": page,
        "page_size": page,
        "page_group": page,
        "page_bytes": 3 * page,
        "reserved_pages": 1,
        "max_cached_tokens": 20,
        "slot_bytes": 1,
        "tensors": 1,
        "slots_per_sequence": constant,
        "fixed_blocks": -(-constant // page),
        "eviction": eviction,
    }
    paged = known.keys() & {"num_blocks", "num_pages"}
    resources: list[Any] = [slots // page + 1 if paged else slots]
    if "reservation" in known:
        resources.append(RESERVATIONS[rule](slots))
    make: Callable[..., Allocator] = kind
    return make(*resources, **{key: value for key, value in options.items() if key in known})


class Server:
    """The least scheduler that can drive an allocator through all it must bear."""

    def __init__(self, memory: Allocator, *, leaps: bool) -> None:
        self.memory = memory
        self.leaps = leaps
        self.running: list[Sequence] = []
        self.prompting: list[Sequence] = []
        self.ended: list[Sequence] = []
        self.waiting: list[Sequence] = []

    @property
    def decoding(self) -> list[Sequence]:
        rest = self.prompting + self.ended
        return [sequence for sequence in self.running if sequence not in rest]

    def admit(self, sequence: Sequence, chunk: int, spare: int) -> bool:
        memory, before = self.memory, self.memory.usage()
        match = memory.match(sequence)
        assert match.tokens == memory.match(sequence).tokens < sequence.num_tokens  # 5
        assert memory.usage() == before  # 4
        tokens = min(match.tokens + chunk, sequence.num_tokens)
        admitted = memory.admit(sequence, match, tokens, spare=spare)
        if not admitted:
            assert without_waste(memory.usage()) == without_waste(before)  # 4
            return False
        assert spare <= before.free + before.cached + before.external  # 9
        self.running.append(sequence)
        self.prompting.append(sequence)
        self.compute(sequence, tokens)
        return True

    def compute(self, sequence: Sequence, tokens: int) -> None:
        """The engine has computed a prompt up to ``tokens``; complete, it yields a token."""
        sequence.num_computed = tokens
        if tokens < sequence.num_tokens:
            return
        self.prompting.remove(sequence)
        sequence.generated += 1
        sequence.num_tokens += 1
        if sequence.generated < sequence.request.output_tokens:
            self.memory.join(sequence)
        else:
            self.finish(sequence)

    def finish(self, sequence: Sequence) -> None:
        self.running.remove(sequence)
        self.memory.free(sequence, sequence.num_computed, finished=True)

    def preempt(self, sequence: Sequence) -> None:
        self.running.remove(sequence)
        if sequence in self.prompting:
            self.prompting.remove(sequence)
        self.memory.free(sequence, sequence.num_computed, finished=False)
        sequence.num_computed = 0
        self.waiting.append(sequence)

    def left(self) -> int:
        return min(s.request.output_tokens - s.generated for s in self.decoding)

    def room(self, steps: int, chunk: int) -> int:
        """Steps that may be leapt; with a prompt, as long as its chunks do not complete it."""
        if not (chunk and self.prompting):
            return self.memory.room(min(steps, self.left())) if self.decoding else 0
        prompt = self.prompting[0]
        steps = min(steps, (prompt.num_tokens - prompt.num_computed - 1) // chunk)
        if self.decoding:
            steps = min(steps, self.left())
        return self.memory.room(steps, prompt, chunk) if steps else 0

    def leap(self, steps: int, chunk: int) -> None:
        if self.leaps:
            self.step(steps, chunk)
            return
        for _ in range(steps):
            assert self.room(1, chunk) == 1  # 6
            self.step(1, chunk)

    def step(self, steps: int, chunk: int) -> None:
        decoding = self.decoding
        self.memory.advance(steps)
        if chunk and self.prompting:
            prompt = self.prompting[0]
            assert self.memory.grow(prompt, prompt.num_computed + chunk * steps)  # 6
            prompt.num_computed += chunk * steps
        self.gain(decoding, steps)

    def gain(self, decoding: list[Sequence], steps: int) -> None:
        for sequence in decoding:
            sequence.num_computed += steps
            sequence.num_tokens += steps
            sequence.generated += steps

    def retire(self) -> None:
        for sequence in self.decoding:
            if sequence.generated == sequence.request.output_tokens:
                self.finish(sequence)

    def squeeze(self, chunk: int) -> None:
        """One step, each sequence given its room alone and the last ones preempted for it."""
        computed = []
        for sequence in list(self.running):
            if sequence in self.ended or sequence not in self.running:
                continue
            rest = sequence.num_tokens - sequence.num_computed
            tokens = sequence.num_computed + (min(chunk, rest) if sequence in self.prompting else 1)
            if self.make_room(sequence, tokens) and sequence in self.prompting:
                computed.append((sequence, tokens))
        self.memory.advance(1, grown=True)
        self.gain(self.decoding, 1)
        for sequence, tokens in computed:
            self.compute(sequence, tokens)

    def make_room(self, sequence: Sequence, tokens: int) -> bool:
        while not self.memory.grow(sequence, tokens):
            last = next(s for s in reversed(self.running) if s not in self.ended)
            self.preempt(last)
            if last is sequence:
                return False
        return True

    def end(self, sequence: Sequence) -> None:
        self.memory.leave(sequence, sequence.num_computed)
        self.ended.append(sequence)

    def give_back(self) -> None:
        for sequence in self.ended:
            self.finish(sequence)
        self.ended.clear()


def without_waste(usage: Usage) -> Usage:
    """Usage apart from whether a free slot is of use to the request that waits."""
    return usage._replace(free=usage.free + usage.external, external=0)


class History:
    """One random history, served twice: in leaps, and step by step."""

    def __init__(self, name: str, seed: int, eviction: MakePolicy | None = None) -> None:
        self.random = random.Random(seed)
        draw = self.random.choice
        page, constant = draw([1, 2, 3, 4]), draw([0, 0, 3])
        slots, rule = self.random.randint(12, 90), draw(sorted(RESERVATIONS))
        self.constant = -(-constant // page) * page
        self.width = draw([1, 2, 3, 4, 6])
        self.servers = [
            Server(build(name, slots, page, constant, rule, eviction), leaps=leaps)
            for leaps in (True, False)
        ]
        self.leaping = self.servers[0]
        self.rows = 0

    def both(self, operation: Callable[[Server], object]) -> Any:
        first, second = (operation(server) for server in self.servers)
        assert first == second  # 10
        return first

    def live(self, operations: int) -> None:
        for _ in range(operations):
            self.random.choice(self.possible())()
            self.holds()
        for server in self.servers:
            self.drain(server)

    def possible(self) -> list[Callable[[], None]]:
        """What could happen next, the likely more than once."""
        server, choices = self.leaping, [self.arrive] * 3
        if server.waiting:
            choices += [self.resume] * 3
        if server.prompting:
            choices += [self.grow] * 2
        if server.prompting or server.decoding:
            choices += [self.leap] * 3 + [self.squeeze, self.preempt]
        if server.decoding:
            choices += [self.end]
        if server.ended:
            choices += [self.give_back]
        return choices

    def arrive(self) -> None:
        draw = self.random.randint
        ids = [draw(0, 1) for _ in range(draw(0, 24 // self.width))]
        prompt = max(1, len(ids) * self.width + draw(-self.width + 1, 5))
        request = Request(self.rows, 0.0, prompt, draw(1, 20), ids or None, self.width)
        if not self.leaping.memory.fits(prompt + request.output_tokens):
            return
        self.rows += 1
        chunk, spare = draw(1, 30), self.random.choice([0, 0, 0, 5, 100])
        self.both(lambda server: server.admit(Sequence(request, 0), chunk, spare))

    def resume(self) -> None:
        chunk = self.random.randint(1, 30)
        if self.both(lambda server: server.admit(server.waiting[0], chunk, 0)):
            self.both(lambda server: bool(server.waiting.pop(0)))

    def grow(self) -> None:
        chunk = self.random.randint(1, 12)

        def one_chunk(server: Server) -> bool:
            prompt = server.prompting[-1]
            tokens = min(prompt.num_tokens, prompt.num_computed + chunk)
            before = server.memory.usage()
            grown = server.memory.grow(prompt, tokens)
            assert grown or server.memory.usage() == before  # 4
            if grown:
                server.compute(prompt, tokens)
            return grown

        self.both(one_chunk)

    def leap(self) -> None:
        steps, chunk = self.random.randint(1, 25), self.random.choice([0, 1, 2, 5])
        server, before = self.leaping, self.leaping.memory.usage()
        room = server.room(steps, chunk)
        assert server.memory.usage() == before  # 4
        if not room:
            return
        short = server.decoding and room < min(steps, server.left()) and not server.prompting
        self.both(lambda server: server.leap(room, chunk))
        if short:
            assert all(server.memory.room(1) == 0 for server in self.servers)  # 6
        self.both(lambda server: server.retire())

    def squeeze(self) -> None:
        chunk = self.random.randint(1, 12)
        self.both(lambda server: server.squeeze(chunk))
        self.both(lambda server: server.retire())

    def preempt(self) -> None:
        self.both(lambda s: s.preempt([r for r in s.running if r not in s.ended][-1]))

    def end(self) -> None:
        which = self.random.randrange(len(self.leaping.decoding))
        self.both(lambda server: server.end(server.decoding[which]))

    def give_back(self) -> None:
        self.both(lambda server: server.give_back())

    def holds(self) -> None:
        for server in self.servers:
            server.memory.check()  # 12
            self.accounts_for_every_slot(server)
        assert self.servers[0].memory.usage() == self.servers[1].memory.usage()  # 10
        assert self.servers[0].memory.evictions == self.servers[1].memory.evictions

    def accounts_for_every_slot(self, server: Server) -> None:
        memory, usage = server.memory, server.memory.usage()
        assert min(usage) >= 0  # 1
        assert sum(usage) == memory.total_slots
        assert memory.held_slots == usage.used + usage.internal + usage.reserved  # 2
        tokens = [sequence.num_computed for sequence in server.running]
        assert usage.used <= sum(tokens) + len(tokens) * self.constant  # 3
        assert usage.used >= max(tokens, default=0)

    def drain(self, server: Server) -> None:
        server.give_back()
        for sequence in list(server.running):
            server.preempt(sequence)
        usage = server.memory.usage()
        assert (usage.used, usage.internal, usage.reserved) == (0, 0, 0)  # 7
        assert server.memory.held_slots == 0
        server.memory.check()


@EVERY
@settings(deadline=None, max_examples=200)
@given(seed=st.integers(0, 2**32), operations=st.integers(20, 80))
def test_any_history_keeps_the_promises(name: str, seed: int, operations: int) -> None:
    History(name, seed).live(operations)


@EVERY
@settings(deadline=None)
@given(
    slots=st.integers(4, 70),
    page=st.integers(1, 4),
    constant=st.sampled_from([0, 5]),
    prompt=st.integers(1, 70),
    answer=st.integers(1, 40),
    rule=st.sampled_from(sorted(RESERVATIONS)),
)
def test_what_fits_is_served_alone_to_its_end(
    name: str, slots: int, page: int, constant: int, prompt: int, answer: int, rule: str
) -> None:
    memory = build(name, slots, page, constant, rule)
    server = Server(memory, leaps=True)
    sequence = Sequence(Request(0, 0.0, prompt, answer), 0)
    assert server.admit(sequence, prompt, 0) == memory.fits(prompt)  # 8
    if memory.fits(prompt + answer) and answer > 1:
        assert server.room(answer, 0) == answer - 1
        server.leap(answer - 1, 0)
        server.retire()
        assert memory.held_slots == 0


@EVERY
def test_a_pool_that_is_filled_and_emptied_serves_the_same_again(name: str) -> None:
    memory = build(name, 64, 4)
    server = Server(memory, leaps=True)

    def fill() -> int:
        row = 0
        while server.admit(Sequence(Request(row, 0.0, 8, 8), 0), 8, 0):
            row += 1
        server.leap(server.room(7, 0), 0)
        return row

    count = fill()
    assert count >= 4
    for sequence in list(server.running):
        server.preempt(sequence)
    assert fill() == count


@EVERY
def test_a_sequence_is_admitted_only_if_all_its_known_tokens_fit(name: str) -> None:
    server = Server(build(name, 64, 4), leaps=True)
    assert server.admit(Sequence(Request(0, 0.0, 30, 1), 0), 4, 0)
    assert not server.admit(Sequence(Request(1, 0.0, 61, 1), 0), 4, 0)  # 11
