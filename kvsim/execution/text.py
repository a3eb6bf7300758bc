"""The tokens of a replay: a trace says which are equal, here they get numbers."""

from __future__ import annotations

from collections.abc import Sequence as Seq

import numpy as np
from numpy.typing import NDArray

from kvsim.core import Sequence

Tokens = NDArray[np.int64]
ALONE = np.uint64(0x9E37_79B9_7F4A_7C15)
"""Sets the names of tokens that no other request shares apart from hash ids."""


class Text:
    """Token ids of prompts, made from their hash ids, and of answers, as they were sampled.

    Equal hash ids give equal tokens at equal places; tokens that no id describes follow from the row
    of the request alone.
    """

    def __init__(self, vocab: int) -> None:
        self._vocab = np.uint64(vocab)
        self._answers: dict[Sequence, list[int]] = {}
        self._drawn: list[tuple[Sequence, int]] = []

    def draw(self, sequences: Seq[Sequence], tokens: Seq[int]) -> None:
        """The next token of each sequence was sampled; it is filed when there is time, or when asked for."""
        self._drawn += zip(sequences, tokens, strict=True)

    def settle(self) -> None:
        """File what was sampled."""
        for sequence, token in self._drawn:
            self._answers.setdefault(sequence, []).append(token)
        self._drawn.clear()

    def cut(self, sequence: Sequence, known: int) -> None:
        """Forget a token past ``known`` ones: it was drawn, but its group lost its memory before all had one."""
        self.settle()
        del self._answers.get(sequence, [])[known - sequence.request.prompt_tokens :]

    def known(self, sequence: Sequence) -> int:
        """Tokens of prompt and answer so far."""
        self.settle()
        return sequence.request.prompt_tokens + len(self._answers.get(sequence, ()))

    def fork(self, parent: Sequence, child: Sequence) -> None:
        """The child has answered what its parent has."""
        self.settle()
        self._answers[child] = [*self._answers.get(parent, ())]

    def forget(self, sequence: Sequence) -> None:
        """Drop the answer."""
        self.settle()
        self._answers.pop(sequence, None)

    def tokens(self, sequence: Sequence, start: int, stop: int) -> Tokens:
        """Token ids from ``start`` to ``stop`` (exclusive) of prompt and answer."""
        prompt = sequence.request.prompt_tokens
        known = self._prompt(sequence, start, min(stop, prompt))
        if stop <= prompt:
            return known
        self.settle()
        answer = self._answers[sequence][max(start - prompt, 0) : stop - prompt]
        return np.concatenate([known, np.array(answer, np.int64)])

    def _prompt(self, sequence: Sequence, start: int, stop: int) -> Tokens:
        request, at = sequence.request, np.arange(start, max(start, stop), dtype=np.uint64)
        names = mixed(np.array([request.row], np.uint64) ^ ALONE) ^ at
        if request.hash_ids:
            first, skipped = divmod(start, request.hash_block)
            ids = np.asarray(request.hash_ids, np.uint64)[first : -(-stop // request.hash_block)]
            blocks = mixed(ids)[:, None] ^ np.arange(request.hash_block, dtype=np.uint64)
            described = blocks.ravel()[skipped : skipped + len(at)]
            names[: len(described)] = described
        return (mixed(names) % self._vocab).astype(np.int64)


def mixed(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Scatter 64-bit numbers evenly (SplitMix64; Steele, Lea and Flood, OOPSLA 2014)."""
    x = values + np.uint64(0x9E37_79B9_7F4A_7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58_476D_1CE4_E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D0_49BB_1331_11EB)
    return x ^ (x >> np.uint64(31))
