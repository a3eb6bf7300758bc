"""Fits constants of ``served`` to recorded iterations.

    python reports/fit_vllm_h200.py CONSTANT ... RUN.json.gz ...

Every constant enters an iteration's time linearly, so the fit is a linear one: least absolute relative
errors, each batch kind and size counting alike. Iterations beside a change of kind are left out: a
recorded time contains the launch of the next batch.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from math import log2
from pathlib import Path
from typing import Any

import numpy as np

from kvsim.core import PICOSECONDS
from kvsim.validation.measured import replay_forced
from kvsim.validation.measurement import Measurement
from kvsim.validation.reference import load_reference
from kvsim.validation.rows import Step, steady
from kvsim.validation.vllm_run import read_vllm_run

STEPS = {
    "layer_overhead": 1e-6,
    "expert_overhead": 1e-6,
    "sequence_overhead": 1e-6,
    "prompt_kernel": 0.01,
    "mixed_kernel": 0.01,
    "unsplit_token": 1e-10,
    "tail": 0.01,
    "fp8_decode": 0.01,
    "fp8_prompt": 0.01,
    "fp8_overhead": 1e-6,
}
"""What can be fitted, each with the step by which its effect is found."""
OUTLIER = 0.25
"""Iterations off by more were disturbed: the log was late, and caught up."""
Floats = np.ndarray[Any, np.dtype[np.float64]]


class Steps:
    """The steady iterations of some runs: durations (s), groups, and times by constants."""

    def __init__(self, runs: Sequence[Measurement]) -> None:
        self.runs = [(run, steps(run)) for run in runs]
        groups = [(i, *group(step)) for i, (_, some) in enumerate(self.runs) for step in some]
        sizes = Counter(groups)
        self.weights = np.array([1 / sizes[one] for one in groups])
        self.measured = np.array([step.measured for _, some in self.runs for step in some])

    def times(self, constants: dict[str, float]) -> Floats:
        """Seconds of every iteration."""
        found = []
        for run, some in self.runs:
            cost = run.setup.cost(**constants)
            found += [cost.time(step.shape) / PICOSECONDS - step.saved for step in some]
        return np.array(found)

    def fit(self, start: dict[str, float]) -> dict[str, float]:
        """Constants with the least absolute relative errors; those that would be negative are 0."""
        free, constants = list(start), dict(start)
        while True:
            constants |= self.fitted(free, constants)
            negative = [name for name in free if constants[name] < 0]
            if not negative:
                return constants
            constants |= dict.fromkeys(negative, 0.0)
            free = [name for name in free if name not in negative]

    def fitted(self, free: list[str], constants: dict[str, float]) -> dict[str, float]:
        """The ``free`` ones of the constants."""
        base = self.times(constants)
        scale = np.array([STEPS[name] for name in free])
        moved = [self.times({**constants, name: constants[name] + STEPS[name]}) for name in free]
        matrix = (np.stack(moved, axis=1) - base[:, None]) / self.measured[:, None]
        wanted, weights = (self.measured - base) / self.measured, self.weights
        change = np.zeros(len(free))
        for _ in range(50):
            root = np.sqrt(weights)
            change = np.linalg.lstsq(matrix * root[:, None], wanted * root, rcond=None)[0]
            weights = self.weights / np.maximum(np.abs(wanted - matrix @ change), 1e-3)
        found = zip(free, change * scale, strict=True)
        return {name: constants[name] + float(step) for name, step in found}

    def error(self, constants: dict[str, float]) -> tuple[float, float]:
        """Median of the absolute relative errors, and the bias, groups counting alike."""
        errors = self.times(constants) / self.measured - 1
        return float(np.median(np.abs(errors))), float(np.average(errors, weights=self.weights))


def steps(run: Measurement) -> list[Step]:
    """The iterations of a run that a model can be held against."""
    setup = run.setup
    found = steady(replay_forced(run), run.rows, setup.cost(), setup.host)
    return [step for step in found if abs(step.measured / step.predicted - 1) < OUTLIER]


def group(step: Step) -> tuple[bool, int, int]:
    """Iterations that count as one: prompts or none, and the sizes to a power of two."""
    shape = step.shape
    tokens, context = shape.decodes + shape.prefill_tokens, shape.context_tokens
    past = shape.prefill_context if shape.prefills else context // max(1, shape.decodes)
    return bool(shape.prefills), int(log2(tokens)), int(log2(past + 256))


def show(name: str, constants: dict[str, float], errors: tuple[float, float]) -> None:
    """Print constants and what they lead to."""
    values = " ".join(f"{key}={value:.3g}" for key, value in constants.items())
    print(f"{name}: {values}; errors: median {errors[0]:.1%}, bias {errors[1]:+.1%}")


def main(arguments: Sequence[str]) -> None:
    """Fit to all runs, and to all but each, and try that on the one left out."""
    names = [word for word in arguments if word in STEPS]
    paths = [Path(word) for word in arguments if word not in STEPS]
    runs = [read_vllm_run(load_reference(path), path, None) for path in paths]
    start = {name: float(runs[0].setup.engine.step[name]) for name in names}
    everything = Steps(runs)
    show("as shipped", start, everything.error(start))
    together = everything.fit(start)
    show("fitted to all", together, everything.error(together))
    for run in runs if len(runs) > 1 else []:
        found = Steps([other for other in runs if other is not run]).fit(start)
        show(f"fitted without {run.name}, tried on it", found, Steps([run]).error(found))


if __name__ == "__main__":
    main(sys.argv[1:])
