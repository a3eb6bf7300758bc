"""Steps of fixed sizes, padded with nobody, give what steps of the batch's own size give."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="executing a model needs the gpu extra")
pytest.importorskip("triton", reason="executing a model needs the gpu extra")

from tiny import SEQUENCES, TOKENS, scenario, verified, written  # noqa: E402

from kvsim.compose import simulate  # noqa: E402
from kvsim.execution import assembly, graphs  # noqa: E402
from kvsim.execution.assembly import DEVICES  # noqa: E402
from kvsim.execution.graphs import Graph, GraphedEngine, Staged  # noqa: E402
from kvsim.execution.operators import References  # noqa: E402

Step = Callable[[], tuple[Any, Any]]


class Rerun(GraphedEngine):
    """Runs a step again, on what its memory holds by then, where a GPU would replay its graph."""

    def _captured(self, staged: Staged, step: Step) -> Graph:
        found = step()

        def replay() -> None:
            for kept, new in zip(found, step(), strict=True):
                kept.copy_(new)

        graph: Any = SimpleNamespace(replay=replay)
        return Graph(staged, graph, *found)


class Padded(References):
    """References that take prompts of nobody, as the kernels do."""

    def prompt(self, q: Any, kv: Any, table: Any, starts: Any, lengths: Any, longest: int) -> Any:
        """Outputs of the real prompts; what is computed for padding means nothing."""
        real = int((starts.diff() > 0).sum())
        found = torch.zeros_like(q)
        end = int(starts[real])
        found[:end] = super().prompt(
            q[:end], kv, table[:real], starts[: real + 1], lengths[:real], longest
        )
        return found


@pytest.fixture
def rerun(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The engine of graphs on the CPU, with few sizes."""
    event = SimpleNamespace(record=lambda: None, elapsed_time=lambda _: 0.0)
    monkeypatch.setattr(torch.cuda, "Event", lambda **_: event)
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: None)
    monkeypatch.setattr(graphs, "TOKENS", (16, 32))
    monkeypatch.setattr(graphs, "DECODES", (4,))
    monkeypatch.setattr(graphs, "PROMPTS", 2)
    device = DEVICES["cpu"]
    monkeypatch.setitem(DEVICES, "cpu", assembly.Device(device.name, device.dtype, Padded, Rerun))
    yield
    gc.unfreeze()


@pytest.mark.parametrize("way", ["recompute", "swap"])
@pytest.mark.parametrize("allocator", ["paged", "radix", "contiguous", "buddy"])
def test_padded_steps_give_the_outputs_of_contiguous_memory(
    model: str, busy: str, allocator: str, way: str, rerun: None
) -> None:
    preemption = {"name": way, **({"host_gib": 0.001} if way == "swap" else {})}
    result = simulate(scenario(model, allocator, preemption=preemption), busy, verify=True)
    found = verified(result)
    assert (found["sequences"], found["largest_error"] <= 1e-4) == (SEQUENCES, True)
    assert found["tokens"] >= TOKENS
    assert result.summary["num_preemptions"]


def test_tables_that_changed_more_than_a_step_takes_along_are_written_before_it(
    model: str, tmp_path: Path, rerun: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two equal prompts in one batch both go on with the pages of one."""
    beyond: list[int] = []
    show = GraphedEngine._show

    def noted(engine: GraphedEngine, staged: Staged, rows: list[int], size: int) -> None:
        beyond.append(engine.seats.changed - size)
        show(engine, staged, rows, size)

    monkeypatch.setattr(GraphedEngine, "_show", noted)
    line = {
        "arrival": 0.0,
        "prompt_tokens": 16,
        "output_tokens": 4,
        "hash_ids": [1, 2],
        "hash_block": 8,
    }
    result = simulate(
        scenario(model, "radix", {"page_size": 1}, num_gpu_blocks_override=88),
        written([line, line], tmp_path / "equal.jsonl"),
        verify=True,
    )
    assert verified(result)["largest_error"] <= 1e-4
    assert max(beyond) > 0
