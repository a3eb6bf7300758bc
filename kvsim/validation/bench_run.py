"""Reads runs of vLLM that LLMServingSim's benchmark recorded: a folder of three files.

``meta.json`` says how the engine was started, ``requests.jsonl`` when each request was queued, got its
first and its last token, ``timeseries.csv`` how many ran and waited, and the KV usage, every second.
Source: casys-kaist/LLMServingSim, ``bench/examples``.
"""

from __future__ import annotations

import csv
import gzip
import json
import zlib
from array import array
from collections.abc import Iterator, Mapping
from hashlib import blake2b
from pathlib import Path
from typing import Any

from kvsim.catalog.engines import load_engine
from kvsim.catalog.hardware import Gpu
from kvsim.core import Request
from kvsim.errors import TraceError
from kvsim.sizing import Limits, plan_memory
from kvsim.validation.arguments import Arguments
from kvsim.validation.device import device_of
from kvsim.validation.engine import Setup
from kvsim.validation.measurement import Measurement, Tick
from kvsim.validation.observed import Outcome
from kvsim.validation.reference import number
from kvsim.validation.started import ENGINE, layout_of, options_of
from kvsim.validation.unmodelled import MEMORY, unmodelled
from kvsim.validation.vllm_run import count, seconds

META = "meta.json"
BLOCK = 16
"""Tokens of a block, unless the recording says otherwise."""
SHARE = "gpu_memory_utilization"
ABOUT = ("dataset_hash", "dataset_path", "engine_kwargs", "finished_at", "hardware", "kv_cache",
         "model", "num_requests", "resolved_config", "schema_version", "started_at",
         "max_num_batched_tokens", "max_num_seqs", "tick_seconds")  # fmt: skip
"""What is read in other ways, and what the benchmark says of itself; ``resolved_config`` follows
from the arguments."""
TIMES = ("arrival_time", "queued_ts", "first_token_ts", "last_token_ts")
"""Seconds, the first by the client's clock."""
LEVELS = 4
"""Folders above the run's in which its workload is looked for."""


def read_bench_run(folder: Path, workload: Path | None, gpu: Gpu | None = None) -> Measurement:
    """The run in a folder, and the prompts of its workload if that is found.

    ``gpu``: what it ran on, whatever is recorded.
    """
    meta = json_of(folder / META)
    rows = [loads(folder / "requests.jsonl", i, line) for i, line in lines(folder)]
    if not rows:
        raise TraceError(f"{folder / 'requests.jsonl'}: is empty; accepted: one request a line")
    setup = setup_of(folder, meta, gpu)
    outcomes = dict(enumerate(outcomes_of(folder, rows)))
    prompts = list(prompts_of(folder, meta, workload, setup.block_size))
    requests = [
        Request(row, one.submit, count(f"{folder / 'requests.jsonl'}:{row + 1}", rows[row], "input_toks"),
                one.output, prompts[row] if row < len(prompts) else None, setup.block_size)
        for row, one in outcomes.items()
    ]  # fmt: skip
    return Measurement(
        " ".join(folder.parts[-3:-1]),
        setup,
        sorted(requests, key=lambda request: (request.arrival, request.row)),
        outcomes,
        None,
        [],
        list(ticks_of(folder / "timeseries.csv")),
        None,
    )


def lines(folder: Path) -> Iterator[tuple[int, str]]:
    """The requests' lines, from 1."""
    yield from enumerate(text_of(folder / "requests.jsonl").splitlines(), 1)


def text_of(path: Path) -> str:
    """A whole file, compressed or not."""
    try:
        raw = path.read_bytes()
        return (gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw).decode()
    except (OSError, EOFError, zlib.error, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise TraceError(f"{path}: cannot be read: {reason}") from None


def loads(path: Path, line: int, text: str) -> Any:
    """One line as JSON."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise TraceError(f"{path}:{line}: not JSON: {error}") from None


def json_of(path: Path) -> Any:
    """A whole file as JSON."""
    try:
        return json.loads(text_of(path))
    except (ValueError, RecursionError) as error:
        raise TraceError(f"{path}: cannot be read: {error}; accepted: a run's {META}") from None


def outcomes_of(folder: Path, rows: list[Any]) -> Iterator[Outcome]:
    """What clients saw; engine's and client's clocks agree on the request that was queued soonest."""
    named = [(f"{folder / 'requests.jsonl'}:{i}", row) for i, row in enumerate(rows, 1)]
    times = [[seconds(*one, field) for field in TIMES] for one in named]
    first = min(arrival for arrival, *_ in times)
    offset = min(queued - arrival for arrival, queued, *_ in times)
    for one, (arrival, _, begun, ended) in zip(named, times, strict=True):
        called = arrival + offset
        output = count(*one, "output_toks", least=1)
        yield Outcome(arrival - first, begun - called, ended - called, output, None)


def ticks_of(path: Path) -> Iterator[Tick]:
    """The state every second; a recorder that never saw KV usage wrote 0 throughout."""
    rows = list(csv.DictReader(text_of(path).splitlines()))
    try:
        known = any(float(row["kv_cache_pct"]) for row in rows)
        for row in rows:
            usage = float(row["kv_cache_pct"]) / 100 if known else None
            yield Tick(float(row["t"]), int(row["running"]), int(row["waiting"]), usage)
    except (KeyError, TypeError, ValueError) as error:
        raise TraceError(
            f"{path}: {error}; accepted: rows of t, running, waiting and kv_cache_pct"
        ) from None
    if not rows:
        raise TraceError(f"{path}: is empty; accepted: the state, second by second")


def setup_of(folder: Path, meta: object, gpu: Gpu | None) -> Setup:
    """The engine; where its blocks were not recorded, as many as fit the GPU.

    The folder two above the run is named after the GPU, for a run that does not say.
    """
    recorded = meta if isinstance(meta, Mapping) else {}
    given = recorded.get("engine_kwargs")
    started = Arguments(f"{folder / META}: engine_kwargs", given)
    memory = Arguments(f"{folder / META}: kv_cache", recorded.get("kv_cache") or {})
    compilation = started.inner("compilation_config")
    caching = memory.flag("enable_prefix_caching", default=True)
    layout = layout_of(started)
    options = options_of(started, [started, compilation], caching=caching)
    run = Arguments(f"{folder / META}: run", recorded)
    device = device_of(run, gpu, folder.resolve().parent.parent.name, "folder")
    sequences = number(folder / META, "engine_kwargs", given, "max_num_seqs", least=1)
    tokens = number(folder / META, "engine_kwargs", given, "max_num_batched_tokens", least=1)
    size = memory.whole("block_size", started.whole("block_size", BLOCK))
    share = memory.amount(SHARE, started.amount(SHARE, 0.9))
    limits = Limits(size, share, tokens, sequences)
    known = memory.whole("num_gpu_blocks", started.whole("num_gpu_blocks_override", 0))
    blocks = known or plan_memory(layout, device.gpu, limits).num_gpu_blocks
    replicas = started.whole("data_parallel_size", 1, most=1024)
    return Setup(
        layout,
        device,
        load_engine(ENGINE),
        num_blocks=blocks,
        block_size=size,
        max_num_seqs=sequences,
        max_num_batched_tokens=tokens,
        replicas=replicas,
        unmodelled=unmodelled(
            [run, started, compilation, memory],
            (*ABOUT, *(MEMORY if known else ())),
        ),
        **options,
    )


def prompts_of(
    folder: Path, meta: Mapping[str, Any], workload: Path | None, size: int
) -> Iterator[array[int]]:
    """Ids of the prompts' blocks by their tokens; nothing where the workload is not at hand."""
    name = Path(str(meta.get("dataset_path", ""))).name
    above = [folder, *folder.resolve().parents][:LEVELS]
    places = [place / f"{name}{end}" for place in above for end in ("", ".gz")]
    path = workload or next((place for place in places if name and place.is_file()), None)
    if path is None:
        return
    for i, line in enumerate(text_of(path).splitlines(), 1):
        row = loads(path, i, line)
        try:
            yield block_ids(row.get("input_tok_ids", []), size)
        except (AttributeError, OverflowError, TypeError):
            raise TraceError(f"{path}:{i}: accepted: input_tok_ids, a list of token ids") from None


def block_ids(tokens: list[int], size: int) -> array[int]:
    """A number for each full block of a prompt: equal for equal tokens."""
    blocks = (tokens[at : at + size] for at in range(0, len(tokens) - size + 1, size))
    digests = (blake2b(array("q", block).tobytes(), digest_size=8).digest() for block in blocks)
    return array("Q", (int.from_bytes(digest) for digest in digests))
