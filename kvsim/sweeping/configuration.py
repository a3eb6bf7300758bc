"""From points to configurations: complete, checked, each only once."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from kvsim.errors import CapacityError, ConfigError, KvsimError
from kvsim.scenario import Scenario, lifted
from kvsim.scenario_file import load
from kvsim.sweeping.matrix import Point, points
from kvsim.sweeping.spec import Spec
from kvsim.workload import TraceOptions, open_trace


class Key(NamedTuple):
    """What a result depends on."""

    scenario: str
    """The scenario's hash."""
    trace: str
    """SHA-256 of the trace."""

    @property
    def name(self) -> str:
        """Short enough for a folder."""
        return f"{self.scenario[:16]}-{self.trace[:8]}"


class Configuration(NamedTuple):
    """One cell of the matrix."""

    key: Key
    point: Point
    """What distinguishes it from the others."""
    scenario: Scenario
    trace: str
    """Absolute path, so that a worker finds it from wherever it runs."""


def configurations(spec: Spec, name: str = "sweep") -> list[Configuration]:
    """All configurations of a sweep; points that say the same are one.

    A mistake in any of them is raised here, before anything runs. A model that does not fit is not a
    mistake but a result: only the run says so.
    """
    check = _Check()
    found: dict[Key, Configuration] = {}
    for number, point in enumerate(points(spec), 1):
        try:
            made = _configuration(spec, point, check)
        except KvsimError as error:
            raise type(error)(f"{name}: {described(number, point)}: {error}") from None
        found.setdefault(made.key, made)
    return list(found.values())


def _configuration(spec: Spec, point: Point, check: _Check) -> Configuration:
    settings = {"trace": spec.trace, **point}
    trace = settings.pop("trace")
    if not isinstance(trace, str):
        raise ConfigError(f"trace = {trace!r}: must be the path of a trace")
    if trace == "-":
        raise ConfigError("a sweep reads the trace several times, so it cannot be standard input")
    scenario = _scenario(spec.scenario, settings)
    check.deployment(scenario)
    key = Key(scenario.hash, check.trace(trace, scenario))
    return Configuration(key, point, scenario, os.path.abspath(trace))


def _scenario(base: str | dict[str, object], varied: Point) -> Scenario:
    """The settings that stay with those that vary; a plug-in is set before its options."""
    ordered = dict(sorted(varied.items(), key=lambda item: "." in item[0]))
    if isinstance(base, str):
        return load(Path(base), ordered)
    return load(None, {**lifted(base, Scenario.model_fields), **ordered})


@dataclass
class _Check:
    """Looks at each deployment and each way to read a trace once."""

    _deployed: set[str] = field(default_factory=set)
    _traces: dict[tuple[str, TraceOptions], str] = field(default_factory=dict)
    _hashes: dict[str, str] = field(default_factory=dict)

    def deployment(self, scenario: Scenario) -> None:
        from kvsim.compose import deploy

        single = scenario.changed(replicas=1, workload={}, slo={}, seed=0)
        if single.hash in self._deployed:
            return
        with suppress(CapacityError):  # the run will say so
            deploy(single)
        self._deployed.add(single.hash)

    def trace(self, path: str, scenario: Scenario) -> str:
        """SHA-256 of the trace, which must be readable in the way that the scenario wants."""
        from kvsim.compose import trace_options

        options = trace_options(scenario)
        if (path, options) not in self._traces:
            opened = open_trace(path, options)
            if path not in self._hashes:
                self._hashes[path] = opened.sha256()
            self._traces[path, options] = self._hashes[path]
        return self._traces[path, options]


def described(number: int, point: Point) -> str:
    """A configuration in words: ``configuration 3 (allocator = paged, block_size = 16)``."""
    settings = ", ".join(f"{name} = {shown(value)}" for name, value in point.items())
    return f"configuration {number} ({settings})"


def shown(value: object) -> str:
    """A value of a setting as a reader would write it; a plug-in with its options in brackets."""
    if isinstance(value, str):
        return value
    if isinstance(value, dict) and "name" in value:
        options = {name: option for name, option in value.items() if name != "name"}
        return f"{value['name']}({_pairs(options.items())})" if options else str(value["name"])
    if isinstance(value, dict):
        return _pairs(value.items())
    if isinstance(value, list):
        return " ".join(shown(part) for part in value)
    return json.dumps(value, default=str)


def _pairs(items: Iterable[tuple[str, object]]) -> str:
    return " ".join(f"{name}={shown(value)}" for name, value in items)
