"""From names to classes, and from text to the options of their constructors.

A family of plug-ins is a plain dict from name to class; a name with a colon is imported instead
(``mypkg.alloc:MyAllocator``). The constructor is the schema: positional parameters are what the
simulation provides, keyword-only parameters are the options that a user may set.
"""

from __future__ import annotations

import importlib
import inspect
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, Generic, NamedTuple, TypeVar, get_args, get_type_hints

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


def resolve(
    family: str, seam: object, registry: Mapping[str, Callable[..., T]], name: str
) -> Callable[..., T]:
    """The class called ``name`` in a registry, or imported from ``module:Class``.

    An imported class must have the methods of ``seam``, the family's protocol.
    """
    if ":" in name:
        found = _imported(family, name)
        missing = [method for method in _methods(seam) if not hasattr(found, method)]
        if missing:
            raise ConfigError(f"{family} {name!r} has no {', '.join(missing)}")
        return found
    if name not in registry:
        raise unknown(family, name, registry)
    return registry[name]


def _methods(seam: object) -> list[str]:
    return [name for name, value in vars(seam).items() if callable(value) and name[0] != "_"]


def options(cls: Callable[..., object]) -> dict[str, Option]:
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


@dataclass(frozen=True, slots=True)
class Blueprint(Generic[T]):
    """A class whose options are settled; only what the simulation provides is missing."""

    owner: str
    cls: Callable[..., T]
    keywords: Mapping[str, object]

    @property
    def asks(self) -> dict[str, bool]:
        """Names of its positional parameters, and whether each must be given."""
        return {
            name: parameter.default is parameter.empty
            for name, parameter in inspect.signature(self.cls).parameters.items()
            if parameter.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD
        }

    def build(self, **resources: object) -> T:
        """An instance; ``resources`` fill the positional parameters, by name."""
        asks = self.asks
        for name, required in asks.items():
            if required and name not in resources:
                raise ConfigError(
                    f"{self.owner}: its constructor asks for {name!r}; "
                    f"what a simulation provides is {', '.join(sorted(resources)) or 'nothing'}"
                )
        provided = {name: resources[name] for name in asks if name in resources}
        return self.cls(**provided, **self.keywords)


def blueprint(
    owner: str,
    cls: Callable[..., T],
    settings: Mapping[str, object],
    chosen: Mapping[str, object],
) -> Blueprint[T]:
    """Settle the options of a class.

    Of ``settings``, which are common to all families, it takes those it knows; ``chosen`` are meant
    for it alone and must all be known.
    """
    known = options(cls)
    check_options(owner, known, chosen)
    keywords = {name: value for name, value in settings.items() if name in known}
    keywords |= {name: known[name].parse(owner, value) for name, value in chosen.items()}
    return Blueprint(owner, cls, keywords)


def check_options(owner: str, known: Iterable[str], chosen: Iterable[str]) -> None:
    """Refuse options that the constructor does not have."""
    names = sorted(known)
    for name in chosen:
        if name not in names:
            none = f"unknown option {name!r}; it has none"
            raise ConfigError(f"{owner}: {unknown('option', name, names) if names else none}")


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
