"""How long the host takes for an iteration of an executed run, the device left out.

    python tests/benchmarks/host_time.py [--cases paged radix]

The workload and the cases of ``python -m kvsim.execution.bench``: scheduler, allocator, block tables and
what is packed for the device are real; what a GPU would compute takes no time here and is added to the
clock as predicted, so that batches are as large as on it. Launches are missing. CPU time of the thread,
microseconds from the end of one iteration to the end of the next: medians, which vary by a third where
others use the machine.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from statistics import fmean, median
from tempfile import TemporaryDirectory
from time import thread_time_ns
from types import SimpleNamespace
from typing import Any, ClassVar
from unittest.mock import patch

import torch
from torch import Tensor

from kvsim.compose import simulate
from kvsim.execution import assembly
from kvsim.execution.assembly import DEVICES, Device
from kvsim.execution.comparison import CASES, Overhead, Setup, predictor
from kvsim.execution.graphs import Graph, GraphedEngine, Staged
from kvsim.execution.operators import References
from kvsim.execution.replica import Executed
from kvsim.protocols import Batch

MODEL = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 32,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 16,
    "num_hidden_layers": 1,
    "intermediate_size": 32,
    "vocab_size": 128,
    "max_position_embeddings": 4096,
    "torch_dtype": "bfloat16",
}
"""Hardly anything, for the few steps that are too large to be captured."""


class Absent(GraphedEngine):
    """An engine whose captured steps compute nothing."""

    def _compile(self) -> None:
        """There is nothing to compile."""

    def _captured(self, staged: Staged, step: Callable[[], tuple[Tensor, Tensor]]) -> Graph:
        graph: Any = SimpleNamespace(replay=lambda: None)
        return Graph(staged, graph, torch.zeros(256, 8), torch.zeros(256, dtype=torch.int64))


class Timed(Executed):
    """A replica that notes the host's time of each iteration."""

    spans: ClassVar[list[tuple[bool, float]]] = []
    """Of the runs so far: whether there are prompts, and microseconds."""

    def __init__(self, *given: Any, **options: Any) -> None:
        super().__init__(*given, **options, now=lambda: thread_time_ns() + self._device)
        self._device = 0
        self._predictor = predictor(Setup(), Overhead())

    def _launch(self, batch: Batch, steps: int) -> None:
        asked = thread_time_ns()
        device = self._predictor.time(batch.shape) // 1000
        self._device += device - (thread_time_ns() - asked)  # asking is no work of the host
        super()._launch(batch, steps)
        self.spans.append((bool(batch.prompts), (self._span // 1000 - device) / 1000))


def main() -> None:
    """Run the cases and print a line for each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", nargs="+", choices=CASES, default=[*CASES])
    given = parser.parse_args()
    torch.set_num_threads(1)
    event = SimpleNamespace(record=lambda: None, elapsed_time=lambda _: 0.0)
    with (
        TemporaryDirectory() as folder,
        patch.dict(DEVICES, cpu=Device("cpu", torch.float32, References, Absent)),
        patch.object(assembly, "Executed", Timed),
        patch.object(torch.cuda, "Event", lambda **_: event),
        patch.object(torch.cuda, "graph_pool_handle", lambda: None),
    ):
        (Path(folder) / "config.json").write_text(json.dumps(MODEL), encoding="utf-8")
        setup = Setup(model=folder, executor="cpu")
        trace = setup.write(Path(folder) / "workload.jsonl", setup.seed)
        simulate(setup.scenario(executor="cpu"), trace)  # the first run of a process is slower
        for case in given.cases:
            Timed.spans.clear()
            simulate(setup.scenario(executor="cpu", **CASES[case]), trace)
            print(line(case, Timed.spans), flush=True)


def line(case: str, spans: list[tuple[bool, float]]) -> str:
    """Iterations without and with prompts; of the latter some are not captured, hence no mean."""
    decodes, mixed = (
        [span for prompts, span in spans if prompts is kind] for kind in (False, True)
    )
    return (
        f"{case:18} decodes {median(decodes):4.0f} µs (mean {fmean(decodes):4.0f})   "
        f"with prompts {median(mixed):5.0f} µs"
    )


if __name__ == "__main__":
    main()
