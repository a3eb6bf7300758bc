"""From a scenario to an engine on a device."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch

from kvsim.errors import CapacityError, ConfigError, unknown
from kvsim.execution.decoder import Decoder
from kvsim.execution.engine import Engine
from kvsim.execution.fused import Kernels
from kvsim.execution.graphs import GraphedEngine
from kvsim.execution.memory import KVMemory
from kvsim.execution.operators import Operators, References
from kvsim.execution.replica import Executed
from kvsim.execution.shape import Shape, shape_of
from kvsim.execution.swapping import Swapping
from kvsim.execution.verify import Verifier
from kvsim.layout import KVLayout
from kvsim.memory.block_table import Mapped
from kvsim.protocols import Preemption
from kvsim.scheduling.preemption.recompute import Recompute
from kvsim.scheduling.preemption.swap import Swap


@dataclass(frozen=True, slots=True)
class Device:
    """Where iterations are computed, in which type and by what."""

    name: str
    """As torch calls it."""
    dtype: torch.dtype
    operators: Callable[[], Operators]
    engine: Callable[..., Engine]


DEVICES: dict[str, Device] = {
    "gpu": Device("cuda", torch.bfloat16, Kernels, GraphedEngine),
    "cpu": Device("cpu", torch.float32, References, Engine),
}
"""Executors by the name that ``--executor`` takes."""


class Execution:
    """Makes engines for one scenario and answers for them in the end."""

    def __init__(
        self, executor: str, layout: KVLayout, *, seats: int, seed: int, verify: bool
    ) -> None:
        self._device = device_of(executor)
        self._layout = layout
        self._shape = shape_of(layout.model)
        check_weights(self._shape, self._device)
        self._seats, self._seed = seats, seed
        self._witness = Verifier if verify else None
        self._engines: list[Engine] = []

    @property
    def label(self) -> str:
        """Where the times come from."""
        return f"executed on {self._hardware}"

    @property
    def _hardware(self) -> str:
        return torch.cuda.get_device_name() if self._device.name == "cuda" else self._device.name

    def replica_on(
        self, allocator: Mapped, way: Preemption, longest: int
    ) -> tuple[Callable[..., Executed], Preemption]:
        """What runs a scheduler's batches on the allocator's memory, and how it preempts.

        ``longest`` sequence, tokens.
        """
        engine = self.engine_on(allocator, longest)
        if isinstance(way, Swap):
            way = Swapping(way, engine)
        elif type(way) is not Recompute:
            raise ConfigError(
                f"--executor cannot move KV as {type(way).__name__} says; accepted: --preemption "
                "recompute, swap, auto"
            )
        return partial(Executed, executor=engine), way

    @torch.inference_mode()
    def engine_on(self, allocator: Mapped, longest: int) -> Engine:
        """An engine with weights and memory of its own."""
        device, operators = self._device, self._device.operators()
        decoder = Decoder(
            self._shape,
            operators,
            positions=longest,
            dtype=device.dtype,
            device=device.name,
            seed=self._seed,
        )
        memory = KVMemory(
            self._shape, allocator, self._layout.format, longest, device.dtype, device.name
        )
        engine = device.engine(
            allocator, decoder, memory, operators, self._seats, witness=self._witness
        )
        engine.prepare(self._seats)
        self._engines.append(engine)
        return engine

    def facts(self) -> dict[str, object]:
        """What executed the run, and how far its outputs were from the reference, if asked for."""
        found: dict[str, object] = {"device": self._hardware, "torch": torch.__version__}
        for engine in self._engines:
            found["device_seconds"] = engine.device_seconds
            if isinstance(engine.witness, Verifier):
                witness = engine.witness
                found["verified"] = {
                    "sequences": witness.sequences,
                    "tokens": witness.tokens,
                    "largest_error": witness.largest,
                    "tolerance": witness.tolerance,
                }
        return found


def check_weights(shape: Shape, device: Device) -> None:
    """CapacityError for weights beyond the host's memory, which would end the process untold."""
    needed = shape.parameters * device.dtype.itemsize
    there = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if device.name == "cpu" and needed > there:
        raise CapacityError(
            f"--executor cpu: {needed / 2**30:.1f} GiB of weights do not fit in {there / 2**30:.1f} GiB "
            "of memory: take a smaller --model"
        )


def device_of(executor: str) -> Device:
    """The device of an executor; ConfigError if there is none."""
    if executor not in DEVICES:
        raise unknown("executor", executor, DEVICES)
    device = DEVICES[executor]
    if device.name == "cuda" and not torch.cuda.is_available():
        raise ConfigError("--executor gpu: torch sees no GPU here; accepted: cpu")
    return device
