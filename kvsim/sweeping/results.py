"""What a sweep has found: rows of settings and metrics, the best of them, and their Pareto set."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from kvsim.errors import ConfigError, unknown
from kvsim.sweeping.ledger import Entry, Ledger

Scores = tuple[float, ...]
Cell = str | int | float | bool | None

SMALLER = re.compile(
    r".*_ms|duration|num_(gpus|replicas|rejected|preemptions|evictions)|recomputed_tokens|"
    r"queue_delay_growth|kv_memory\.(internal_fragmentation|reserved|external_fragmentation)"
)
LARGER = re.compile(
    r".*(throughput|goodput)(_per_gpu)?|completed|prefix_cache_(hits|hit_rate)|kv_blocks_total"
)


class Metric(NamedTuple):
    """A number to choose by."""

    name: str
    sign: int
    """1 if larger is better, -1 if smaller is."""


def read_metric(text: str, known: Sequence[str]) -> Metric:
    """A metric by its key; ``min:KEY`` and ``max:KEY`` say what is better where it is not plain."""
    direction, colon, name = text.rpartition(":")
    if colon and direction not in ("min", "max"):
        raise ConfigError(f"metric {text!r}: must be a key of the results, min:KEY or max:KEY")
    if not known:
        raise ConfigError(f"metric {text!r}: no configuration has a result yet")
    if name not in known:
        raise unknown("metric", name, known)
    if direction == "min" or (not direction and SMALLER.fullmatch(name)):
        return Metric(name, -1)
    if direction == "max" or LARGER.fullmatch(name):
        return Metric(name, 1)
    raise ConfigError(f"metric {name!r}: say whether min:{name} or max:{name} is the best")


class Row(NamedTuple):
    """One configuration and what came of it."""

    entry: Entry
    metrics: dict[str, Cell]
    """The summary, flat, with ``num_gpus`` and throughputs per GPU; empty without a result."""

    def scores(self, metrics: Sequence[Metric]) -> Scores | None:
        """The metrics, larger being better; None if the run lacks one."""
        found = [(metric.sign, self.metrics.get(metric.name)) for metric in metrics]
        scores = tuple(sign * value for sign, value in found if isinstance(value, int | float))
        return scores if len(scores) == len(metrics) else None


def load_sweep(folder: Path) -> list[Row]:
    """All rows of a sweep, in the order of its matrix, finished or not; at least one."""
    with Ledger.open(folder) as ledger:
        rows = [Row(entry, _metrics(entry)) for entry in ledger.entries()]
        if not rows:
            raise ledger.unbegun
        return rows


def _metrics(entry: Entry) -> dict[str, Cell]:
    if entry.result is None:
        return {}
    flat = dict(_flat(entry.result["summary"]))
    gpus = _gpus(entry.scenario)
    flat["num_gpus"] = gpus
    for name in ("request_goodput", "output_throughput", "total_token_throughput"):
        value = flat.get(name)
        flat[f"{name}_per_gpu"] = value / gpus if isinstance(value, int | float) else None
    return flat


def _flat(summary: object) -> Iterator[tuple[str, Cell]]:
    assert isinstance(summary, dict)
    for name, value in summary.items():
        if isinstance(value, dict):
            yield from ((f"{name}.{part}", number) for part, number in value.items())
        else:
            yield name, value


def _gpus(scenario: dict[str, object]) -> int:
    product = 1
    for name in ("tensor_parallel_size", "pipeline_parallel_size", "replicas"):
        value = scenario[name]
        assert isinstance(value, int)
        product *= value
    return product


def metric_names(rows: Sequence[Row]) -> list[str]:
    """Every metric that some row has."""
    return list(dict.fromkeys(name for row in rows for name in row.metrics))


def best(rows: Sequence[Row], metric: Metric) -> list[Row]:
    """The rows that have the metric, the best first; equals stay in the order of the matrix."""
    return [row for _, row in _ranked(rows, [metric])]


def pareto(rows: Sequence[Row], metrics: Sequence[Metric]) -> list[Row]:
    """The rows that no other beats: is better in one metric and at least as good in all.

    The best by the first metric comes first. Rows that lack one of the metrics are left out.
    """
    front: list[tuple[Scores, Row]] = []
    # Whatever beats a row stands before it in the ranking.
    for scores, row in _ranked(rows, metrics):
        if not any(_beats(other, scores) for other, _ in front):
            front.append((scores, row))
    return [row for _, row in front]


def _ranked(rows: Sequence[Row], metrics: Sequence[Metric]) -> list[tuple[Scores, Row]]:
    scored = [(scores, row) for row in rows if (scores := row.scores(metrics)) is not None]
    return sorted(scored, key=lambda pair: pair[0], reverse=True)


def _beats(one: Scores, other: Scores) -> bool:
    return one != other and all(a >= b for a, b in zip(one, other, strict=True))
