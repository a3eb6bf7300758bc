"""Whether managed memory changed any answer: each is compared with a pass over contiguous memory."""

from __future__ import annotations

from collections.abc import Sequence as Seq

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from kvsim.core import Sequence
from kvsim.errors import VerificationError
from kvsim.execution.engine import Engine
from kvsim.execution.memory import KVMemory, as_stored

TOLERANCE = {torch.float32: 1e-3, torch.bfloat16: 5e-2}
"""Relative error of an output by the type that is computed in."""
EIGHT_BIT = 5e-2
"""The least tolerance with 8-bit KV: a number on the edge is rounded up in one pass, down in the other."""


class Contiguous:
    """Causal attention over the keys and values at hand, as they would come back from memory."""

    def __init__(self, memory: KVMemory) -> None:
        self._memory = memory
        self.first_keys: Tensor
        """Of the first layer, once it was computed, ``[tokens, kv_heads, dim]``."""

    def __call__(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Outputs ``[tokens, heads, dim]`` of a whole sequence."""
        kv = self._memory.written[layer]
        stored = as_stored(k, kv), as_stored(v, kv)
        if not layer:
            self.first_keys = stored[0]
        queries, keys, values = (x.transpose(0, 1)[None] for x in (q, *stored))
        found = scaled_dot_product_attention(queries, keys, values, is_causal=True, enable_gqa=True)
        return found[0].transpose(0, 1)


class Verifier:
    """Keeps what the output head saw of each token and, at the end of a sequence, computes it anew.

    The second pass has the same weights and the same tokens, but no blocks, batches, cache or
    preemptions.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._seen: dict[Sequence, list[tuple[int, Tensor]]] = {}
        eight_bit = engine.memory.planes.itemsize == 1
        own = TOLERANCE[engine.decoder.dtype]
        self.tolerance = max(own, EIGHT_BIT) if eight_bit else own
        self.sequences = self.tokens = 0
        self.largest = 0.0
        """The largest relative error so far."""

    def see(self, sequences: Seq[Sequence], positions: Seq[int], outputs: Tensor) -> None:
        """Keep the outputs of a batch."""
        for sequence, position, row in zip(sequences, positions, outputs.clone(), strict=True):
            self._seen.setdefault(sequence, []).append((position, row))

    def fork(self, parent: Sequence, child: Sequence) -> None:
        """The child is to be judged by what its parent saw, too."""
        self._seen[child] = [*self._seen.get(parent, ())]

    def judge(self, sequence: Sequence) -> None:
        """Compare all outputs of a sequence; VerificationError at the first that is wrong."""
        seen = self._seen.pop(sequence)
        positions = [position for position, _ in seen]
        attend = Contiguous(self._engine.memory)
        expected = self._expected(sequence, positions, attend)
        errors = relative(torch.stack([row for _, row in seen]), expected)
        self.sequences += 1
        self.tokens += len(seen)
        self.largest = max(self.largest, *errors)
        for position, error in zip(positions, errors, strict=True):
            if not error <= self.tolerance:
                raise VerificationError(
                    f"request {sequence.request.row}: the output at token {position} differs by "
                    f"{error:.2g} from that over contiguous memory; accepted: up to {self.tolerance}"
                    f"{self._misplaced(sequence, attend.first_keys)}"
                )

    def _misplaced(self, sequence: Sequence, keys: Tensor) -> str:
        """Which of its tokens the sequence's blocks hold no longer, by the first layer's keys."""
        known = self._engine.seats.known(sequence)
        if known is None:
            return ""
        table, tokens = known
        tokens = min(tokens, len(keys))
        found, _ = self._engine.operators.read(self._engine.memory.read[0], table, tokens)
        errors = relative(found.flatten(1), keys[:tokens].flatten(1))
        wrong = [token for token, error in enumerate(errors) if not error <= self.tolerance]
        if not wrong:
            return ""
        return f"; KV of {len(wrong)} of its tokens is not theirs, first that of token {wrong[0]}"

    def _expected(self, sequence: Sequence, positions: list[int], attend: Contiguous) -> Tensor:
        engine, device = self._engine, self._engine.device
        tokens = engine.text.tokens(sequence, 0, max(positions) + 1)
        return engine.decoder.outputs(
            torch.from_numpy(tokens).to(device),
            torch.arange(len(tokens), dtype=torch.int32, device=device),
            attend,
            torch.tensor(positions, device=device),
        )


def relative(found: Tensor, expected: Tensor) -> list[float]:
    """Norm of the difference over the norm of what was expected, row by row."""
    difference = (found.double() - expected.double()).norm(dim=-1)
    errors: list[float] = (difference / expected.double().norm(dim=-1)).tolist()
    return errors
