"""How a row of the KV cache is stored: bytes of every KV dtype, scales included.

| dtype | per row of one head, d elements | scales assumed, and where that is so |
| --- | --- | --- |
| bf16, fp16 | 2 d | none |
| fp8 (e4m3, e5m2) | d | one per tensor, outside the cache (vLLM ``fp8``) |
| fp8_per_token_head | d + 4 | one fp32 per token and head (vLLM) |
| int8 | d + 4 | one fp32 per token and head (vLLM ``int8_per_token_head``) |
| int4 | d/2 + 4 per 128 | fp16 scale and zero point per group of up to 128 (KIVI, arXiv:2402.02750; \
the same 4 bytes as vLLM ``int4_per_token_head`` at d <= 128) |
| nvfp4 | d/2 + 1 per 16 | one e4m3 scale per 16 values (NVIDIA NVFP4) |
| fp8_ds_mla | 656 of an MLA latent of 576, 584 of a DeepSeek-V4 row of 512 | fp8 with scales, and 64 \
rotary elements in bf16 (vLLM, SGLang) |
"""

from __future__ import annotations

from typing import NamedTuple

from kvsim.catalog.model import Attention, Stream
from kvsim.errors import ConfigError

ROPE = 64
"""Rotary elements that fp8_ds_mla keeps in bf16."""


class Format(NamedTuple):
    """A number format of KV elements."""

    name: str
    bits: int
    scale_bytes: int = 0
    group: int | None = None
    """Elements that share a scale; None: all of a head's row."""

    def row_bytes(self, heads: int, dim: int) -> int:
        """Bytes of one row of ``heads`` heads of ``dim`` elements."""
        groups = -(-dim // self.group) if self.group else 1
        return heads * (-(-dim * self.bits // 8) + groups * self.scale_bytes)


BF16 = Format("bf16", 16)
FP16 = Format("fp16", 16)
FP8 = Format("fp8", 8)
INT8 = Format("int8", 8, 4)
INT4 = Format("int4", 4, 4, 128)
NVFP4 = Format("nvfp4", 4, 1, 16)
FP8_DS_MLA = Format("fp8_ds_mla", 8)

FORMATS = {
    "bf16": BF16,
    "bfloat16": BF16,
    "fp16": FP16,
    "float16": FP16,
    "fp32": Format("fp32", 32),
    "float32": Format("fp32", 32),
    "fp8": FP8,
    "fp8_e4m3": FP8,
    "fp8_e5m2": FP8,
    "fp8_per_token_head": Format("fp8_per_token_head", 8, 4),
    "int8": INT8,
    "int8_per_token_head": INT8,
    "int4": INT4,
    "int4_per_token_head": INT4,
    "nvfp4": NVFP4,
    "fp4": NVFP4,
    "fp8_ds_mla": FP8_DS_MLA,
}


class KVFormat(NamedTuple):
    """The formats of keys and of values."""

    k: Format
    v: Format

    @property
    def name(self) -> str:
        """``fp8``, or ``k:fp8,v:int4``."""
        return self.k.name if self.k == self.v else f"k:{self.k.name},v:{self.v.name}"


def kv_format(dtype: str, model_dtype: str) -> KVFormat:
    """The format that a ``--kv-cache-dtype`` names; ``auto`` is the model's own dtype."""
    name = dtype.lower()
    if name == "auto":
        name = model_dtype
    if ":" not in name:
        return KVFormat(known(name), known(name))
    parts = [part.strip().partition(":") for part in name.split(",")]
    chosen = {role: known(format_name) for role, _, format_name in parts}
    if len(parts) != 2 or set(chosen) != {"k", "v"}:
        raise ConfigError(f"kv cache dtype {dtype!r}: a mixed dtype reads k:NAME,v:NAME")
    if FP8_DS_MLA in chosen.values():
        raise ConfigError(f"kv cache dtype {dtype!r}: fp8_ds_mla has no separate keys and values")
    return KVFormat(chosen["k"], chosen["v"])


def known(name: str) -> Format:
    """A format by name."""
    if name not in FORMATS:
        listed = ", ".join(("auto", *FORMATS))
        raise ConfigError(f"unknown kv cache dtype {name!r} (known: {listed}, k:NAME,v:NAME)")
    return FORMATS[name]


def stream_bytes(kv: KVFormat, attention: Attention, stream: Stream, heads: int) -> int:
    """Bytes of one stored row of a stream, with ``heads`` of its heads on this GPU."""
    if FP8_DS_MLA in kv:
        return ds_mla_bytes(attention, stream)
    if stream.role == "index" and attention.kind == "latent":
        return INT8.row_bytes(1, stream.dim)
    if stream.role in ("kv", "index") and kv.k != kv.v:
        raise ConfigError(
            f"kv cache dtype {kv.name}: this model keeps one vector as key and value, "
            "which has one dtype"
        )
    return (kv.v if stream.role == "v" else kv.k).row_bytes(heads, stream.dim)


def ds_mla_bytes(attention: Attention, stream: Stream) -> int:
    """The layout of DeepSeek's kernels: fp8 with scales, rotary part in bf16.

    MLA: 4 fp32 scales of 128 elements each. V4 rows: 7 one-byte scales of 64 and a byte of padding.
    Index keys: fp8 and one fp32 scale.
    """
    if attention.kind not in ("latent", "compressed"):
        raise ConfigError("kv cache dtype fp8_ds_mla: only MLA and DeepSeek-V4 have this layout")
    if stream.role == "index":
        return stream.dim + 4
    nope = stream.dim - ROPE
    scales = 4 * -(-nope // 128) if attention.kind == "latent" else -(-nope // 64) + 1
    return nope + scales + 2 * ROPE
