"""vAttention: KV that is contiguous in virtual memory, with physical memory mapped when it is needed."""

from __future__ import annotations

from typing import Literal

from kvsim.core import NO_MATCH, Match, Sequence
from kvsim.errors import CapacityError, ConfigError
from kvsim.memory.paged import Paged
from kvsim.memory.reserving import absent

PICOSECONDS_PER_US = 1_000_000


class VAttention(Paged):
    """Reserves addresses for the longest sequence in each of ``tensors`` tensors (K and V of every
    layer) and maps page groups of ``page_group`` bytes behind them as the sequence grows.

    A sequence grows by a group in every tensor at once, which holds ``block_size`` tokens: 1,024 of
    Llama-3-8B in groups of 2 MiB (CUDA's own), 32 in groups of 64 KiB (a patched driver). Nothing is
    shared or cached, as ranges are contiguous. A group takes a call of ``map_us`` microseconds for each
    tensor: ``hidden`` behind the iteration before, in a background thread, or ``synchronous``, before
    the next iteration. Groups of finished sequences are unmapped at once. Source: Prabhu et al., ASPLOS
    2025 (arXiv:2405.04437), sections 5 and 6.

    ``num_slots`` slots of ``slot_bytes`` bytes in all tensors; ``slots_per_sequence`` more for constant
    state (full windows, recurrent state).
    """

    def __init__(
        self,
        num_slots: int,
        *,
        slot_bytes: int = 131_072,
        tensors: int = 64,
        page_group: int = 2 << 20,
        map_us: float = 40.0,
        mapping: Literal["hidden", "synchronous"] = "hidden",
        slots_per_sequence: int = 0,
    ) -> None:
        if not 0 <= map_us <= 1e6:
            raise ConfigError(f"allocator.map_us is {map_us}; accepted: microseconds from 0 to 1e6")
        tokens = page_group * tensors // slot_bytes
        if tokens < 1:
            raise ConfigError(
                f"allocator.page_group is {page_group}, less than a token's bytes in a tensor; "
                f"accepted: at least {-(-slot_bytes // tensors)}"
            )
        groups = num_slots // tokens
        if not groups:
            raise CapacityError(f"a pool of {num_slots} slots has no group of {tokens} tokens")
        super().__init__(
            groups + 1,
            block_size=tokens,
            prefix_caching=False,
            fixed_blocks=-(-slots_per_sequence // tokens),
        )
        waits = tensors if mapping == "synchronous" else 0
        self._map_time = round(waits * map_us * PICOSECONDS_PER_US)
        """Picoseconds that an iteration waits for a group."""
        self._unpaid = 0
        self._carriers: dict[Sequence, None] = {}
        """Those that run and of which others are or will be forked."""

    def fits_group(self, sequence: Sequence, tokens: int) -> bool:
        """Whether there are groups for each; none are shared."""
        own = self._blocks(tokens) + self.fixed_blocks
        return sequence.request.width * own < self.num_blocks

    def match(self, sequence: Sequence) -> Match:
        """Nothing: a range is never shared."""
        return NO_MATCH

    def admit(self, sequence: Sequence, match: Match, tokens: int, *, spare: int = 0) -> bool:
        """Take groups for ``tokens`` tokens; while others run, leave some for its forks and theirs."""
        if self._leases:
            spare += sum(map(self._promised, (sequence, *self._carriers)))
        if not super().admit(sequence, match, tokens, spare=spare):
            return False
        if sequence.group is not None:
            self._carriers[sequence] = None
        return True

    def _promised(self, sequence: Sequence) -> int:
        """Slots that the forks of a sequence will take."""
        own = self._blocks(sequence.num_tokens) + self.fixed_blocks
        return absent(sequence) * own * self.block_size

    def free(self, sequence: Sequence, tokens: int, *, finished: bool) -> None:
        """Give all groups back."""
        self._carriers.pop(sequence, None)
        super().free(sequence, tokens, finished=finished)

    def fork(self, parent: Sequence, child: Sequence, tokens: int) -> bool:
        """A range of its own for the child, into which all of the parent's tokens are copied."""
        return super().admit(child, NO_MATCH, tokens)

    def _take(self, blocks: int) -> None:
        super()._take(blocks)
        self._unpaid += blocks

    def waits(self) -> int:
        """Picoseconds that the next iteration waits for what was mapped since the last question."""
        groups, self._unpaid = self._unpaid, 0
        return groups * self._map_time
