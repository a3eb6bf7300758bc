"""Requests of several sequences: parallel samples, and beams that fork and drop at every step.

A group is admitted as one sequence, its carrier, which computes the prompt. Then the others are
forked from it, and all decode together. It is preempted as a whole, and comes back the same way: the
prompt first, then forks, then what each had generated.
"""

from __future__ import annotations

from collections.abc import Iterator

from kvsim.core import Sequence
from kvsim.protocols import Allocator
from kvsim.scheduling.running import Running
from kvsim.scheduling.turnover import Turnover


class Group:
    """The sequences of one request."""

    __slots__ = ("forked", "known", "leader", "live", "members", "placed", "saved", "turnover")

    def __init__(self, leader: Sequence, turnover: Turnover | None) -> None:
        self.leader = leader
        """Stands for the request in all records."""
        self.members = [leader]
        self.live = [leader]
        """Those that have not ended; the first is the carrier."""
        self.turnover = turnover
        """None: parallel samples."""
        self.forked = False
        """Whether the others have been forked since the group was last admitted."""
        self.known: int | None = None
        """Tokens that the carrier had when it was preempted, while it computes the prompt again."""
        self.saved: dict[Sequence, int] = {}
        """Tokens of each sequence on the host, to be copied back instead of computed."""
        self.placed: set[Sequence] = set()
        """Those of them that have room for what is copied back."""

    @property
    def absent(self) -> int:
        """Sequences that will be forked from the carrier."""
        if self.forked:
            return 0
        width = self.leader.request.width
        return (width if len(self.members) == 1 else len(self.live)) - 1

    def start(self, sequence: Sequence) -> int:
        """Tokens that a sequence has or gets back when it goes on."""
        if not self.forked or sequence in self.placed:
            return sequence.num_computed
        back = min(self.saved.get(sequence, 0), sequence.num_tokens - 1)
        return max(sequence.num_computed, back)

    @property
    def regrowth(self) -> int:
        """Tokens beyond the prompt that all sequences together will need when they come back."""
        prompt = self.leader.request.prompt_tokens
        return sum(max(s.num_tokens, self.known or 0) - prompt for s in self.live)

    def close(self) -> None:
        """All have ended: the leader answers for what the others went through."""
        leader, others = self.leader, self.members[1:]
        leader.recomputed_tokens += sum(sequence.recomputed_tokens for sequence in others)
        leader.preemptions = max(sequence.preemptions for sequence in self.members)


class Groups:
    """The groups of one scheduler, over its running and prefilling sequences."""

    def __init__(
        self,
        allocator: Allocator,
        clock: Running,
        prefilling: list[Sequence],
        *,
        turnover: float,
        seed: int,
    ) -> None:
        self._allocator = allocator
        self._clock = clock
        self._prefilling = prefilling
        self._turnover = turnover
        self._seed = seed
        self.met = False
        """Whether any request had several sequences."""
        self.present: dict[Group, None] = {}
        """Those with sequences that hold memory or are to come back."""
        self.forking: list[Sequence] = []
        """Carriers whose prompt is complete."""
        self.gathered: dict[Sequence, None] = {}
        """Beams that wait for the others of their group, to go on in step."""
        self._spent: list[Sequence] = []
        """Sequences that have ended and still hold memory, of groups that have not been retired."""

    def enlist(self, leader: Sequence) -> None:
        """A request of several sequences has arrived."""
        self.met = True
        request = leader.request
        beams = request.beam_width > 1
        turnover = Turnover(self._turnover, request.beam_width, self._seed, request.row)
        leader.group = Group(leader, turnover if beams else None)

    def admitted(self, carrier: Sequence) -> None:
        """The carrier of a group runs; seats for the others are kept from now on."""
        self.present[carrier.group] = None

    def promised(self) -> int:
        """Seats of sequences that will be forked."""
        return sum(s.group.absent for s in self._carriers())

    def _carriers(self) -> Iterator[Sequence]:
        return (group.live[0] for group in self.present if group.live[0].order > 0)

    # Forks.

    def siblings(self, carrier: Sequence) -> list[Sequence]:
        """Those to be forked from the carrier, made now if they never existed."""
        group: Group = carrier.group
        if len(group.members) == 1:
            for _ in range(group.absent):
                child = Sequence(carrier.request, carrier.arrival)
                child.group, child.scheduled = group, carrier.scheduled
                child.generated = carrier.generated
                child.num_tokens = group.known or carrier.num_tokens
                group.members.append(child)
                group.live.append(child)
        return [sibling for sibling in group.live if sibling is not carrier]

    def fork(self, carrier: Sequence, child: Sequence) -> bool:
        """Let a sibling begin where the carrier's prompt ends; False without room."""
        prompt = carrier.num_computed
        if not self._allocator.fork(carrier, child, prompt):
            return False
        child.num_computed = prompt
        child.start_step = self._clock.step
        return True

    def begin(self, child: Sequence) -> None:
        """A forked sibling, which has its order, decodes at once unless it has to catch up first."""
        if child.group.known is None:
            assert self._clock.join(child)
            self._allocator.join(child)

    def complete(self, carrier: Sequence) -> None:
        """All have been forked; those that come back compute what each had generated."""
        group: Group = carrier.group
        group.forked = True
        if group.known is None:
            return
        carrier.num_tokens, group.known = group.known, None
        self._prefilling += group.live
        self._prefilling.sort(key=_order)

    def place(self, sequence: Sequence, start: int) -> bool:
        """A sequence has room for the ``start`` tokens that it gets back; True if it was the last."""
        group: Group = sequence.group
        if sequence in group.placed or not group.saved:
            return False
        sequence.recomputed_tokens -= start - sequence.num_computed
        sequence.num_computed = start
        group.placed.add(sequence)
        if not group.placed.issuperset(group.live):
            return False
        group.saved, group.placed = {}, set()
        return True

    def ready(self, sequence: Sequence) -> list[Sequence]:
        """Who has its next token once this sequence of a group has computed all that it knows."""
        group: Group = sequence.group
        if group.known is not None:
            self._prefilling_no_more(sequence)
            self.forking.append(sequence)
            return []
        if group.turnover is None or not group.forked:
            return [sequence]
        self._prefilling_no_more(sequence)
        self.gathered[sequence] = None
        if not all(sibling in self.gathered for sibling in group.live):
            return []
        for sibling in group.live:
            del self.gathered[sibling]
        return list(group.live)

    def _prefilling_no_more(self, sequence: Sequence) -> None:
        if sequence in self._prefilling:
            self._prefilling.remove(sequence)

    # Beams.

    def _beams(self) -> Iterator[Group]:
        """Groups whose beams all decode."""
        for group in self.present:
            together = group.turnover is not None and group.forked and group.live[0].order > 0
            if together and not any(self._computes(beam) for beam in group.live):
                yield group

    def _computes(self, sequence: Sequence) -> bool:
        """Whether it has not computed all that it knows, or waits for a beam that has not."""
        return sequence in self._prefilling or sequence in self.gathered

    def longest(self, steps: int) -> int:
        """The longest leap, up to ``steps``, before a fork, a copy from the host or the drop of a beam."""
        if self.forking or any(group.saved and group.forked for group in self.present):
            return 0
        left = (g.turnover.due - self.generated(g.live[0]) for g in self._beams() if g.turnover)
        return max(0, min([steps, *left]))

    def idle(self) -> list[Sequence]:
        """Those with memory that neither decode nor compute a prompt."""
        back = [carrier for carrier in self.forking if carrier.group.known is not None]
        return [*self.gathered, *back]

    def generated(self, decoder: Sequence) -> int:
        """Output tokens of a decoder."""
        return decoder.generated + self._clock.step - decoder.start_step

    def turn_over(self) -> bool:
        """Drop the beams whose time has come, each for a fork of another; whether there were any."""
        due = [
            g for g in self._beams() if g.turnover and g.turnover.due <= self.generated(g.live[0])
        ]
        for group in due:
            assert group.turnover is not None
            dropped, forked = (group.live[index] for index in group.turnover.draw())
            tokens = self._clock.computed(dropped)
            self._allocator.free(dropped, tokens, finished=True)
            took = self._allocator.fork(forked, dropped, tokens)
            assert took, "a dropped beam leaves the room that its successor needs"
            self._allocator.join(dropped)
        return bool(due)

    # Ends.

    def tokens(self, group: Group) -> int:
        """Tokens of a group whose KV exists; what the sequences share counts once."""
        if not group.forked:
            return group.live[0].num_computed
        prompt = group.leader.request.prompt_tokens
        return prompt + sum(sequence.num_computed - prompt for sequence in group.live)

    def preempted(self, group: Group, *, kept: bool) -> Sequence:
        """None of the group runs any more; returns the carrier, which waits with its prompt alone.

        ``kept``: a copy of what it has just lost is on the host.
        """
        if kept and group.forked:
            group.saved = {sequence: sequence.num_computed for sequence in group.live}
        carrier, prompt = group.live[0], group.leader.request.prompt_tokens
        if group.known is None and carrier.generated:
            group.known = carrier.num_tokens
        carrier.num_tokens = prompt
        group.placed = set()
        group.forked = False
        if carrier in self.forking:
            self.forking.remove(carrier)
        for sequence in group.live:
            self.gathered.pop(sequence, None)
        return carrier

    def end(self, ended: list[Sequence]) -> None:
        """These have their last tokens, those of groups among them."""
        for sequence in ended:
            group: Group | None = sequence.group
            if group is not None:
                group.live.remove(sequence)
                if not group.live:
                    del self.present[group]

    def served(self, ended: list[Sequence]) -> list[Sequence]:
        """For each request that is over with these sequences, the one that stands for it."""
        over: dict[Sequence, None] = {}
        for sequence in ended:
            group: Group | None = sequence.group
            if group is None:
                over[sequence] = None
                continue
            self._spent.append(sequence)
            if not group.live and group.leader not in over:
                over[group.leader] = None
                group.close()
        return list(over)

    def spent(self) -> list[Sequence]:
        """Sequences whose memory is to be given back; whoever asks does it."""
        spent, self._spent = self._spent, []
        return spent


def _order(sequence: Sequence) -> int:
    return sequence.order
