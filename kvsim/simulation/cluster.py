"""A replay: requests arrive, a router picks a replica for each, replicas serve them."""

from __future__ import annotations

from collections.abc import Iterable

from kvsim.core import Request, Sequence
from kvsim.protocols import Observer, Router
from kvsim.simulation.arrivals import Arrivals
from kvsim.simulation.audit import Audit
from kvsim.simulation.events import Clock
from kvsim.simulation.replica import Replica


def audited(
    requests: Iterable[Request], replicas: list[Replica], router: Router, observer: Observer
) -> None:
    """The same as :func:`simulate`; raises AssertionError where an invariant does not hold."""
    audit = Audit(replicas, observer)
    simulate(audit.watch(requests), replicas, router, audit)
    audit.close()


def simulate(
    requests: Iterable[Request], replicas: list[Replica], router: Router, observer: Observer
) -> None:
    """Serve every request to its end, or reject it with a reason."""
    env = Clock()

    def deliver(sequence: Sequence) -> None:
        replica = replicas[router.route(sequence.request, replicas, env.now)]
        reason = replica.refusal(sequence)
        if reason is None:
            replica.submit(sequence)
        else:
            observer.rejected(sequence.request, replica.index, sequence.arrival, reason)
            arrivals.ended(sequence)

    arrivals = Arrivals(env, requests, deliver)
    for replica in replicas:
        replica.attach(env, observer, arrivals.ended)
    env.run()
    assert not arrivals.turns_left, "a turn waits for a session that never began"
    assert all(not replica.queue_length for replica in replicas), "a request was never served"
