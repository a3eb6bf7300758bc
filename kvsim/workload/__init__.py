"""Request traces: reading, measuring, converting and generating them."""

from kvsim.workload.options import TraceOptions
from kvsim.workload.trace import Trace, open_trace

__all__ = ["Trace", "TraceOptions", "open_trace"]
