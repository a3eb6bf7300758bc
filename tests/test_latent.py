"""Latent attention and routed experts in an engine: which calls, which kernels, how long to launch."""

from __future__ import annotations

from functools import cache

import pytest

from kvsim.catalog import load_gpu, load_model
from kvsim.catalog.engines import load_engine
from kvsim.compose import host_costs
from kvsim.core import BatchShape, Request, Sequence, picoseconds
from kvsim.costs.profile import Measured
from kvsim.costs.served import Served
from kvsim.layout import KVLayout
from kvsim.scheduling.running import Running
from kvsim.simulation.host import HostCosts, Launches
from kvsim.simulation.latent import FEW, WORKSPACE, latent_parts
from tests.oracles.plain_loop import Limits
from tests.test_pipelined import COST, serve

GPU, LAYOUT = load_gpu("h200"), KVLayout(load_model("deepseek-v2-lite"))


@cache
def cost_of(**options: float) -> Served:
    return Served(LAYOUT, GPU, **options)  # type: ignore[arg-type]


def batch(*prompts: tuple[int, int], decodes: int = 0) -> BatchShape:
    """Decodes beside prompts, each of new and cached tokens, as a scheduler states them."""
    sequences = []
    for new, cached in prompts:
        sequence = Sequence(Request(0, 0.0, new + cached, 1), 0)
        sequence.num_computed = cached
        sequences.append((sequence, new))
    return Running().shape(sequences)._replace(decodes=decodes, context_tokens=100 * decodes)


@pytest.mark.parametrize(
    ("shape", "parts"),
    [
        (batch(decodes=9), 1),
        (batch((FEW, 30_000), (20, 0), decodes=9), 1),  # short prompts attend as decodes do
        (batch((2048, 0)), 1),
        (batch((2047, 0), decodes=1), 2),
        (batch((2047, 64), decodes=1), 3),
        (batch((2048, 64)), 2),
        (batch((1500, 0), (FEW, 700)), 2),  # of several, only the short one has a past
        (batch((1500, 700), (FEW, 0)), 3),
        (batch((2048, WORKSPACE + 1)), 3),  # gathered in two pieces
        (batch((1024, WORKSPACE // 2 + 1), (1024, 1)), 3),  # two share the workspace
    ],
)
def test_a_layer_launches_its_attention_in_parts(shape: BatchShape, parts: int) -> None:
    assert latent_parts(shape) == parts


def test_prompts_of_which_only_sums_are_known_are_taken_to_be_alike() -> None:
    assert latent_parts(BatchShape(0, 0, 4, 4 * FEW, 0)) == 1
    assert latent_parts(BatchShape(3, 300, 4, 4 * FEW + 1, 0)) == 2
    assert latent_parts(BatchShape(0, 0, 2, 4 * FEW, 100)) == 2


def test_each_part_takes_as_long_to_launch_unless_all_is_one_graph() -> None:
    launches = Launches(graph=0.001, pieces=0.006, kernels=0.05, latent=0.01)
    assert launches.time(batch(decodes=8)) == picoseconds(0.001)
    assert launches.time(batch((200, 5_000), decodes=8)) == picoseconds(0.006 + 0.01)
    assert launches.time(batch((2040, 5_000), decodes=8)) == picoseconds(0.05 + 3 * 0.01)


def test_a_leap_of_chunks_ends_where_those_with_more_past_take_longer_to_launch() -> None:
    chunk, count = 2048, 40
    requests = [Request(0, 0.0, count * chunk, 1), Request(1, 0.3955, 4, 1)]
    limits = Limits(num_blocks=6000, block_size=16, max_num_seqs=2, max_num_batched_tokens=chunk)
    # Iterations of 10 ms; chunks whose past is gathered in two pieces take 11 ms to launch.
    host = HostCosts(launches=Launches(kernels=0.002, latent=0.003))
    leap, loop = (
        serve(requests, limits, COST, host, leaps=leaps)[1].seen for leaps in (True, False)
    )
    assert leap == loop


def test_only_models_with_latents_or_experts_take_longer_to_launch() -> None:
    def launches(model: str) -> Launches:
        return host_costs(load_engine("vllm-0.23"), load_model(model), 128).launches

    dense, mixture, latent = map(launches, ("llama-3-8b", "qwen3-30b-a3b", "deepseek-v2-lite"))
    assert dense.latent == mixture.latent == 0 < latent.latent
    assert dense.kernels / 32 < mixture.kernels / 48
    assert dense.pieces / 32 == pytest.approx(mixture.pieces / 48)  # experts are in the graphs


def test_one_long_context_does_not_occupy_the_gpu() -> None:
    def grown(sequences: int) -> float:
        cost, long = cost_of(), sequences * 32_000
        short = BatchShape(sequences, sequences * 1_000, sampled=sequences)
        return cost.time(short._replace(context_tokens=long)) - cost.time(short)

    assert grown(4) < 2 * grown(1)  # four times the bytes
    assert grown(16) == pytest.approx(4 * grown(4), rel=0.1)


def test_decodes_of_latents_beside_prompts_are_split_as_those_alone() -> None:
    cost = cost_of()
    prompt = BatchShape(0, 0, 1, 2032, 0, 2032 * 2033 // 2)
    near, far = (prompt._replace(decodes=16, context_tokens=16 * n) for n in (1_000, 8_000))
    alone = [BatchShape(16, 16 * n, sampled=16) for n in (1_000, 8_000)]
    assert cost.time(far) - cost.time(near) == cost.time(alone[1]) - cost.time(alone[0])


def test_a_chunk_computes_the_keys_and_values_of_its_past_anew() -> None:
    model = Measured(LAYOUT, GPU)
    new, past = 64, 30_000
    prompt = next(op for op in model.operators if op.per == "prompt")
    products = 2 * past * 512 * 16 * (128 + 128) / GPU.bf16_flops
    pairs = (new * past + new * (new + 1) / 2) * 2 * 16 * (192 + 128) / GPU.bf16_flops
    assert model.settled(prompt, new, past).time > 1e6 * prompt.runs * (products + pairs)


def test_random_weights_reach_more_experts_with_every_doubling() -> None:
    few, even = cost_of(expert_growth=0.24), cost_of()
    experts = next(op for op in few.operators if op.name == "experts")
    times = [few.settled(experts, tokens).time for tokens in (1, 8, 64)]
    assert times[0] == even.settled(experts, 1).time
    assert times[0] < times[1] < times[2] < 0.4 * even.settled(experts, 64).time
    assert times[2] - times[1] == pytest.approx(times[1] - times[0], rel=0.25)


def test_many_tokens_on_few_experts_are_all_computed() -> None:
    few, even = cost_of(expert_growth=0.24), cost_of()
    experts = next(op for op in few.operators if op.name == "experts")
    busy = few.settled(experts, 4096).time
    assert 2 * few.settled(experts, 2048).time == pytest.approx(busy)
    assert 0.7 * even.settled(experts, 4096).time < busy <= even.settled(experts, 4096).time
