"""Which tokens the layers of a hybrid model still need: one class for each kind of layer.

Layers of one kind share a block table. A block can go once no later token reads any of its tokens,
and a cached prefix serves the group if the blocks that the next token reads are there. Source: vLLM
0.23.0 ``v1/core/single_type_kv_cache_manager.py``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


@dataclass(frozen=True, slots=True)
class Full:
    """Layers that read all tokens."""

    block_size: int = 16
    """Tokens that one page of the group covers."""
    layers: int = 1
    """Layers in the group; a page has a part for each."""
    layer_bytes: int = 1
    """What one layer keeps for a block, bytes."""

    @property
    def name(self) -> str:
        """What the group is called in summaries."""
        return "full"

    def blocks(self, tokens: int) -> int:
        """Blocks that ``tokens`` tokens touch."""
        return -(-tokens // self.block_size)

    def needed_from(self, tokens: int) -> int:
        """The first token that is read once ``tokens`` tokens are computed."""
        return 0

    def released_at(self, block: int) -> int | None:
        """Tokens from which on nothing reads the block any more."""
        return None

    def origin(self, start: int, tokens: int, chunk: int) -> int:
        """Tokens behind which an iteration from ``start`` to ``tokens`` keeps what it writes.

        No iteration keeps more than ``chunk`` of its tokens and what the first of these reads.
        """
        return max(start, tokens - chunk)

    def peak(self, tokens: int, chunk: int) -> int:
        """Most blocks at once on the way to ``tokens`` tokens."""
        return self.blocks(tokens)

    def empty(self, blocks: int, tokens: int) -> int:
        """Empty places in the last of ``blocks`` blocks, in tokens."""
        return blocks * self.block_size - tokens


@dataclass(frozen=True, slots=True)
class Window(Full):
    """Layers that read the last ``window`` tokens, the one being computed included."""

    window: int = 1

    @property
    def name(self) -> str:
        """Its kind and window."""
        return f"window {self.window}"

    def needed_from(self, tokens: int) -> int:
        """All but the last ``window`` - 1 tokens are behind the window."""
        return max(0, tokens - self.window + 1)

    def released_at(self, block: int) -> int | None:
        """When its last token leaves the window."""
        return (block + 1) * self.block_size + self.window - 1

    def peak(self, tokens: int, chunk: int) -> int:
        """The window and a chunk, however they lie in the blocks."""
        return min(self.blocks(tokens), (self.window + chunk - 3) // self.block_size + 2)


@dataclass(frozen=True, slots=True)
class Chunked(Full):
    """Layers that read from the last multiple of ``span`` tokens on (Llama 4)."""

    span: int = 1

    @property
    def name(self) -> str:
        """Its kind and span."""
        return f"chunked {self.span}"

    def needed_from(self, tokens: int) -> int:
        """Where the span of the next token begins."""
        return tokens // self.span * self.span

    def released_at(self, block: int) -> int | None:
        """When the span after its last token begins."""
        return -(-(block + 1) * self.block_size // self.span) * self.span

    def peak(self, tokens: int, chunk: int) -> int:
        """A span and a chunk, however they lie in the blocks."""
        return min(self.blocks(tokens), (self.span + chunk - 3) // self.block_size + 2)


@dataclass(frozen=True, slots=True)
class State(Full):
    """Recurrent layers: a page is a state, that of the last token of its block once that is full.

    A sequence has the state it works on and the one at the block boundary before it, which stays
    behind as a snapshot: all of a prefix or nothing. An iteration that crosses boundaries leaves a
    snapshot at the last of them, where the engine would split it (vLLM's ``mamba_cache_mode=align``).
    """

    @property
    def name(self) -> str:
        """Its kind."""
        return "state"

    def needed_from(self, tokens: int) -> int:
        """The state of the last token."""
        return max(0, tokens - 1)

    def released_at(self, block: int) -> int | None:
        """When a token behind it is computed."""
        return (block + 1) * self.block_size + 1

    def origin(self, start: int, tokens: int, chunk: int) -> int:
        """The last boundary that is crossed; a single token splits nothing."""
        if tokens - start == 1:
            return start
        return max(start, tokens // self.block_size * self.block_size)

    def peak(self, tokens: int, chunk: int) -> int:
        """Two states."""
        return min(self.blocks(tokens), 2)

    def empty(self, blocks: int, tokens: int) -> int:
        """A state is never partly filled."""
        return 0


class PagePlan(NamedTuple):
    """How the layers of a model share pages of one size."""

    groups: tuple[Full, ...]
    page_bytes: int
    """On the GPU whose pages are largest."""
