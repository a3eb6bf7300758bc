"""What a sweep varies, from a TOML file: a grid, lists that advance together, random samples."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import (
    BeforeValidator,
    Discriminator,
    Field,
    PositiveInt,
    Tag,
    ValidationError,
    model_validator,
)

from kvsim.errors import ConfigError, shown, unknown
from kvsim.scenario import Settings

MOST = 100_000
"""Configurations of a sweep."""

Value = Any
"""Whatever a setting of a scenario may be; the scenario itself checks it."""
Values = Annotated[list[Value], Field(min_length=1)]
Columns = dict[str, Values]
"""Values by setting: ``block_size``, ``allocator.fit``, ``workload.request_rate`` or ``trace``."""


class Span(Settings):
    """Numbers from ``low`` to ``high``, whole if both are; ``log`` gives each factor of ten its share."""

    low: int | float
    high: int | float
    log: bool = False

    @model_validator(mode="after")
    def _rises(self) -> Self:
        if not self.low < self.high:
            raise ValueError(f"low ({self.low}) must be less than high ({self.high})")
        if self.log and self.low <= 0:
            raise ValueError(f"low ({self.low}) must be more than 0 for a logarithmic span")
        return self

    @property
    def whole(self) -> bool:
        """Whether only whole numbers are meant."""
        return isinstance(self.low, int) and isinstance(self.high, int)


class Choice(Settings):
    """One of the values of a list, each as likely."""

    among: Values


def _kind(given: object) -> str:
    return "choice" if isinstance(given, list | Choice) else "span"


Draw = Annotated[
    Annotated[Span, Tag("span")]
    | Annotated[Choice, BeforeValidator(lambda values: {"among": values}), Tag("choice")],
    Discriminator(_kind),
]
"""What a setting is drawn from."""


class Samples(Settings):
    """Random draws of several settings at once, the same for every combination of the rest."""

    count: PositiveInt
    seed: int = Field(0, ge=0)
    method: Literal["random", "latin-hypercube"] = "random"
    over: Annotated[dict[str, Draw], Field(min_length=1)]


Table = Annotated[Columns, Field(min_length=1)]


def _several(given: object) -> object:
    """``[zip]`` alone is the only one."""
    return [given] if isinstance(given, dict) else given


class Spec(Settings):
    """A sweep: what stays, and what varies. The parts combine, each with all of the others."""

    trace: str | None = None
    """Where it does not vary."""
    scenario: str | dict[str, Value] = Field(default_factory=dict)
    """Settings that stay, or the scenario file that has them."""
    grid: Columns = Field(default_factory=dict)
    """Every combination."""
    zip: Annotated[list[Table], BeforeValidator(_several)] = Field(default_factory=list)
    """Tables whose lists advance together."""
    samples: Samples | None = None

    @model_validator(mode="after")
    def _combines(self) -> Self:
        homes = list(self._homes())
        if not homes:
            raise ValueError("nothing varies; accepted: at least one of [grid], [[zip]], [samples]")
        _check_once(homes)
        for table in self.zip:
            _check_lengths(table)
        if self.trace is None and "trace" not in dict(homes):
            raise ValueError('no trace; accepted: trace = "FILE", or a list of them in [grid]')
        if self.size > MOST:
            raise ValueError(f"{self.size:,} configurations; accepted: at most {MOST:,}")
        return self

    def _homes(self) -> Iterator[tuple[str, str]]:
        """Each setting that varies, with the part of the file that says so."""
        yield from ((name, "grid") for name in self.grid)
        for number, table in enumerate(self.zip, 1):
            yield from ((name, f"zip {number}") for name in table)
        if self.samples is not None:
            yield from ((name, "samples") for name in self.samples.over)

    @property
    def size(self) -> int:
        """Combinations, before those that say the same are counted once."""
        zipped = [len(next(iter(table.values()))) for table in self.zip]
        draws = [self.samples.count] if self.samples else []
        return math.prod([*map(len, self.grid.values()), *zipped, *draws])


def _check_once(homes: list[tuple[str, str]]) -> None:
    seen: dict[str, str] = {}
    for name, home in homes:
        if name in seen:
            raise ValueError(f"{name} varies twice, in {seen[name]} and in {home}; accepted: once")
        seen[name] = home


def _check_lengths(table: Columns) -> None:
    lengths = {name: len(values) for name, values in table.items()}
    if len(set(lengths.values())) > 1:
        listed = ", ".join(f"{name} has {length}" for name, length in lengths.items())
        raise ValueError(f"the lists of a zip advance together, so they must be as long: {listed}")


MISSING = object()
REASONS = {
    "too_short": "must not be empty",
    "list_type": "must be a list of values",
    "dict_type": "must be a table",
    "model_type": "must be a list of values, or numbers from low to high: {low = 1, high = 8}",
    "string_type": "must be the name of a file",
}
"""What Pydantic says, in the words of the file."""


def read_spec(path: Path) -> Spec:
    """The sweep that a file describes; :class:`ConfigError` says in one line what is wrong."""
    try:
        given = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as error:
        raise ConfigError(f"{path}: {getattr(error, 'strerror', None) or error}") from None
    return parse_spec(given, str(path))


def parse_spec(given: Mapping[str, object], name: str = "sweep") -> Spec:
    """The sweep that a table describes."""
    try:
        return Spec.model_validate(given)
    except ValidationError as error:
        raise ConfigError(f"{name}: {_explained(error, given)}") from None


def _explained(error: ValidationError, given: Mapping[str, object]) -> str:
    first = error.errors(include_url=False)[0]
    where = ".".join(_written(first["loc"], given))
    reason = first["msg"].removeprefix("Value error, ")
    if first["type"] == "extra_forbidden":
        leaf = str(first["loc"][-1])
        return str(unknown("key", leaf, _known(first["loc"])))
    if not where:
        return reason
    if first["type"] == "missing":
        return f"{where}.{first['loc'][-1]}: is missing"
    reason = REASONS.get(first["type"], f"{reason[0].lower()}{reason[1:]}")
    return f"{where} = {shown(first['input'])}: {reason}"


def _written(location: tuple[int | str, ...], given: object) -> Iterator[str]:
    """Those parts of an error's location that stand in the file."""
    for part in location:
        inside: object = MISSING
        if isinstance(given, Mapping):
            inside = given.get(part, MISSING)
        elif isinstance(given, list) and isinstance(part, int):
            inside = given[part]
        if inside is not MISSING:
            given = inside
            yield str(part)


def _known(location: tuple[int | str, ...]) -> list[str]:
    """Keys that may stand where an unknown one stood."""
    kind = Spec if len(location) == 1 else Samples if len(location) == 2 else Span
    return list(kind.model_fields)
