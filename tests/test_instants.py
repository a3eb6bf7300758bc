"""What happens at one instant: iterations end, then requests arrive, then engines start.

Several replicas whose iterations all take 10 ms end them together, and users who answer at once, or
after a whole number of iterations, arrive just then. Nothing may depend on when an event was planned.
"""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvsim.core import PICOSECONDS, Request
from kvsim.costs.fixed import Fixed
from kvsim.memory.paged import Paged
from kvsim.protocols import Router
from kvsim.registry import blueprint
from kvsim.routing import ROUTERS
from kvsim.scheduling import SCHEDULERS
from kvsim.simulation.cluster import audited
from kvsim.simulation.replica import Replica
from tests.oracles.replay import Log

STEP = PICOSECONDS // 100


class Placed(Log):
    """Remembers which replica served a request, too."""

    def __init__(self) -> None:
        super().__init__()
        self.replica_of: dict[int, int] = {}

    def finished(self, sequence, replica):  # type: ignore[no-untyped-def]
        super().finished(sequence, replica)
        self.replica_of[sequence.request.row] = replica


def router(name: str) -> Router:
    import numpy as np

    return blueprint("router", ROUTERS[name], {}, {}).build(rng=np.random.default_rng(7))


def serve(
    requests: list[Request],
    *,
    replicas: int,
    route: str = "round-robin",
    scheduler: str = "chunked",
    seats: int = 8,
    leaps: bool = True,
) -> Placed:
    log, engines = Placed(), []
    for index in range(replicas):
        pool = Paged(1 + 12, block_size=4)
        ordered = SCHEDULERS[scheduler](pool, max_num_seqs=seats, leaps=leaps)  # type: ignore[call-arg]
        engines.append(Replica(index, ordered, pool, Fixed(step_time=0.01), check=True))
    audited(requests, engines, router(route), log)
    return log


@st.composite
def conversations(draw: st.DrawFn) -> list[Request]:
    """Requests and turns that arrive when iterations end."""
    requests: list[Request] = []
    begun: set[str] = set()
    arrival = 0
    for row in range(draw(st.integers(2, 16))):
        arrival += draw(st.sampled_from([0, 0, 1, 5]))
        session = draw(st.sampled_from(["a", "b", "c", None]))
        turn = session in begun and draw(st.booleans())
        if session:
            begun.add(session)
        requests.append(
            Request(
                row,
                None if turn else arrival / 100,
                draw(st.integers(1, 20)),
                draw(st.integers(1, 12)),
                session=session,
                think_time=draw(st.sampled_from([0.0, 0.0, 0.01, 0.05])) if turn else None,
            )
        )
    return requests


@pytest.mark.parametrize("scheduler", sorted(SCHEDULERS))
@settings(max_examples=250, deadline=None)
@given(
    requests=conversations(),
    replicas=st.integers(1, 4),
    route=st.sampled_from(sorted(ROUTERS)),
    seats=st.sampled_from([1, 2, 8]),
)
def test_leaps_change_nothing_where_instants_coincide(
    scheduler: str, requests: list[Request], replicas: int, route: str, seats: int
) -> None:
    outcomes = []
    for leaps in (True, False):
        log = serve(
            requests, replicas=replicas, route=route, scheduler=scheduler, seats=seats, leaps=leaps
        )
        outcomes.append((sorted(log.seen), log.replica_of, log.iterations, sorted(log.gaps)))
    assert outcomes[0] == outcomes[1]


@pytest.mark.parametrize("replicas", [1, 2])
def test_an_answer_that_is_answered_at_once_is_in_the_next_iteration(replicas: int) -> None:
    # Every replica decodes a long answer throughout, so that none is idle when the turn arrives.
    busy = [Request(row, 0.0, 4, 30) for row in range(replicas)]
    turns = [
        Request(10, 0.0, 4, 3, session="a"),
        Request(11, None, 4, 3, session="a", think_time=0.0),
    ]
    seen = {one.row: one for one in serve(busy + turns, replicas=replicas).seen}
    assert seen[11].scheduled == seen[10].finished == 3 * STEP


def test_a_router_sees_what_has_ended_by_now() -> None:
    # The second replica ends its only request at 30 ms, when the third request arrives.
    requests = [Request(0, 0.0, 4, 4), Request(1, 0.0, 4, 3), Request(2, 0.03, 4, 3)]
    log = serve(requests, replicas=2, route="least-loaded")
    assert log.replica_of[2] == 1
