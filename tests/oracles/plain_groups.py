"""The plain loop with samples and beams: every sequence has a block table, written out in full.

Without memory pressure, for what it is compared with is how forks share, copy and drop blocks.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from kvsim.core import Request
from kvsim.protocols import CostModel
from kvsim.scheduling.turnover import Turnover
from tests.oracles.plain_loop import Limits, Live, PlainLoop


@dataclass(eq=False)
class Family:
    """The sequences of one request."""

    live: list[Live]
    turnover: Turnover | None
    ended: list[Live] = field(default_factory=list)


class PlainGroups(PlainLoop):
    """Afterwards ``ended`` holds one sequence of each request, ``held`` the blocks of every step."""

    def __init__(
        self,
        requests: list[Request],
        limits: Limits,
        cost: CostModel,
        *,
        turnover: float,
        seed: int,
    ) -> None:
        super().__init__(requests, limits, cost)
        self.rate, self.seed = turnover, seed
        self.families: list[Family] = []
        self.forking: list[Live] = []
        self.held: list[int] = []

    def schedule(self, now: int) -> list[tuple[Live, int]]:
        for leader in self.forking:
            self.split(leader)
        self.forking = []
        for family in self.families:
            generated = family.live[0].tokens - family.live[0].request.prompt_tokens
            if family.turnover is not None and family.turnover.due <= generated:
                dropped, forked = (family.live[place] for place in family.turnover.draw())
                self.blocks.release(dropped)
                self.share(forked, dropped)
        work = super().schedule(now)
        assert all(not live.preemptions for live in self.running), (
            "too little memory for this oracle"
        )
        self.held.append(self.limits.num_blocks - 1 - len(self.blocks.free))
        return work

    def split(self, leader: Live) -> None:
        request = leader.request
        family = Family([leader], None)
        for _ in range(request.width - 1):
            child = Live(request, leader.arrival, leader.tokens, leader.computed)
            child.scheduled, child.first_token, child.decodes = (
                leader.scheduled,
                leader.first_token,
                True,
            )
            self.share(leader, child)
            self.running.append(child)
            family.live.append(child)
        if request.beam_width > 1:
            family.turnover = Turnover(self.rate, request.beam_width, self.seed, request.row)
        self.families.append(family)

    def share(self, parent: Live, child: Live) -> None:
        """Full blocks by reference, the one that both will write to by copy."""
        full = parent.computed // self.limits.block_size
        child.table = parent.table[:full]
        self.blocks.touch(child.table)
        if parent.computed % self.limits.block_size:
            child.table.append(self.blocks.take())

    def complete(self, work: list[tuple[Live, int]], now: int) -> None:
        known = len(self.ended)
        super().complete(work, now)
        fresh, self.ended = self.ended[known:], self.ended[:known]
        for live in fresh:
            family = next((one for one in self.families if live in one.live), None)
            if family is None:
                self.ended.append(live)
                continue
            family.live.remove(live)
            if not family.live:
                self.families.remove(family)
                self.ended.append(live)
        grouped = {live for family in self.families for live in family.live}
        self.forking += [
            live
            for live, _ in work
            if live in self.running
            and live.request.width > 1
            and live.tokens == live.request.prompt_tokens + 1
            and live not in grouped
        ]
