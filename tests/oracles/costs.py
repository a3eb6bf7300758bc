"""Integer cost models for tests: affine memory and compute times that may cross inside a leap."""

from __future__ import annotations

from dataclasses import dataclass

from kvsim.core import BatchShape


def advanced(shape: BatchShape, steps: int) -> BatchShape:
    """The shape of an iteration ``steps`` later (see BatchShape)."""
    new = shape.prefill_tokens
    return shape._replace(
        context_tokens=shape.context_tokens + steps * shape.decodes,
        context_squares=shape.context_squares
        + steps * (2 * shape.context_tokens + steps * shape.decodes),
        prefill_context=shape.prefill_context + steps * new,
        prefill_pairs=shape.prefill_pairs + steps * new * new,
    )


@dataclass(frozen=True)
class Crossing:
    """The larger of two affine times, iteration by iteration."""

    base: int
    per_context: int
    per_token: int
    per_pair: int
    label: str = "test"

    def one(self, shape: BatchShape) -> int:
        memory = self.base + self.per_context * (shape.context_tokens + shape.prefill_context)
        compute = self.per_token * (shape.prefill_tokens + shape.decodes)
        return max(memory, compute + self.per_pair * shape.prefill_pairs)

    def time(self, shape: BatchShape, steps: int = 1) -> int:
        return sum(self.one(advanced(shape, step)) for step in range(steps))
