"""What can go wrong at the edge, with the exit code that the command line returns for it.

Every error is one readable line: what was read, where, what was seen, and what is accepted. All of
them can be rebuilt from their own ``args`` (SimPy re-raises exceptions as ``type(e)(*e.args)``).
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class KvsimError(Exception):
    """Any mistake that the user can mend; printed as one line, never as a traceback."""

    exit_code = 1


class ConfigError(KvsimError):
    """An option, name or file of the configuration is wrong."""

    exit_code = 2


class TraceError(KvsimError):
    """A request trace cannot be read."""

    exit_code = 3


class CapacityError(KvsimError):
    """The configuration cannot exist: the model, or one request, does not fit in the memory."""

    exit_code = 4


class SloError(KvsimError):
    """The run finished but missed a service-level objective named by ``--fail-on``."""

    exit_code = 5


class VerificationError(KvsimError):
    """An executed run gave other outputs than the same model over contiguous memory."""

    exit_code = 6


def shown(value: object) -> str:
    """A value as an error message shows it: on one line and not longer than a glance."""
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:36]}..."


def unknown(kind: str, name: str, known: Iterable[str]) -> ConfigError:
    """An error for a name that is not in a registry, suggesting the nearest one that is."""
    choices = sorted(known)
    lowered = {choice.lower(): choice for choice in choices}
    near = difflib.get_close_matches(name.lower(), lowered, n=1, cutoff=0.5)
    hint = f"; did you mean {lowered[near[0]]!r}?" if near else ""
    listed = ", ".join(choices) if len(choices) <= 16 else f"{len(choices)} names"
    return ConfigError(f"unknown {kind} {shown(name)}{hint} (known: {listed})")
