"""From the requests of a trace to the runs of blocks that they ask of a prefix cache."""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from kvsim.analysis.accesses import Accesses
from kvsim.core import Request
from kvsim.errors import ConfigError

if TYPE_CHECKING:
    from kvsim.tables import Ints


class _Columns:
    """What is kept of the requests: 8 bytes for each number."""

    def __init__(self, requests: Iterable[Request]) -> None:
        self.ids = array("Q")
        self.counts = array("q")
        self.widths = array("q")
        self.prompts = array("q")
        self.arrivals = array("d")
        self.sessions = array("q")
        self.tenants = array("q")
        self.session_names: dict[str, int] = {}
        self.tenant_names: dict[str, int] = {}
        for request in requests:
            self._add(request)

    def _add(self, request: Request) -> None:
        ids = request.hash_ids or ()
        self.ids.extend(ids)
        self.counts.append(len(ids))
        self.widths.append(request.hash_block)
        self.prompts.append(request.prompt_tokens)
        self.arrivals.append(float("nan") if request.arrival is None else request.arrival)
        self.sessions.append(_index(request.session, self.session_names))
        self.tenants.append(_index(request.tenant, self.tenant_names))


def _index(name: str | None, names: dict[str, int]) -> int:
    """The number of a name, a new one for a new name; -1 without a name."""
    return -1 if name is None else names.setdefault(name, len(names))


def accesses_of(
    requests: Iterable[Request], block_size: int | None = None, *, partial: str = "drop"
) -> Accesses:
    """The blocks of ``block_size`` tokens that the prompts fill, with the tokens a hit saves.

    Without a size, that of the trace's hash ids. ``partial``: a last block that a prompt fills only
    in part is left out (``drop``), as engines do, or takes room and counts as a block, though its
    tokens are computed anyway (``keep``). Only what ids describe can be asked for.
    """
    if partial not in ("drop", "keep"):
        raise ConfigError(f"partial is {partial!r}; accepted: drop, keep")
    columns = _Columns(requests)
    counts, widths, prompts = (
        np.frombuffer(column, dtype=np.int64)
        for column in (columns.counts, columns.widths, columns.prompts)
    )
    size = block_size or _common(widths)
    first = np.concatenate(([0], np.cumsum(counts)))
    row_width = np.repeat(widths, counts)
    index = np.arange(first[-1]) - np.repeat(first[:-1], counts)
    described = np.repeat(np.minimum(prompts, counts * widths), counts)
    start, end = index * row_width, np.minimum((index + 1) * row_width, described)
    full = end // size - start // size
    last = (index + 1 == np.repeat(counts, counts)) & (described % size > 0)
    blocks = full + last if partial == "keep" else full
    accesses = Accesses(
        size,
        _runs(np.frombuffer(columns.ids, dtype=np.uint64), row_width, first),
        blocks,
        full * size,
        first,
        prompts,
        np.frombuffer(columns.arrivals, dtype=np.float64),
        np.frombuffer(columns.sessions, dtype=np.int64),
        list(columns.session_names),
        np.frombuffer(columns.tenants, dtype=np.int64),
        list(columns.tenant_names),
    )
    return accesses.kept(blocks > 0)


def _common(widths: Ints) -> int:
    """The one block size of the trace; raises ``ConfigError`` if there are several, or none."""
    found = np.unique(widths[widths > 0])
    if len(found) != 1:
        sizes = ", ".join(map(str, found[:4].tolist()))
        seen = f"hash ids that stand for {sizes} tokens" if sizes else "no hash ids"
        raise ConfigError(
            f"--block-size is needed: the trace has {seen}; accepted: a number of tokens"
        )
    return int(found[0])


def _runs(ids: np.typing.NDArray[np.uint64], widths: Ints, first: Ints) -> Ints:
    """A number for each different id with all that precedes it."""
    if len(ids) == 0:
        return np.zeros(0, dtype=np.int64)
    _, occurs, run = np.unique(ids, return_index=True, return_inverse=True)
    run = run.astype(np.int64)
    before = np.concatenate(([-1], run[:-1]))
    before[first[:-1][first[:-1] < len(ids)]] = -1
    if (before[occurs][run] == before).all() and (widths[occurs][run] == widths).all():
        return run  # every id always follows the same one, so it names its prefix too
    return _chained(run, widths, first)


def _chained(run: Ints, widths: Ints, first: Ints) -> Ints:
    """The same where equal ids also follow different prefixes."""
    children: dict[tuple[int, int], int] = {}
    names = run.tolist()
    bounds = first.tolist()
    sizes = widths.tolist()
    for start, end in pairwise(bounds):
        node = -sizes[start] if end > start else 0  # a root for each size of ids
        for at in range(start, end):
            node = names[at] = children.setdefault((node, names[at]), len(children))
    return np.array(names, dtype=np.int64)
