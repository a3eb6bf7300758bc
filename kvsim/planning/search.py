"""Searches over fleets: the fewest replicas, the cheapest placement, the highest rate, the knee."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from kvsim.analysis.economics import Bill, Offer, cheapest_bill
from kvsim.planning.objective import Objective
from kvsim.planning.pool import Search
from kvsim.planning.trial import AS_IT_IS, Change, Outcome, Trial
from kvsim.planning.unloaded import Unloaded
from kvsim.scenario import Scenario

Passes = Callable[[int], Generator[Sequence[Trial], list[Outcome], bool]]
"""Whether a number is enough, as a search."""

RATE_STEP = 0.05
"""Resolution of the highest rate, as a share of the traffic."""
KNEE_LOADS = (0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 2.0, 2.5, 3.0)
"""Where the knee is looked for, as multiples of the highest rate that meets the objective."""


class Placement(NamedTuple):
    """How one replica is set up."""

    gpu: str
    tensor_parallel_size: int
    max_num_batched_tokens: int | None
    """None: what the engine takes on the GPU."""
    pipeline_parallel_size: int = 1

    @property
    def gpus(self) -> int:
        """Of one replica."""
        return self.tensor_parallel_size * self.pipeline_parallel_size

    @property
    def shards(self) -> str:
        """In words: TP 4, or TP 4, PP 2."""
        stages = self.pipeline_parallel_size
        return f"TP {self.tensor_parallel_size}" + (f", PP {stages}" if stages > 1 else "")


class Option(NamedTuple):
    """A placement with what is known of it before any replay."""

    placement: Placement
    unloaded: Unloaded

    @property
    def guess(self) -> int:
        """Replicas to try first."""
        return self.unloaded.sizing.replicas if self.unloaded.sizing else 1

    @property
    def gpus(self) -> int:
        """GPUs that the guess needs."""
        return self.guess * self.placement.gpus


class Fleet(NamedTuple):
    """Replicas of one placement, and what they cost."""

    placement: Placement
    replicas: int
    bill: Bill


@dataclass(frozen=True, slots=True)
class Bench:
    """What every trial of a plan has in common."""

    scenario: Scenario
    trace: str
    requests: int
    objective: Objective

    def trial(
        self,
        placement: Placement,
        replicas: int,
        change: Change = AS_IT_IS,
        *,
        whole: bool = False,
        keep: bool = False,
    ) -> Trial:
        """The replay of a fleet."""
        scenario = self.on(placement, replicas)
        return Trial(
            scenario, self.trace, self.requests, self.objective, change, whole=whole, keep=keep
        )

    def on(self, placement: Placement, replicas: int = 1) -> Scenario:
        """The scenario on a fleet."""
        return self.scenario.changed(**placement._asdict(), replicas=replicas)

    def enough(self, placement: Placement, change: Change = AS_IT_IS) -> Passes:
        """Whether a number of replicas meets the objective."""

        def passes(replicas: int) -> Generator[Sequence[Trial], list[Outcome], bool]:
            [outcome] = yield [self.trial(placement, replicas, change)]
            return outcome.met

        return passes


def smallest(passes: Passes, least: int, most: int, guess: int) -> Search[int | None]:
    """The smallest number from ``least`` to ``most`` that is enough; None if not even ``most`` is.

    More must not be worse. Doubles its steps away from the guess until it has one that is enough
    and one that is not, then bisects; the number before the answer was seen to fail.
    """
    failed, passed, step = least - 1, most + 1, 1
    trial = min(max(guess, least), most)
    while passed - failed > 1:
        if (yield from passes(trial)):
            passed = trial
        else:
            failed = trial
        if passed > most:
            trial = min(failed + step, most)
        elif failed < least:
            trial = max(passed - step, least)
        else:
            trial = (passed + failed) // 2
        step *= 2
    return passed if passed <= most else None


def cheapest_fleet(
    bench: Bench,
    options: Sequence[Option],
    offers: Sequence[Offer],
    most_gpus: int,
    change: Change,
) -> Search[Fleet | None]:
    """The cheapest fleet of one GPU type; of equally cheap ones that with the fewest GPUs.

    Placements come in the order of their mean sizing. Once one is found, another is looked at only
    with as many replicas as would be cheaper, that number first: one replay rules most of them out.
    """
    best: Fleet | None = None
    for option in sorted(options, key=lambda option: option.gpus):
        placement = option.placement
        fleets = affordable(placement, offers, most_gpus, best)
        if option.unloaded.refusal is not None or not fleets:
            continue
        guess = option.guess if best is None else len(fleets)
        found = yield from smallest(bench.enough(placement, change), 1, len(fleets), guess)
        if found is not None:
            best = fleets[found - 1]
    return best


def given_fleet(
    bench: Bench, options: Sequence[Option], offers: Sequence[Offer], replicas: int, change: Change
) -> Search[Fleet | None]:
    """A fleet whose size is given: the cheapest placement that is enough, or else the best."""
    fleets = [
        Fleet(option.placement, replicas, bill)
        for option in options
        if option.unloaded.fits and (bill := cheapest_bill(offers, replicas, option.placement.gpus))
    ]
    outcomes = yield [bench.trial(f.placement, replicas, change, whole=True) for f in fleets]
    tried = list(zip(fleets, outcomes, strict=True))
    enough = [fleet for fleet, outcome in tried if outcome.met]
    if enough:
        return min(enough, key=lambda fleet: cost(fleet.bill))
    return max(tried, key=lambda each: each[1].attainment)[0] if tried else None


def affordable(
    placement: Placement, offers: Sequence[Offer], most_gpus: int, best: Fleet | None
) -> list[Fleet]:
    """Fleets of 1, 2, 3 ... replicas, as far as they are allowed and better than the best."""
    fleets: list[Fleet] = []
    size = placement.gpus
    for replicas in range(1, most_gpus // size + 1):
        bill = cheapest_bill(offers, replicas, size)
        if bill is None or (best is not None and cost(bill) >= cost(best.bill)):
            break
        fleets.append(Fleet(placement, replicas, bill))
    return fleets


def cost(bill: Bill) -> tuple[float, int]:
    """By what bills are ranked: dollars, to the hundredth of a cent, then GPUs."""
    return round(bill.usd_per_hour, 4), bill.gpus_needed


def highest_rate(bench: Bench, fleet: Fleet, most: float = 8.0) -> Search[float]:
    """The highest traffic that the fleet sustains, as a multiple, in steps of :data:`RATE_STEP`."""

    def fails(steps: int) -> Generator[Sequence[Trial], list[Outcome], bool]:
        change = Change(traffic=steps * RATE_STEP)
        [outcome] = yield [bench.trial(fleet.placement, fleet.replicas, change)]
        return not outcome.met

    last = round(most / RATE_STEP)
    found = yield from smallest(fails, 1, last, round(1 / RATE_STEP) + 1)
    return ((found or last + 1) - 1) * RATE_STEP


class Load(NamedTuple):
    """A fleet under some traffic."""

    traffic: float
    outcome: Outcome

    @property
    def power(self) -> float:
        """Requests per second per second of mean response time (Kleinrock 1979)."""
        summary = self.outcome.summary
        assert summary is not None
        rate, latency = summary["request_throughput"], summary["mean_e2el_ms"]
        if not isinstance(rate, int | float) or not isinstance(latency, int | float):
            return 0.0
        return rate / latency


def loads(bench: Bench, fleet: Fleet, highest: float) -> Search[list[Load]]:
    """The fleet under the traffic that was asked about, and around the highest that it sustains."""
    wanted = sorted({1.0, *(round(load * (highest or 1.0), 4) for load in KNEE_LOADS)})
    outcomes = yield [
        bench.trial(fleet.placement, fleet.replicas, Change(traffic=load), whole=True)
        for load in wanted
    ]
    return [Load(load, outcome) for load, outcome in zip(wanted, outcomes, strict=True)]


def knee(measured: Sequence[Load]) -> Load:
    """Where throughput by mean response time is highest: beyond, waiting grows faster than work."""
    return max(measured, key=lambda load: load.power)


def sizes(bench: Bench, placement: Placement, counts: Sequence[int]) -> Search[list[Outcome]]:
    """Whole replays of fleets of several sizes."""
    return (yield [bench.trial(placement, count, whole=True) for count in counts])


def whole(bench: Bench, fleet: Fleet, *, keep: bool = False) -> Search[Outcome]:
    """The exact check of a fleet at the traffic that was asked about."""
    [outcome] = yield [bench.trial(fleet.placement, fleet.replicas, whole=True, keep=keep)]
    return outcome
