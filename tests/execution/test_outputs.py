"""Whatever happens to blocks, outputs are those of contiguous memory; whatever is wrong with them shows."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("torch", reason="executing a model needs the gpu extra")
pytest.importorskip("triton", reason="executing a model needs the gpu extra")

from mistaken import MISTAKEN
from tiny import SEQUENCES, TOKENS, scenario, verified

from kvsim.compose import simulate
from kvsim.core import Sequence
from kvsim.errors import VerificationError
from kvsim.execution import assembly
from kvsim.execution.replica import Executed
from kvsim.execution.swapping import HostMemory
from kvsim.memory.mapped import MAPPED
from kvsim.protocols import Batch
from kvsim.simulation.replica import Replica

SWAP = {"name": "swap", "host_gib": 0.001}
WAYS: dict[str, Any] = {"recompute": "recompute", "swap": SWAP}
PLAIN = [(name, dtype) for name in sorted(MAPPED) for dtype in ("auto", "fp8")]
BY_TOKEN = [
    (name, dtype) for name in ("paged", "radix") for dtype in ("int8", "fp8_per_token_head")
]
"""Ranges have no scales for each token."""
DECISIONS = (
    "num_iterations", "num_preemptions", "recomputed_tokens", "swapped_tokens", "num_evictions",
    "prefix_cache_hits",
)  # fmt: skip


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("allocator", "dtype"), [*PLAIN, *BY_TOKEN])
def test_samples_beams_and_single_answers_survive_sharing_eviction_and_preemption(
    model: str, busy: str, allocator: str, dtype: str, way: str
) -> None:
    asked = scenario(model, allocator, kv_cache_dtype=dtype, preemption=WAYS[way])
    result = simulate(asked, busy, verify=True, check=True)
    found, summary = verified(result), result.summary
    assert found["sequences"] == SEQUENCES
    assert found["tokens"] >= TOKENS
    assert found["largest_error"] <= (1e-4 if dtype == "auto" else found["tolerance"])
    happened = {"num_preemptions", "recomputed_tokens" if way == "recompute" else "swapped_tokens"}
    if allocator in ("paged", "radix"):
        happened |= {"prefix_cache_hits", "num_evictions"}
    assert all(summary[count] for count in happened)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("allocator", sorted(MAPPED))
def test_an_executed_run_decides_as_the_simulated_one(
    model: str, busy: str, allocator: str, way: str
) -> None:
    asked = scenario(model, allocator, preemption=WAYS[way])
    executed, simulated = (
        simulate(asked.changed(executor=one), busy).summary for one in ("cpu", None)
    )
    assert all(executed[name] == simulated[name] for name in DECISIONS)


class Timed(Executed):
    """Executes every batch and takes as long as a simulation says."""

    def _launch(self, batch: Batch, steps: int) -> None:
        super()._launch(batch, steps)
        assert self._next is not None
        self._next.drop()
        Replica._launch(self, batch, steps)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("allocator", sorted(MAPPED))
def test_nothing_but_its_times_tells_an_executed_run_from_a_simulated_one(
    model: str, busy: str, allocator: str, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given the times of the simulation all figures are the same, if that takes no leaps either."""
    monkeypatch.setattr(assembly, "Executed", Timed)
    preemption = {**SWAP, "copies": "gathered"} if way == "swap" else way
    asked = scenario(model, allocator, preemption=preemption, cost_model="roofline")
    executed, simulated = (
        dict(simulate(asked.changed(executor=one), busy, leaps=False).summary)
        for one in ("cpu", None)
    )
    assert executed.pop("cost_model") != simulated.pop("cost_model")
    assert executed == simulated


@pytest.mark.parametrize("allocator", sorted(MAPPED))
def test_memory_that_two_sequences_have_at_once_is_caught(
    model: str, busy: str, allocator: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(MAPPED, allocator, MISTAKEN[allocator])
    with pytest.raises(VerificationError, match="its tokens is not theirs, first that of token "):
        simulate(scenario(model, allocator), busy, verify=True)


@pytest.mark.parametrize("allocator", sorted(MAPPED))
def test_a_fork_that_is_not_copied_is_caught(
    model: str, busy: str, allocator: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    known: Any = MAPPED[allocator]

    class Forgets(known):  # type: ignore[misc]
        def fork(self, parent: Sequence, child: Sequence, tokens: int) -> bool:
            took: bool = super().fork(parent, child, tokens)
            self.copies.clear()
            return took

    monkeypatch.setitem(MAPPED, allocator, Forgets)
    asked = scenario(model, allocator, options={"page_size": 8} if allocator == "radix" else {})
    with pytest.raises(VerificationError, match="over contiguous memory"):
        simulate(asked, busy, verify=True)


@pytest.mark.parametrize("allocator", sorted(MAPPED))
@pytest.mark.parametrize("mistake", ["misplaced", "lost"])
def test_swapped_blocks_that_come_back_wrong_or_not_at_all_are_caught(
    model: str, busy: str, allocator: str, mistake: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    bring = HostMemory.bring

    def wrong(self: HostMemory, rows: list[int], blocks: list[int]) -> None:
        if mistake == "misplaced":
            bring(self, rows, [block - 1 for block in blocks])

    monkeypatch.setattr(HostMemory, "bring", wrong)
    with pytest.raises(VerificationError, match="over contiguous memory"):
        simulate(scenario(model, allocator, preemption=SWAP), busy, verify=True)
