"""What ranks send each other: NCCL over GPUs of the machine, one process each, in CUDA graphs."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist
from torch.multiprocessing.spawn import spawn

from .series import Scope, thinned
from .timing import Stopwatch, Timing, Work

BYTES = (2**10, 2**13, 2**15, 2**16, 2**17, 2**18, 2**19, 2**20, 2**22, 2**24, 2**26, 2**28)
"""Of the reduced tensor, of the gathered result, and of the message."""

Found = list[tuple[str, int, Timing]]
"""Operator, bytes, time."""


def collectives(gpus: int, scope: Scope, folder: Path) -> Found:
    """Time all-reduce, all-gather and send among the first ``gpus`` of the machine."""
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    os.environ.setdefault("MASTER_PORT", "29517")
    os.environ["NCCL_NVLS_ENABLE"] = "0"  # multicast is not for shared hosts
    path = folder / "collectives.pt"
    spawn(rank, args=(gpus, thinned(BYTES, scope), str(path)), nprocs=gpus)
    found: Found = [
        (name, size, Timing(*timing)) for name, size, timing in torch.load(path, weights_only=True)
    ]
    path.unlink()
    return found


def rank(index: int, gpus: int, sizes: tuple[int, ...], path: str) -> None:
    """One process: runs every collective of every size; the first writes down what it saw."""
    torch.cuda.set_device(index)
    dist.init_process_group(
        "nccl", rank=index, world_size=gpus, device_id=torch.device("cuda", index)
    )
    watch, found = Stopwatch("cuda"), []
    for name, make in {"all_reduce": reduce, "all_gather": gather, "send": send}.items():
        for size in sizes:
            launch = make(index, gpus, size)
            timing = synchronous(watch, launch)
            found.append((name, size, tuple(timing)))
    if index == 0:
        torch.save(found, path)
    dist.barrier()
    torch.cuda.synchronize()
    os._exit(0)  # taking the group down waits for ever for graphs that hold its operations


def synchronous(watch: Stopwatch, launch: Callable[[int], object]) -> Timing:
    """Time graphs of 20 launches; ranks must agree on every number of launches and replays."""
    for i in range(3):
        launch(i)
    torch.cuda.synchronize()
    graph = watch._capture(Work(launch), 20)
    spans = watch._replays(graph, 15)
    dist.barrier()
    ordered = sorted(1e6 * span / 20 for span in spans[2:])
    return Timing(ordered[6], ordered[1], ordered[11], 13)


def reduce(index: int, gpus: int, size: int) -> Callable[[int], object]:
    """Sum of a tensor of ``size`` bytes."""
    data = torch.zeros(size // 2, dtype=torch.bfloat16, device="cuda")
    return lambda i: dist.all_reduce(data)


def gather(index: int, gpus: int, size: int) -> Callable[[int], object]:
    """A result of ``size`` bytes from equal parts."""
    part = torch.zeros(size // 2 // gpus, dtype=torch.bfloat16, device="cuda")
    whole = torch.empty(part.numel() * gpus, dtype=torch.bfloat16, device="cuda")
    return lambda i: dist.all_gather_into_tensor(whole, part)


def send(index: int, gpus: int, size: int) -> Callable[[int], object]:
    """A message from the first rank to the second; the others look on."""
    data = torch.zeros(size // 2, dtype=torch.bfloat16, device="cuda")
    if index > 1:
        return lambda i: data.zero_()
    return lambda i: dist.send(data, 1) if index == 0 else dist.recv(data, 0)
