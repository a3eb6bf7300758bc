"""What kvsim finds out, as data frames: the only module that imports pandas.

``frame(thing)`` is a row for each request, sample, run, fleet, technique or configuration, with the
columns that the same thing has on disk or as JSON. pandas is not installed with kvsim itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from functools import singledispatch
from typing import TYPE_CHECKING

from kvsim.advice.answer import Advice
from kvsim.advice.document import finding
from kvsim.errors import ConfigError
from kvsim.planning.answer import Plan
from kvsim.planning.document import candidate
from kvsim.runs import RunResult
from kvsim.sweeping.results import Row
from kvsim.tables import RequestTable, SampleTable

if TYPE_CHECKING:
    from pandas import DataFrame


@singledispatch
def frame(of: object) -> DataFrame:
    """A data frame of a table, of runs, of a plan or of advice; ConfigError for anything else."""
    kinds = [kind.__name__ for kind in frame.registry if kind is not object]
    raise ConfigError(
        f"no data frame can be made of {type(of).__name__}; accepted: {', '.join(kinds)}"
    )


@frame.register(RequestTable)
@frame.register(SampleTable)
def _table(of: RequestTable | SampleTable) -> DataFrame:
    """A row for each request, or for each sample of a replica; times in seconds."""
    return _rows({field.name: getattr(of, field.name) for field in fields(of)})


@frame.register(RunResult)
def _run(of: RunResult) -> DataFrame:
    """One row: the summary of a run."""
    return _several([of])


@frame.register(list)
@frame.register(tuple)
def _several(of: Sequence[object]) -> DataFrame:
    """A row for each run, by its name, or for each configuration of a sweep, by what varies."""
    return _rows([_one(each) for each in of])


def _one(of: object) -> dict[str, object]:
    if isinstance(of, RunResult):
        return {"name": of.name, **flat(of.summary)}
    if isinstance(of, Row):
        return {**of.entry.point, "status": of.entry.status, **of.metrics}
    raise ConfigError(
        f"a list for a data frame must hold runs (RunResult) or rows of a sweep, not {of!r:.40}"
    )


@frame.register(Plan)
def _plan(of: Plan) -> DataFrame:
    """A row for each GPU type that can serve the trace, the cheapest first."""
    return _rows([flat(candidate(each, of)) for each in of.candidates])


@frame.register(Advice)
def _advice(of: Advice) -> DataFrame:
    """A row for each technique in each situation, with the change of what decides."""
    return _rows(
        [
            {
                "situation": row.situation.name,
                **{name: value for name, value in finding(one).items() if name != "changes"},
                "metric": one.decisive.measure.key if one.decisive else None,
                "before": one.decisive.before if one.decisive else None,
                "after": one.decisive.after if one.decisive else None,
                "change": one.decisive.share if one.decisive else None,
            }
            for row in of.rows
            for one in row.findings
        ]
    )


def flat(nested: Mapping[str, object]) -> dict[str, object]:
    """A mapping whose mappings are columns of their own: ``kv_memory.used``."""
    columns: dict[str, object] = {}
    for name, value in nested.items():
        if isinstance(value, Mapping):
            columns |= {f"{name}.{part}": inner for part, inner in flat(value).items()}
        else:
            columns[name] = value
    return columns


def _rows(data: Mapping[str, object] | Iterable[Mapping[str, object]]) -> DataFrame:
    try:
        from pandas import DataFrame
    except ImportError:
        raise ConfigError(
            "data frames need pandas, which is not installed: pip install 'kvsim[frames]'"
        ) from None
    return DataFrame(data if isinstance(data, Mapping) else list(data))
