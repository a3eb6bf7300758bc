"""The operators of an iteration as the project's kernels."""

from __future__ import annotations

from torch import Tensor

from kvsim.execution.operators import KV
from kvsim.kernels import layer
from kvsim.kernels.decode import decode
from kvsim.kernels.move import copy_blocks, gather_blocks, scatter_blocks
from kvsim.kernels.prefill import prefill, tuned
from kvsim.kernels.write import read_kv, write_kv


class Kernels:
    """The project's kernels, on a GPU or, with ``TRITON_INTERPRET=1``, on none."""

    def embed(self, table: Tensor, ids: Tensor) -> Tensor:
        """Rows of an embedding."""
        out = table.new_empty(len(ids), table.shape[1])
        layer.embed(table, ids, out)
        return out

    def add_norm(self, x: Tensor, residual: Tensor, weight: Tensor) -> Tensor:
        """Add and normalise in one pass."""
        out = x.new_empty(x.shape)
        layer.add_norm(x, residual, weight, out)
        return out

    def rotate(self, x: Tensor, turns: Tensor, positions: Tensor) -> None:
        """Rotary positions, in place."""
        layer.rotate(x, turns, positions)

    def gate(self, x: Tensor) -> Tensor:
        """Activation of the MLP in one pass."""
        out = x.new_empty(len(x), x.shape[1] // 2)
        layer.silu(x, out)
        return out

    def write(self, keys: Tensor, values: Tensor, kv: KV, slots: Tensor) -> None:
        """Store new KV, quantised on the way."""
        write_kv(keys, values, kv, slots)

    def decode(self, q: Tensor, kv: KV, table: Tensor, lengths: Tensor) -> Tensor:
        """Paged decode attention."""
        return decode(q, kv, table, lengths)[0]

    def prompt(
        self, q: Tensor, kv: KV, table: Tensor, starts: Tensor, lengths: Tensor, longest: int
    ) -> Tensor:
        """Chunked prefill over pages."""
        return prefill(q, kv, table, starts, lengths, tuning=tuned(kv, longest))[0]

    def read(self, kv: KV, row: Tensor, tokens: int) -> tuple[Tensor, Tensor]:
        """Read a sequence's KV back through its table."""
        return read_kv(kv, row, 0, tokens)

    def copy(self, planes: Tensor, sources: Tensor, targets: Tensor) -> None:
        """Copy blocks in one launch."""
        copy_blocks(planes, sources, targets)

    def gather(self, planes: Tensor, blocks: Tensor, host: Tensor, rows: Tensor) -> None:
        """Write blocks to pinned memory in one launch."""
        gather_blocks(planes, blocks, host, rows)

    def scatter(self, host: Tensor, rows: Tensor, planes: Tensor, blocks: Tensor) -> None:
        """Read rows of pinned memory in one launch."""
        scatter_blocks(host, blocks, planes, rows)
