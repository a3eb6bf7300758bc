"""kvsim: a trace-driven simulator of LLM-serving KV-cache management."""

from __future__ import annotations

__version__ = "0.1.0"
