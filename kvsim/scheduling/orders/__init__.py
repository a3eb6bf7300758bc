"""In which order those that wait are looked at, each way in a file of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from kvsim.scheduling.orders.fcfs import FCFS
from kvsim.scheduling.orders.hrrn import HRRN
from kvsim.scheduling.orders.lpm import LPM
from kvsim.scheduling.orders.order import Order

Policy = Literal["fcfs", "lpm", "hrrn"]
ORDERS: dict[Policy, Callable[[], Order]] = {"fcfs": FCFS, "lpm": LPM, "hrrn": HRRN}
"""Orders by SGLang's name of the ``schedule_policy``."""
