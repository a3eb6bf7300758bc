"""Iteration-level scheduling with whole prompts, as Orca introduced it."""

from __future__ import annotations

from kvsim.protocols import Allocator, Preemption, VictimRule
from kvsim.scheduling.chunked import UNBOUNDED, Chunked


class Continuous(Chunked):
    """Requests join and leave at every iteration; a prompt is computed whole, beside the decodes.

    With an allocator that reserves (contiguous, buddy) the room for the answer is set aside at
    admission and nobody is ever preempted, as in Orca (OSDI 2022) section 4; with one that grows,
    the last running sequence is preempted when memory runs out.
    """

    def __init__(
        self,
        allocator: Allocator,
        preemption: Preemption | None = None,
        *,
        max_num_seqs: int = 256,
        victim: VictimRule | None = None,
        beam_turnover: float = 1.0,
        seed: int = 0,
        leaps: bool = True,
    ) -> None:
        super().__init__(
            allocator,
            preemption,
            max_num_seqs=max_num_seqs,
            max_num_batched_tokens=UNBOUNDED,
            victim=victim,
            beam_turnover=beam_turnover,
            seed=seed,
            leaps=leaps,
        )
