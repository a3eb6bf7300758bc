"""What an engine may do against being timed. Each defence is a class; its text is ``name:value``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, get_args

from kvsim.errors import ConfigError, unknown
from kvsim.lists import listed
from kvsim.workload.isolation import Isolation

if TYPE_CHECKING:
    import numpy as np

    from kvsim.tables import Floats

LONGEST = 3600.0
"""Seconds that an answer may be held back."""


class Defence(Protocol):
    """Decides who shares prefixes, and when an answer that is ready goes out."""

    @property
    def isolation(self) -> Isolation:
        """Whose prompts share prefixes."""
        ...

    def seen(self, ttft: Floats, rng: np.random.Generator) -> Floats:
        """What a client sees of times to first token, seconds."""
        ...


@dataclass(frozen=True, slots=True)
class Nothing:
    """Everybody shares, and answers go out when they are ready."""

    isolation: Isolation = "global"

    def seen(self, ttft: Floats, rng: np.random.Generator) -> Floats:
        """As it is."""
        return ttft


@dataclass(frozen=True, slots=True)
class Salt(Nothing):
    """Namespaces of the prefix cache (vLLM's ``cache_salt``): by tenant, user or session."""

    isolation: Isolation = "tenant"


@dataclass(frozen=True, slots=True)
class Rounding(Nothing):
    """First tokens go out only at whole multiples of ``quantum`` seconds after the arrival."""

    quantum: float = 0.1

    def seen(self, ttft: Floats, rng: np.random.Generator) -> Floats:
        """Rounded up."""
        import numpy as np

        return np.ceil(ttft / self.quantum) * self.quantum


@dataclass(frozen=True, slots=True)
class Noise(Nothing):
    """First tokens are held back by random times, exponential with a mean of ``mean`` seconds."""

    mean: float = 0.1

    def seen(self, ttft: Floats, rng: np.random.Generator) -> Floats:
        """With a delay drawn for each."""
        return ttft + rng.exponential(self.mean, len(ttft))


def _nothing(text: str) -> Defence:
    if text:
        raise ConfigError(f"--defences none:{text}; accepted: none, which takes no value")
    return Nothing()


def _salt(text: str) -> Defence:
    scopes = [scope for scope in get_args(Isolation) if scope != "global"]
    for scope in scopes:
        if text == scope:
            return Salt(scope)
    if not text:
        return Salt()
    raise ConfigError(f"--defences salt:{text}; accepted: salt:{', salt:'.join(scopes)}")


def _rounding(text: str) -> Defence:
    return Rounding(quantum=_seconds("round", text)) if text else Rounding()


def _noise(text: str) -> Defence:
    return Noise(mean=_seconds("noise", text)) if text else Noise()


def _seconds(name: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value <= LONGEST:
        raise ConfigError(
            f"--defences {name}:{text}; accepted: {name}:SECONDS, above 0 and at most {LONGEST:g}"
        )
    return value


DEFENCES: Mapping[str, Callable[[str], Defence]] = {
    "none": _nothing,
    "salt": _salt,
    "round": _rounding,
    "noise": _noise,
}
"""From the name of a defence to what makes one of the text after its colon."""


def read_defences(text: str) -> dict[str, Defence]:
    """The defences in a list by commas, each under the text that names it."""
    found: dict[str, Defence] = {}
    for part in listed("--defences", text):
        name, _, value = part.partition(":")
        if name not in DEFENCES:
            raise unknown("defence", name, DEFENCES)
        found[part] = DEFENCES[name](value)
    return found
