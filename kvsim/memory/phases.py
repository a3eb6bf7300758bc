"""When decoding sequences outgrow their last block, counted by phase instead of sequence by sequence.

Decoders all gain one token a step, so each needs a new block every ``block_size`` steps. Counting
them by the step (modulo ``block_size``) at which that happens answers for any number of steps how
many blocks the whole group needs, without touching a sequence.
"""

from __future__ import annotations


class DecodePhases:
    """The decoding sequences of one pool, by the phase at which they need their next block."""

    __slots__ = ("_counts", "block_size", "decoders", "slack", "step")

    def __init__(self, block_size: int) -> None:
        self.block_size = block_size
        self.step = 0
        """Steps so far, modulo ``block_size``."""
        self.decoders = 0
        self.slack = 0
        """Empty slots in the decoders' last blocks, summed."""
        self._counts = [0] * (2 * block_size)  # stored twice, so that a slice never wraps

    def join(self, slack: int) -> int:
        """Add a decoder whose last block has ``slack`` empty slots; returns its phase."""
        phase = (self.step + slack) % self.block_size
        self.slack += slack
        self._add(phase, 1)
        return phase

    def leave(self, phase: int) -> None:
        """Remove a decoder of this phase."""
        self.slack -= (phase - self.step) % self.block_size
        self._add(phase, -1)

    def _add(self, phase: int, change: int) -> None:
        self.decoders += change
        self._counts[phase] += change
        self._counts[phase + self.block_size] += change

    def needed(self, steps: int) -> int:
        """Blocks that all decoders together take in the next ``steps`` steps."""
        rounds, rest = divmod(steps, self.block_size)
        return rounds * self.decoders + sum(self._counts[self.step : self.step + rest])

    def max_steps(self, steps: int, blocks: int) -> int:
        """The most steps, up to ``steps``, that ``blocks`` blocks suffice for."""
        if self.needed(steps) <= blocks:
            return steps
        rounds, rest = divmod(blocks, self.decoders)
        fit = rounds * self.block_size
        for count in self._counts[self.step : self.step + self.block_size]:
            rest -= count
            if rest < 0:
                break
            fit += 1
        return fit

    def advance(self, steps: int) -> int:
        """All decoders gain ``steps`` tokens; returns the blocks that they take."""
        blocks = self.needed(steps)
        self.slack += blocks * self.block_size - steps * self.decoders
        self.step = (self.step + steps) % self.block_size
        return blocks
