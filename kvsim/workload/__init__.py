"""Request traces: reading, measuring, converting and generating them."""

from kvsim.workload.generate import generate
from kvsim.workload.options import TraceOptions
from kvsim.workload.spec import PrefixTree, Sessions, WorkloadSpec, preset
from kvsim.workload.summary import Summary, summarise
from kvsim.workload.trace import Trace, open_trace
from kvsim.workload.writers import write_trace

__all__ = [
    "PrefixTree",
    "Sessions",
    "Summary",
    "Trace",
    "TraceOptions",
    "WorkloadSpec",
    "generate",
    "open_trace",
    "preset",
    "summarise",
    "write_trace",
]
