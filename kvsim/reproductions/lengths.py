"""Request lengths of ShareGPT and Alpaca, and arrivals for them: the workloads of PagedAttention.

``sharegpt_first_turns.csv.gz`` holds the lengths (no text) of 6,870 first turns and their answers:
conversations of the first 12,000 of ShareGPT_V3_unfiltered_cleaned_split that begin with a human turn
and its answer, each of 4 tokens or more, together at most 2,048, counted with the tokenizer of
Mistral-7B. Their means are 165 and 319 tokens; the paper's are 161 and 338.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from kvsim.core import Request
from kvsim.errors import ConfigError
from kvsim.workload import open_trace

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]

LONGEST = 2048
"""What OPT may serve."""
ALPACA_MEANS = (19.31, 58.45)
"""Prompt and answer; the paper's Figure 11."""
SIGMA = 0.8
"""Assumed spread of Alpaca's lengths: deviation of their logarithm."""


class Pairs(NamedTuple):
    """Lengths of prompts and of their answers, tokens, side by side."""

    prompts: Ints
    answers: Ints


def sharegpt(path: str | None) -> Pairs:
    """The lengths that come with kvsim, or those of a trace; too long ones are left out."""
    import numpy as np

    place = path or str(files("kvsim.reproductions").joinpath("sharegpt_first_turns.csv.gz"))
    rows = [(r.prompt_tokens, r.output_tokens) for r in open_trace(place)]
    kept = [row for row in rows if sum(row) <= LONGEST]
    if not kept:
        raise ConfigError(f"--lengths {place}: every request exceeds {LONGEST} tokens")
    prompts, answers = np.array(kept, dtype=np.int64).T
    return Pairs(prompts, answers)


def alpaca(count: int, seed: int) -> Pairs:
    """Drawn lengths with Alpaca's means: lognormal, independent of each other."""
    import numpy as np

    rng = np.random.Generator(np.random.PCG64(seed))
    drawn = (rng.lognormal(np.log(mean) - SIGMA**2 / 2, SIGMA, count) for mean in ALPACA_MEANS)
    prompts, answers = (np.clip(np.rint(one), 1, LONGEST // 2).astype(np.int64) for one in drawn)
    return Pairs(prompts, answers)


def poisson(pairs: Pairs, rate: float, count: int, seed: int) -> Iterator[Request]:
    """Requests at a mean rate a second whose lengths are drawn from the pairs, with replacement."""
    import numpy as np

    rng = np.random.Generator(np.random.PCG64(seed))
    picks = rng.integers(0, len(pairs.prompts), count)
    arrivals = np.cumsum(rng.exponential(1 / rate, count)).round(6).tolist()
    prompts, answers = pairs.prompts[picks].tolist(), pairs.answers[picks].tolist()
    for row, (arrival, prompt, answer) in enumerate(zip(arrivals, prompts, answers, strict=True)):
        yield Request(row, arrival, prompt, answer)


def saved(requests: Iterator[Request], folder: str) -> Path:
    """A trace file of the requests."""
    from kvsim.workload.writers import write_trace

    path = Path(folder) / "workload.jsonl"
    write_trace(requests, str(path))
    return path
