"""The parts in which vLLM 0.23 launches the latent attention of a batch.

Decodes attend to latents; so do prompts of few new tokens (``reorder_batch_threshold`` of its backend
FLASH_ATTN_MLA), all in one call. Other prompts attend to keys and values that are computed from the
latents: their new tokens in a call of their own, then what they have in the cache, which is gathered
into a workspace piece by piece. Each of these is half a dozen kernels, launched one by one.
"""

from __future__ import annotations

from kvsim.core import BatchShape

FEW = 512
"""New tokens of a prompt up to which it attends as decodes do."""
WORKSPACE = 65_536
"""Cached tokens that are gathered at once, shared evenly by the prompts that have any."""


def latent_parts(shape: BatchShape) -> int:
    """How many calls the attention of a layer is made of."""
    long = [cached for new, cached in prompts_of(shape) if new > FEW]
    on_latents = shape.decodes > 0 or len(long) < shape.prefills
    with_past = sum(cached > 0 for cached in long)
    pieces = -(-max(long) // (WORKSPACE // with_past)) if with_past else 0
    return on_latents + bool(long) + pieces


def prompts_of(shape: BatchShape) -> list[tuple[int, int]]:
    """New and cached tokens of each prompt."""
    count = shape.prefills
    if shape.prompts or not count:
        return list(shape.prompts)
    return [(-(-shape.prefill_tokens // count), -(-shape.prefill_context // count))] * count
