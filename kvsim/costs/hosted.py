"""Step times of an engine that this project runs itself: measured operators and two host constants."""

from __future__ import annotations

from typing import Literal

from kvsim.catalog.hardware import Gpu
from kvsim.core import BatchShape, picoseconds
from kvsim.costs.profile import Measured
from kvsim.costs.roofline import check_times
from kvsim.layout import KVLayout


class Hosted(Measured):
    """The operators of :class:`.profile.Measured`, and the host's seconds in every iteration.

    In them the device waits: the host decides the batch, fills block tables, launches and reads tokens
    back. That takes ``host`` seconds, and ``host_per_sequence`` for each running sequence.
    ``kvsim replay --executor gpu`` works so, and its runs say how long (``reports/hardware_h200.md``).
    """

    def __init__(
        self,
        layout: KVLayout,
        gpu: Gpu,
        *,
        host: float = 0.0,
        host_per_sequence: float = 0.0,
        profile: str = "auto",
        weight_dtype: str = "auto",
        block_size: int = 16,
        load: Literal["sustained", "brief"] = "sustained",
    ) -> None:
        check_times(host, host_per_sequence)
        super().__init__(
            layout,
            gpu,
            profile=profile,
            weight_dtype=weight_dtype,
            block_size=block_size,
            load=load,
        )
        each = f" and {host_per_sequence * 1e6:.3g} µs a sequence" if host_per_sequence else ""
        self.label = f"{self.label}, host {host * 1e3:.3g} ms{each}"
        self._host = picoseconds(host)
        self._each = picoseconds(host_per_sequence)

    def time(self, shape: BatchShape, steps: int = 1) -> int:
        """Picoseconds of ``steps`` iterations in a row."""
        host = self._host + self._each * (shape.decodes + shape.prefills)
        return super().time(shape, steps) + steps * host
