"""From names to classes, and from text to the options of their constructors.

A family of plug-ins is a plain dict from name to class; a name with a colon is imported instead
(``mypkg.alloc:MyAllocator``). The constructor is the schema: positional parameters are what the
simulation provides, keyword-only parameters are the options a user may set.
"""

from __future__ import annotations

import importlib
import inspect
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from types import SimpleNamespace
from typing import Any, NamedTuple, TypeVar, get_args, get_type_hints

from kvsim.errors import ConfigError, unknown

T = TypeVar("T")


class Option(NamedTuple):
    """One keyword-only parameter of a constructor."""

    name: str
    annotation: Any
    default: object
    """``inspect.Parameter.empty`` when it has none."""

    def parse(self, owner: str, value: object) -> object:
        """The value as the annotated type; text is read leniently, anything else strictly."""
        from pydantic import TypeAdapter, ValidationError

        if value == "none" and type(None) in get_args(self.annotation):
            return None
        try:
            adapter = TypeAdapter(self.annotation)
            return adapter.validate_python(value, strict=not isinstance(value, str))
        except ValidationError as error:
            reason = error.errors()[0]["msg"].lower()
            raise ConfigError(f"{owner}.{self.name} = {value!r}: {reason}") from None


def resolve(family: str, registry: Mapping[str, type[T]], name: str) -> type[T]:
    """The class called ``name`` in a registry, or imported from ``module:Class``."""
    if ":" in name:
        return _imported(family, name)
    if name not in registry:
        raise unknown(family, name, registry)
    return registry[name]


def options(cls: type) -> dict[str, Option]:
    """The options of a class, by name."""
    keywords = {
        name: parameter
        for name, parameter in inspect.signature(cls).parameters.items()
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY
    }
    written = {
        name: Any if parameter.annotation is parameter.empty else parameter.annotation
        for name, parameter in keywords.items()
    }
    scope = getattr(inspect.getattr_static(cls, "__init__"), "__globals__", {})
    types = get_type_hints(SimpleNamespace(__annotations__=written), scope)
    return {name: Option(name, types[name], keywords[name].default) for name in keywords}


def construct(
    owner: str,
    cls: type[T],
    resources: Mapping[str, Callable[[], object]],
    settings: Mapping[str, object],
    chosen: Mapping[str, object],
) -> T:
    """An instance of ``cls``.

    ``resources`` fill its positional parameters by name. Of ``settings``, which are common to all
    families, it takes the options it knows; ``chosen`` are meant for it and must all be known.
    """
    known = options(cls)
    check_options(owner, known, chosen)
    arguments = _provided(owner, cls, resources)
    arguments |= {name: value for name, value in settings.items() if name in known}
    arguments |= {name: known[name].parse(owner, value) for name, value in chosen.items()}
    return cls(**arguments)


def check_options(owner: str, known: Iterable[str], chosen: Iterable[str]) -> None:
    """Refuse options that the constructor does not have."""
    names = sorted(known)
    for name in chosen:
        if name not in names:
            listed = f"known are {', '.join(names)}" if names else "it has none"
            raise ConfigError(f"{owner}: unknown option {name!r}; {listed}")


def _provided(
    owner: str, cls: type, resources: Mapping[str, Callable[[], object]]
) -> dict[str, object]:
    positional = [
        parameter
        for parameter in inspect.signature(cls).parameters.values()
        if parameter.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD
    ]
    for parameter in positional:
        if parameter.name not in resources and parameter.default is parameter.empty:
            raise ConfigError(
                f"{owner}: its constructor asks for {parameter.name!r}; "
                f"positional parameters may be {', '.join(sorted(resources))}"
            )
    return {p.name: resources[p.name]() for p in positional if p.name in resources}


def _imported(family: str, name: str) -> type:
    module, _, attribute = name.partition(":")
    here = os.getcwd()
    if here not in sys.path:
        sys.path.append(here)
    try:
        found = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(f"{family} {name!r} cannot be imported: {error}") from None
    if not isinstance(found, type):
        raise ConfigError(f"{family} {name!r} is not a class")
    return found
