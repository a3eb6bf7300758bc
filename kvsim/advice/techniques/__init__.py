"""Techniques that are tried on every situation, each in a file of its own."""

from __future__ import annotations

from kvsim.advice.techniques.chunked_prefill import ChunkedPrefill
from kvsim.advice.techniques.eviction import Eviction
from kvsim.advice.techniques.kv_dtype import KVDtype
from kvsim.advice.techniques.limits import Seats, TokenBudget
from kvsim.advice.techniques.offload import Offload
from kvsim.advice.techniques.paging import Paging
from kvsim.advice.techniques.prefix_caching import PrefixCaching
from kvsim.advice.techniques.radix import RadixTree
from kvsim.advice.techniques.swapping import Swapping
from kvsim.advice.techniques.technique import Reason, Technique, Trial
from kvsim.advice.techniques.tensor_parallel import TensorParallel
from kvsim.advice.techniques.weight_dtype import WeightDtype

TECHNIQUES: dict[str, Technique] = {
    "paging": Paging(),
    "prefix-caching": PrefixCaching(),
    "radix": RadixTree(),
    "eviction": Eviction(),
    "offload": Offload(256),
    "swap": Swapping(),
    "chunked-prefill": ChunkedPrefill(),
    "token-budget": TokenBudget(),
    "seats": Seats(),
    "kv-8bit": KVDtype("fp8", "8-bit KV cache"),
    "weights-8bit": WeightDtype("fp8", "8-bit weights"),
    "weights-4bit": WeightDtype("int4", "4-bit weights"),
    "tensor-parallel": TensorParallel(),
}

__all__ = ["TECHNIQUES", "Reason", "Technique", "Trial"]
