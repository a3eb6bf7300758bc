"""All eviction policies by name. Apart from the seams, for a replay needs but one of them."""

from __future__ import annotations

from collections.abc import Callable

from kvsim.memory.eviction.arc import ARC
from kvsim.memory.eviction.clock import Clock
from kvsim.memory.eviction.cost_aware import CostAware
from kvsim.memory.eviction.fifo import FIFO
from kvsim.memory.eviction.gdsf import GDSF
from kvsim.memory.eviction.length_aware import LengthAware
from kvsim.memory.eviction.lfu import LFU
from kvsim.memory.eviction.lru import LRU
from kvsim.memory.eviction.policy import EvictionPolicy, EvictionQueue
from kvsim.memory.eviction.s3_fifo import S3FIFO
from kvsim.memory.eviction.sieve import Sieve
from kvsim.memory.eviction.slru import SLRU
from kvsim.memory.eviction.tail_lru import TailLRU
from kvsim.memory.eviction.ttl import TTL
from kvsim.memory.eviction.two_queue import TwoQueue
from kvsim.memory.eviction.weighted import Weighted
from kvsim.memory.eviction.workload_aware import WorkloadAware

EVICTIONS: dict[str, Callable[..., EvictionPolicy | EvictionQueue]] = {
    "lru": LRU,
    "fifo": FIFO,
    "lfu": LFU,
    "clock": Clock,
    "slru": SLRU,
    "2q": TwoQueue,
    "arc": ARC,
    "s3-fifo": S3FIFO,
    "sieve": Sieve,
    "gdsf": GDSF,
    "length-aware": LengthAware,
    "t-lru": TailLRU,
    "workload-aware": WorkloadAware,
    "cost-aware": CostAware,
    "ttl": TTL,
    "weighted": Weighted,
}
