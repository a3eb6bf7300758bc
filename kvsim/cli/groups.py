"""Flags that belong together as one parameter of a command: the fields of a dataclass."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import MISSING, fields, is_dataclass
from typing import Any, get_type_hints


def grouped(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command a flag for each field of those of its parameters that are dataclasses."""
    parameters = inspect.signature(command, eval_str=True).parameters.values()
    groups: dict[str, Any] = {
        p.name: p.annotation for p in parameters if is_dataclass(p.annotation)
    }

    def run(**given: Any) -> None:
        made = {name: kind(**_taken(kind, given)) for name, kind in groups.items()}
        command(**given, **made)

    flags = [
        flag
        for parameter in parameters
        for flag in (_flags(parameter.annotation) if parameter.name in groups else [parameter])
    ]
    run.__doc__ = command.__doc__
    run.__signature__ = inspect.Signature(_in_order(flags))  # type: ignore[attr-defined]
    run.__annotations__ = {flag.name: flag.annotation for flag in flags}
    return run


def _taken(kind: Any, given: dict[str, Any]) -> dict[str, Any]:
    """The fields of a group, taken out of what was given."""
    return {field.name: given.pop(field.name) for field in fields(kind)}


def _flags(kind: Any) -> Iterator[inspect.Parameter]:
    hints = get_type_hints(kind, include_extras=True)
    for field in fields(kind):
        default = inspect.Parameter.empty if field.default is MISSING else field.default
        yield inspect.Parameter(
            field.name,
            inspect.Parameter.POSITIONAL_OR_KEYWORD,
            default=default,
            annotation=hints[field.name],
        )


def _in_order(flags: list[inspect.Parameter]) -> list[inspect.Parameter]:
    """As a signature wants them: positional ones before those that are keywords only."""
    return sorted(flags, key=lambda flag: flag.kind)
