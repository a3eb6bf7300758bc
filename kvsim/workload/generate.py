"""Synthetic workloads: seeded, drawn in chunks by numpy, streamed, so that size costs no memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from collections.abc import Sequence as Seq
from itertools import count, islice
from typing import TYPE_CHECKING, NamedTuple

from kvsim.core import Request
from kvsim.errors import ConfigError
from kvsim.workload.arrivals import arrival_process
from kvsim.workload.distributions import Distribution, choices, distribution, zipf_weights
from kvsim.workload.spec import PrefixTree, WorkloadSpec
from kvsim.workload.timeline import within_bounds

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]

SINGLE = "fixed:1"
MOST_TURNS = 1_000
"""Of a session, on average."""


class _Turns(NamedTuple):
    """The turns of a chunk of sessions, one after another, as columns."""

    session: Ints
    """Index of the session in the chunk."""
    first: NDArray[np.bool_]
    prompt: Ints
    output: Ints
    think_time: NDArray[np.float64]


def generate(spec: WorkloadSpec, seed: int = 0) -> Iterator[Request]:
    """The requests of a workload, the same for the same seed, turns of a session side by side.

    Raises ``ConfigError`` for a distribution or process that does not exist.
    """
    if type(seed) is not int or seed < 0:
        raise ConfigError(f"--seed is {seed!r}; accepted: a whole number of at least 0")
    return islice(within_bounds(_Generator(spec, seed).requests()), spec.requests)


class _Generator:
    def __init__(self, spec: WorkloadSpec, seed: int) -> None:
        import numpy as np

        self.spec = spec
        self.turns = distribution(spec.sessions.turns, lambda _: None)
        _require_few(self.turns, spec.sessions.turns)
        self.think = distribution(spec.sessions.think_time, lambda request: request.think_time)
        self.new = distribution(spec.prompt, lambda request: request.prompt_tokens)
        self.output = distribution(spec.output, lambda request: request.output_tokens)
        # A stream of its own for each quantity: changing one leaves the others as they were.
        streams = np.random.SeedSequence(seed).spawn(7)
        arrivals, *others = (np.random.Generator(np.random.PCG64(own)) for own in streams)
        self.rng_turns, self.rng_think, self.rng_new, self.rng_output, rng_prefix = others[:5]
        self.owners = _Owners(spec.tenants, spec.users, others[5])
        process = arrival_process(spec.arrival)
        self.starts = process.times(spec.rate / max(1.0, self.turns.mean), arrivals)
        self.prefixes = _Prefixes(spec.prefix, spec.hash_block, rng_prefix)
        self.next_id = self.prefixes.size
        self.rows = count()
        self.is_single = spec.sessions.turns == SINGLE
        self.shares = self.prefixes.size > 0 or not self.is_single

    def requests(self) -> Iterator[Request]:
        sessions = 0
        for starts in self.starts:
            turns = self._turns(len(starts))
            yield from self._chunk(starts.round(6).tolist(), turns, sessions)
            sessions += len(starts)

    def _turns(self, sessions: int) -> _Turns:
        """Draw the turns of some sessions; each prompt holds all that was said before."""
        import numpy as np

        spec = self.spec
        counts = _whole(self.turns, self.rng_turns, sessions, 100_000)
        session = np.repeat(np.arange(sessions), counts)
        first = np.zeros(len(session), dtype=bool)
        first[np.cumsum(counts) - counts] = True
        room = spec.max_tokens - spec.prefix.tokens
        new = _whole(self.new, self.rng_new, len(session), room - 1)
        output = _whole(self.output, self.rng_output, len(session), spec.max_tokens)
        output = np.where(first, np.minimum(output, room - new), output)
        said = np.cumsum(new + output)
        before = (said - new - output)[first]
        total = spec.prefix.tokens + said - np.repeat(before, counts)
        keep = total <= spec.max_tokens
        pause = np.maximum(self.think.draw(self.rng_think, len(session)), 0.0).round(3)
        prompt = total - output
        return _Turns(session[keep], first[keep], prompt[keep], output[keep], pause[keep])

    def _chunk(self, starts: list[float], turns: _Turns, sessions: int) -> Iterator[Request]:
        """Requests of the drawn turns, with ids and names."""
        spec, block = self.spec, self.spec.hash_block
        prefixes = self.prefixes.draw(len(starts))
        owners = self.owners.draw(len(starts))
        shared: list[int] = []
        columns = zip(*(column.tolist() for column in turns), strict=True)
        highest = own = self.next_id
        for session, first, prompt, output, pause in columns:
            if first:
                shared, own = prefixes(session), highest
            end = own - len(shared) - (-prompt // block)
            highest = max(highest, end)
            ids = shared + list(range(own, end)) if self.shares else None
            arrival, think_time = (starts[session], None) if first else (None, pause)
            name = None if self.is_single else f"s{sessions + session}"
            size = block if ids else 0
            service = None, spec.n, spec.beam_width, 0, *owners[session]
            row = next(self.rows)
            yield Request(row, arrival, prompt, output, ids, size, name, think_time, *service)
        self.next_id = highest


class _Owners:
    """Draws whose sessions are: tenants by Zipf's law, their users all alike."""

    def __init__(self, tenants: int, users: int, rng: np.random.Generator) -> None:
        self.rng = rng
        self.users = users
        self.weights = zipf_weights(tenants, 1.0) if tenants else None

    def draw(self, sessions: int) -> Seq[tuple[str | None, str | None]]:
        """Tenant and user of each session."""
        if self.weights is None:
            return [(None, None)] * sessions
        tenants = choices(self.weights, self.rng, sessions).tolist()
        if not self.users:
            return [(f"t{tenant}", None) for tenant in tenants]
        users = self.rng.integers(self.users, size=sessions).tolist()
        pairs = zip(tenants, users, strict=True)
        return [(f"t{tenant}", f"u{user}") for tenant, user in pairs]


def _require_few(turns: Distribution, text: str) -> None:
    """Some thousand sessions are drawn at once: their turns must fit into the memory."""
    if not turns.mean <= MOST_TURNS:
        raise ConfigError(
            f"--turns {text} is {turns.mean:g} turns on average; accepted: at most {MOST_TURNS:,}"
        )


def _whole(kind: Distribution, rng: np.random.Generator, size: int, most: int) -> Ints:
    """Draws as whole numbers from 1 to ``most``."""
    import numpy as np

    return np.clip(np.rint(kind.draw(rng, size)), 1, most).astype(np.int64)


class _Prefixes:
    """Draws branches of the prefix tree, and the hash ids on the way to them."""

    def __init__(self, tree: PrefixTree, hash_block: int, rng: np.random.Generator) -> None:
        self.tree = tree
        self.rng = rng
        self.weights = zipf_weights(tree.groups, tree.zipf)
        blocks, over = divmod(tree.tokens // hash_block, tree.depth)
        self.blocks = [blocks + (level < over) for level in range(tree.depth)]
        """Blocks of a node at each level."""
        nodes = [tree.groups ** (level + 1) for level in range(tree.depth)]
        sizes = [many * own for many, own in zip(nodes, self.blocks, strict=True)]
        self.bases = [sum(sizes[:level]) for level in range(tree.depth)]
        """First id of each level."""
        self.size = sum(sizes)

    def draw(self, sessions: int) -> Callable[[int], list[int]]:
        """A branch for each of some sessions; returns the ids by the session's index."""
        import numpy as np

        paths = []
        node = np.zeros(sessions, dtype=np.int64)
        for _ in range(self.tree.depth):
            node = node * self.tree.groups + choices(self.weights, self.rng, sessions)
            paths.append(node.tolist())

        def ids(session: int) -> list[int]:
            shared: list[int] = []
            for path, base, blocks in zip(paths, self.bases, self.blocks, strict=True):
                first = base + path[session] * blocks
                shared += range(first, first + blocks)
            return shared

        return ids
