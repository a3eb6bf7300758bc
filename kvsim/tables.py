"""What a run leaves behind, as plain columns: the only thing that analysis and reports ever see.

Inside a simulation time is whole picoseconds; here it is seconds, and an absent time is NaN. This
module sits beside :mod:`kvsim.core`: the recorder fills the tables, everything else reads them.
"""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Sequence as Seq
from dataclasses import dataclass, fields
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]
    Flags = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class RequestTable:
    """A row for each request, in the order in which they ended."""

    row: Ints
    """Position in the trace."""
    replica: Ints
    arrival: Floats
    """Seconds, as all times. The times after it are NaN for a rejected request."""
    scheduled: Floats
    """First admission."""
    first_token: Floats
    finished: Floats
    prompt_tokens: Ints
    output_tokens: Ints
    cached_tokens: Ints
    """Prompt tokens that hit the prefix cache at the first admission."""
    preemptions: Ints
    recomputed_tokens: Ints
    stalled: Floats
    """Between tokens that preemptions tore apart, summed."""
    id: list[str | None]
    rejected: list[str | None]
    """Why it was never served."""
    tenant: list[str | None]
    """Whose it is."""

    def __len__(self) -> int:
        return len(self.row)

    def served(self) -> RequestTable:
        """The requests that were not rejected."""
        if not any(self.rejected):
            return self
        return self.where([reason is None for reason in self.rejected])

    def where(self, keep: Seq[bool] | Flags) -> RequestTable:
        """The rows for which ``keep`` is true."""
        import numpy as np

        flags = np.asarray(keep, dtype=bool)
        numbers = [getattr(self, name)[flags] for name in NUMBERS]
        texts = [_kept(getattr(self, name), flags) for name in TEXTS]
        return RequestTable(*numbers, *texts)

    def take(self, places: Ints) -> RequestTable:
        """The rows at these places, in their order."""
        numbers = [getattr(self, name)[places] for name in NUMBERS]
        texts = [[getattr(self, name)[i] for i in places.tolist()] for name in TEXTS]
        return RequestTable(*numbers, *texts)

    @classmethod
    def concatenate(cls, tables: Seq[RequestTable]) -> RequestTable:
        """The rows of several tables, one after another."""
        import numpy as np

        # mypy cannot count the columns.
        numbers = [np.concatenate([getattr(t, name) for t in tables]) for name in NUMBERS]
        texts = [[text for t in tables for text in getattr(t, name)] for name in TEXTS]
        return cls(*numbers, *texts)  # type: ignore[arg-type]


def _kept(texts: list[str | None], flags: Flags) -> list[str | None]:
    return [text for text, keep in zip(texts, flags.tolist(), strict=True) if keep]


TEXTS = ("id", "rejected", "tenant")
NUMBERS = tuple(field.name for field in fields(RequestTable) if field.name not in TEXTS)


@dataclass(frozen=True, slots=True)
class SampleTable:
    """The state of each replica now and then; slots of the six parts sum to its pool.

    A sample describes the time since the sample before it on the same replica. Rows are sorted by
    replica, then by time.
    """

    time: Floats
    """Seconds; the end of what the sample describes."""
    replica: Ints
    waiting: Ints
    running: Ints
    batch: Ints
    """Sequences in the iteration."""
    batch_tokens: Ints
    """Tokens that the iteration computed."""
    used: Ints
    internal_fragmentation: Ints
    reserved: Ints
    external_fragmentation: Ints
    cached: Ints
    free: Ints
    preemptions: Ints
    """Of the replica since its start, as are the evictions."""
    evictions: Ints

    def __len__(self) -> int:
        return len(self.time)

    def by_replica(self) -> Iterator[SampleTable]:
        """One table for each replica that has samples."""
        import numpy as np

        edges = [0, *(np.flatnonzero(np.diff(self.replica)) + 1).tolist(), len(self)]
        for low, high in pairwise(edges):
            if high > low:
                yield SampleTable(*(getattr(self, name)[low:high] for name in SAMPLE_COLUMNS))


SAMPLE_COLUMNS = tuple(field.name for field in fields(SampleTable))
POOL_PARTS = (
    "used",
    "internal_fragmentation",
    "reserved",
    "external_fragmentation",
    "cached",
    "free",
)
"""The parts of the KV pool: ``held`` by running sequences (the first three) and not."""
HELD_PARTS = POOL_PARTS[:3]
RUNNING_TOTALS = ("preemptions", "evictions")
"""Columns of samples that count from the start of the run."""


class Limits(NamedTuple):
    """What may keep a request waiting apart from memory; None where there is no such limit."""

    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None
    closed_batches: bool = False
    """A running batch admits nobody (static batching)."""


class ReplicaTotals(NamedTuple):
    """Sums over the iterations of one replica; times in seconds."""

    iterations: int
    tokens: int
    """Computed by all iterations, prompts and answers."""
    busy: float
    """Time in iterations."""
    held: float
    """Slot-seconds held by running sequences."""
    peak_held: int
    """Most slots held at once."""
    blocked_kv: float
    """Busy time in which requests waited although seats and token budget were left."""
    blocked_seats: float
    """Busy time in which requests waited and ``max_num_seqs`` ran (or a static batch did)."""
    blocked_budget: float
    """Busy time in which requests waited and the token budget of the iteration was spent."""
    saved: float = 0.0
    """Slot-seconds that running sequences would have held besides if none were shared."""


class EngineRecord(NamedTuple):
    """What the recorder knows apart from requests and token gaps."""

    total_slots: int
    """Of one replica."""
    limits: Limits
    replicas: tuple[ReplicaTotals, ...]
    samples: SampleTable


class Sink(Protocol):
    """Takes the results of a run while it runs, so that memory does not grow with its length."""

    def requests(self, table: RequestTable) -> None:
        """The next requests that ended."""
        ...

    def gaps(self, seconds: Floats, counts: Ints) -> None:
        """The next gaps between consecutive tokens of a sequence, and how often each occurred."""
        ...
