"""What a recorded engine was started with that kvsim has no model of, so that nobody is left unaware.

Whatever is neither read, nor known to change nothing, nor at vLLM's own default is named: an argument
of a later release, too. Source of the defaults: the resolved configurations that vLLM prints.
"""

from __future__ import annotations

from collections.abc import Iterable

from kvsim.errors import shown
from kvsim.validation.arguments import Arguments

NEUTRAL = frozenset({
    # names, files and where they come from
    "allowed_local_media_path", "cache_dir", "code_revision", "config_format", "download_dir",
    "generation_config", "hf_config_path", "hf_token", "ignore_patterns", "local_cache_dir",
    "model_loader_extra_config", "override_generation_config", "revision", "rope_scaling",
    "rope_theta", "safetensors_load_strategy", "seed", "served_model_name", "skip_tokenizer_init",
    "startup_s", "swap_space", "tokenizer", "tokenizer_mode", "tokenizer_revision",
    "trust_remote_code", "use_tqdm_on_load",
    # logs and figures
    "aggregate_engine_logging", "collect_detailed_traces", "cudagraph_metrics", "debug_dump_path",
    "disable_log_requests", "disable_log_stats", "enable_log_outputs", "enable_log_requests",
    "enable_logging_iteration_details", "enable_mfu_metrics", "kv_cache_metrics",
    "kv_cache_metrics_sample", "log_stats", "max_log_len", "max_logprobs", "otlp_traces_endpoint",
    "show_hidden_metrics_for_version",
    # what requests may ask for
    "chat_template", "enable_auto_tool_choice", "reasoning_parser", "tool_call_parser",
    # what refuses requests, which is recorded, and what only follows from other values
    "max_model_len", "num_kv_tokens", "prefix_caching_hash_algo",
})  # fmt: skip
"""Arguments that change no decision and no time, or whose effect the recording says."""
DEFAULTS: dict[str, tuple[object, ...]] = {
    "api_server_count": (1,),
    "backend": ("inductor",),
    "calculate_kv_scales": (False,),
    "cudagraph_mode": ("FULL_AND_PIECEWISE", [2, 1]),
    "cudagraph_num_of_warmups": (1,),
    "data_parallel_size_local": (1,),
    "disable_cascade_attn": (True,),
    "disable_chunked_mm_input": (False,),
    "disable_custom_all_reduce": (False,),
    "disable_hybrid_kv_cache_manager": (False,),
    "disable_sliding_window": (False,),
    "enable_dbo": (False,),
    "enable_eplb": (False,),
    "enable_expert_parallel": (False,),
    "enable_prompt_embeds": (False,),
    "enable_sleep_mode": (False,),
    "eviction_policy": ("lru",),
    "kv_sharing_fast_prefill": (False,),
    "level": (3,),
    "max_long_partial_prefills": (1,),
    "max_num_partial_prefills": (1,),
    "mode": (3, "VLLM_COMPILE"),
    "model_impl": ("auto",),
    "nnodes": (1,),
    "optimization_level": (2,),
    "performance_mode": ("balanced",),
    "prefill_context_parallel_size": (1,),
    "runner": ("auto",),
    "scheduler_reserve_full_isl": (True,),
    "stream_interval": (1,),
    "use_inductor_graph_partition": (False,),
    "vllm_version": ("0.23.0",),
}
"""Arguments that would change something, and the values with which they do not."""
MEMORY = ("gpu_memory_utilization", "kv_cache_memory_bytes", "num_gpu_blocks_override")
"""Arguments that only decide how many blocks there are."""
NOTHING: tuple[object, ...] = (None, "", {}, [])
"""Values that say nothing."""


def unmodelled(given: Iterable[Arguments], also: Iterable[str] = ()) -> tuple[str, ...]:
    """A line for each value that might have changed the run and that kvsim takes no account of.

    ``also`` are the names of further arguments whose effect the recording says.
    """
    known = NEUTRAL.union(also)
    return tuple(
        f"{place} is {shown(value)}, which is not modelled"
        for arguments in given
        for place, name, value in arguments.unread()
        if name not in known and value not in NOTHING and value not in DEFAULTS.get(name, ())
    )
