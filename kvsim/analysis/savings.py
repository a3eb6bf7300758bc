"""What prompt tokens that need not be computed are worth: time of GPUs, latency and dollars."""

from __future__ import annotations

from dataclasses import dataclass

SECONDS_PER_HOUR = 3600


@dataclass(frozen=True, slots=True)
class TokenCost:
    """What computing a prompt token takes."""

    seconds: float
    """Of an engine that does nothing else: those of a prompt of mean length, by its tokens."""
    gpus: int
    """GPUs that the engine holds meanwhile."""
    usd_per_gpu_hour: float
    source: str
    """Where the time and the price come from."""


@dataclass(frozen=True, slots=True)
class Savings:
    """What a cache saves over a whole trace, against no cache at all."""

    gpu_hours: float
    usd: float
    mean_ttft_ms: float | None
    """Of a request on an idle engine; waiting for others, which a replay simulates, comes on top."""


def savings(hit_tokens: int, requests: int, cost: TokenCost) -> Savings:
    """What ``hit_tokens`` hit tokens of ``requests`` requests save."""
    seconds = hit_tokens * cost.seconds
    gpu_hours = seconds * cost.gpus / SECONDS_PER_HOUR
    ttft = 1e3 * seconds / requests if requests else None
    return Savings(gpu_hours, gpu_hours * cost.usd_per_gpu_hour, ttft)
