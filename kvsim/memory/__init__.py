"""KV memory: allocators, prefix caches and the order in which cached blocks are given up."""

from __future__ import annotations

from kvsim.memory.buddy import Buddy
from kvsim.memory.contiguous import Contiguous
from kvsim.memory.hybrid import Hybrid
from kvsim.memory.kvcached import KvCached
from kvsim.memory.paged import Paged
from kvsim.memory.radix import Radix
from kvsim.memory.slab import Slab
from kvsim.memory.vattention import VAttention
from kvsim.protocols import Allocator

ALLOCATORS: dict[str, type[Allocator]] = {
    "contiguous": Contiguous,
    "buddy": Buddy,
    "paged": Paged,
    "radix": Radix,
    "hybrid": Hybrid,
    "vattention": VAttention,
    "kvcached": KvCached,
    "slab": Slab,
}
