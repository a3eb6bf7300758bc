"""The running sequences of an engine, and how they lose their room and get it back."""

from __future__ import annotations

from collections.abc import Iterator

from kvsim.core import Match, Sequence
from kvsim.protocols import Allocator, Preemption, Standing, VictimRule
from kvsim.scheduling.groups import Group, Groups
from kvsim.scheduling.preemption.recompute import Recompute
from kvsim.scheduling.roster import Roster
from kvsim.scheduling.victims.last import Last


class Preempting(Roster):
    """What runs and what waits, with the rules for who goes when memory runs out.

    A preempted request goes to the front of the queue. A request of several sequences goes as a
    whole.
    """

    passes = False
    """Whether requests may run ahead of one that was refused, of whoever wants the room of another."""

    def __init__(
        self,
        allocator: Allocator,
        *,
        victim: VictimRule | None,
        preemption: Preemption | None,
        beam_turnover: float,
        seed: int,
    ) -> None:
        super().__init__(allocator)
        self._victim = victim or Last()
        self._latest_goes = isinstance(self._victim, Last) and not self.passes
        self._preemption = preemption or Recompute()
        self._passed = self.passes or self._preemption.overtaking
        self._swaps = not isinstance(self._preemption, Recompute)
        self._prefilling: list[Sequence] = []  # running, prompt not complete, in running order
        self._groups = Groups(
            allocator, self._clock, self._prefilling, turnover=beam_turnover, seed=seed
        )
        self._present = self._groups.present
        self._blocked = False  # the head of the queue was refused, and no memory came back since
        self._ending: set[Sequence] = set()  # running, their last token in flight
        self._stall = 0  # picoseconds of copies that the next iteration begins with

    @property
    def swapped_tokens(self) -> int:
        """Tokens whose KV was copied to the host or back."""
        return self._preemption.moved

    def add(self, sequence: Sequence) -> None:
        """A request has arrived."""
        request = sequence.request
        if request.n > 1 or request.beam_width > 1:
            self._groups.enlist(sequence)
        if self._passed:
            self._blocked = False
        self._waiting.append(sequence)

    # Who goes.

    def _preempt(self, now: int, victim: Sequence | None = None) -> None:
        """Take the room of one running request: of the victim's, or by the rule."""
        victim = victim or self._chosen()
        self._blocked = False
        self.preemptions += 1
        if victim in self._ending:
            self._cut_short(victim)
        elif victim.group is None:
            self._keep(victim, self._leave(victim, now))
            self._lose(victim)
            self._waiting.appendleft(victim)
        else:
            self._preempt_group(victim.group, now)

    def _chosen(self) -> Sequence:
        if self._latest_goes:
            return self._latest()
        rank = self._victim.rank
        return max(self._standings(), key=lambda s: (rank(s), s.sequence.order)).sequence

    def _latest(self) -> Sequence:
        return next(reversed(self._running.values()))

    def _standings(self) -> Iterator[Standing]:
        idle = {*self._prefilling, *self._ending, *self._groups.idle()}
        for sequence in self._running.values():
            if sequence in idle:
                yield Standing(sequence, sequence.num_computed, sequence.generated)
            else:
                tokens = self._clock.computed(sequence)
                yield Standing(sequence, tokens, self._groups.generated(sequence))

    def _leave(self, sequence: Sequence, now: int) -> int:
        """It computes no more; returns its tokens whose KV exists."""
        if sequence in self._prefilling:
            self._prefilling.remove(sequence)
        elif sequence not in self._groups.gathered:
            if sequence.group is None or sequence.group.known is None:
                self._clock.leave(sequence)
            sequence.last_token = now
        return sequence.num_computed

    def _keep(self, sequence: Sequence, tokens: int) -> bool:
        """Copy the KV of a request to the host, if that is the way; whether a copy was made."""
        time = self._preemption.keep(sequence, tokens)
        self._stall += time
        return time > 0

    def _lose(self, sequence: Sequence) -> None:
        """Give its memory back."""
        del self._running[sequence.order]
        self._allocator.free(sequence, sequence.num_computed, finished=False)
        sequence.preempt()

    def _preempt_group(self, group: Group, now: int) -> None:
        prompt = group.leader.request.prompt_tokens
        present = [s for s in group.live if s.order in self._running and s not in self._ending]
        for sequence in present:
            self._leave(sequence, now)
        kept = self._keep(group.leader, self._groups.tokens(group))
        carrier = self._groups.preempted(group, kept=kept)
        for sequence in present:
            self._lose(sequence)
            if sequence is not carrier:
                sequence.recomputed_tokens -= prompt
        self._waiting.appendleft(carrier)

    def _cut_short(self, sequence: Sequence) -> None:
        """Take the memory of a sequence whose last token is in flight; it ends all the same."""
        del self._running[sequence.order]
        self._allocator.free(sequence, sequence.num_computed, finished=True)
        sequence.order = -1
        sequence.preemptions += 1

    # Who comes back.

    def _owner(self, sequence: Sequence) -> Sequence:
        """Who stands for a request on the host."""
        return sequence.group.leader if sequence.group is not None else sequence

    def _on_host(self, sequence: Sequence) -> int:
        """Tokens of a waiting sequence that the host has, short of the last one."""
        kept = self._preemption.kept(self._owner(sequence))
        return min(kept, sequence.num_tokens - 1)

    def _return(self, sequence: Sequence, start: int, match: Match) -> None:
        """An admitted sequence gets back what the host has of it."""
        owner = self._owner(sequence)
        if not self._preemption.kept(owner):
            return
        tokens = start - match.tokens
        if sequence.group is not None:
            prompt = owner.request.prompt_tokens
            tokens += sum(had - prompt for had in sequence.group.saved.values())
        self._stall += self._preemption.restore(owner, tokens)
        if sequence.group is None or not sequence.group.saved:
            self._preemption.drop(owner)

    def _start(self, sequence: Sequence, hit: int, now: int) -> None:
        super()._start(sequence, hit, now)
        if sequence.group is not None:
            self._groups.admitted(sequence)

    # Groups.

    def _branch(self, now: int) -> None:
        """Fork what is to be forked before anything else happens, and turn beams over."""
        groups = self._groups
        for carrier in list(groups.forking):
            if carrier.order in self._running:  # else it was preempted for another one's forks
                self._fork(carrier, now)
        if groups.turn_over():
            self._blocked = False

    def _fork(self, carrier: Sequence, now: int) -> None:
        """Fork all siblings; for them only goes who was admitted later, whatever the rule.

        Two groups that took each other's room before either had generated anything would never end.
        """
        groups = self._groups
        for child in groups.siblings(carrier):
            while not groups.fork(carrier, child):
                self._preempt(now, self._latest())
                if carrier.order not in self._running:
                    return
            child.order = self._next_order()
            self._running[child.order] = child
            groups.begin(child)
        groups.forking.remove(carrier)
        groups.complete(carrier)
        if not carrier.group.saved:
            self._preemption.drop(carrier.group.leader)

    def _place(self, sequence: Sequence, start: int) -> None:
        """A sequence of a group has room again for its first ``start`` tokens."""
        if self._groups.place(sequence, start):
            self._preemption.drop(sequence.group.leader)
