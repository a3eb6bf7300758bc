"""The GPU that a recording is of: who names it, and what it is."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, NamedTuple

from kvsim.catalog import load_gpu
from kvsim.catalog.hardware import Gpu
from kvsim.errors import ConfigError, TraceError
from kvsim.validation.arguments import Arguments

NAMED = ("gpu", "gpu_name", "device_name")
"""Fields that say which GPU it was, as the catalog or the device itself calls it."""
HARDWARE = "hardware"
"""An object that may have these fields, too."""
GIVEN = "--gpu NAME, whatever is recorded"

Source = Literal["--gpu", "recording", "folder", "assumption"]
SAID: dict[Source, str] = {
    "--gpu": "as --gpu says",
    "recording": "as recorded",
    "folder": "as its folder is named",
    "assumption": "assumed, as none is recorded; --gpu names another",
}


class Device(NamedTuple):
    """A GPU, and who says that it was this one."""

    gpu: Gpu
    source: Source

    def __str__(self) -> str:
        return f"{self.gpu.name} ({SAID[self.source]})"


def device_of(
    recorded: Arguments, given: Gpu | None, otherwise: str, source: Literal["folder", "assumption"]
) -> Device:
    """The GPU ``given`` by the user, or else the one that is recorded, or else that called ``otherwise``.

    TraceError for a name that is not in the catalog, and for two GPUs, unless the user gives one.
    """
    stated = list(statements(recorded))
    if given is not None:
        return Device(given, "--gpu")
    if not stated:
        return Device(known(f"{recorded.where} names no GPU, its {source} does", otherwise), source)
    (first, name), *others = stated
    gpu = known(first, name)
    for where, other in others:
        if known(where, other) != gpu:
            raise TraceError(
                f"{first} is {name!r} and {where} is {other!r}; accepted: one GPU, or {GIVEN}"
            )
    return Device(gpu, "recording")


def statements(recorded: Arguments) -> Iterator[tuple[str, str]]:
    """What a recording says of its GPU: where, and the name."""
    for place in (recorded, recorded.inner(HARDWARE)):
        for field in NAMED:
            name = place.text(field)
            if name:
                yield f"{place.where}.{field}", name


def known(where: str, name: str) -> Gpu:
    """The GPU of that name, which ``where`` says."""
    try:
        return load_gpu(name)
    except ConfigError as error:
        raise TraceError(f"{where}: {error}; accepted: {GIVEN}") from None
