"""The only place where names become objects: a scenario and a trace in, a result out."""

from kvsim.compose.deployment import Deployment, deploy, described
from kvsim.compose.engine import host_costs
from kvsim.compose.limits import memory_plan, resolved
from kvsim.compose.plugins import ignored, kv_tensors, planned, shared_settings
from kvsim.compose.running import simulate, trace_options
from kvsim.compose.setup import layout_of

__all__ = [
    "Deployment",
    "deploy",
    "described",
    "host_costs",
    "ignored",
    "kv_tensors",
    "layout_of",
    "memory_plan",
    "planned",
    "resolved",
    "shared_settings",
    "simulate",
    "trace_options",
]
