"""What a generated workload is like."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from kvsim.errors import ConfigError, unknown
from kvsim.workload.fields import MAX_TOKENS, MOST_SEQUENCES
from kvsim.workload.options import FASTEST

MOST = 1_000_000_000_000


@dataclass(frozen=True, slots=True)
class PrefixTree:
    """Beginnings that prompts share, as a tree: a system prompt, below it tools, below them documents.

    Each level has ``groups`` branches at every node, chosen by Zipf's law, and an equal part of
    ``tokens``. Sharing is in whole hash blocks.
    """

    groups: int = 1
    tokens: int = 0
    depth: int = 1
    zipf: float = 1.0
    """Exponent of the popularity of branches; 0: all alike."""

    def __post_init__(self) -> None:
        need_whole("prefix-groups", self.groups, 1, 1_000_000)
        need_whole("prefix-tokens", self.tokens, 0)
        need_whole("prefix-depth", self.depth, 1, 60)
        if not 0 <= self.zipf <= 20:
            raise ConfigError(f"--prefix-zipf is {self.zipf}; accepted: a number from 0 to 20")
        if self.depth * math.log2(self.groups) + math.log2(self.tokens + 1) > 60:
            raise ConfigError(
                f"--prefix-groups {self.groups} with --prefix-depth {self.depth} is too large a tree; "
                "accepted: fewer than 2^60 tokens in all its leaves"
            )


@dataclass(frozen=True, slots=True)
class Sessions:
    """Conversations: each turn's prompt continues the prompt and the answer before it."""

    turns: str = "fixed:1"
    """Distribution of their number."""
    think_time: str = "exponential:10"
    """Distribution of the pause between an answer and the next turn, seconds."""


@dataclass(frozen=True, slots=True)
class WorkloadSpec:
    """A synthetic workload. Raises ``ConfigError`` for values that cannot be meant.

    The texts name distributions (:mod:`kvsim.workload.distributions`) and an arrival process
    (:mod:`kvsim.workload.arrivals`).
    """

    requests: int = 1000
    """How many, all turns counted."""
    rate: float = 1.0
    """Mean requests a second; sessions begin at this rate divided by their mean turns."""
    arrival: str = "poisson"
    prompt: str = "lognormal:1000:1.0"
    """Tokens that a prompt adds to what it shares or continues."""
    output: str = "lognormal:200:0.8"
    """Tokens of an answer."""
    prefix: PrefixTree = field(default_factory=PrefixTree)
    sessions: Sessions = field(default_factory=Sessions)
    n: int = 1
    """Answers of each request that are sampled in parallel."""
    beam_width: int = 1
    """Beams of each request; 1: no beam search."""
    tenants: int = 0
    """Tenants that sessions belong to, by Zipf's law; 0: none are named. All share the prefixes."""
    users: int = 0
    """Users of each tenant, all alike; 0: none are named."""
    hash_block: int = 64
    """Tokens that a hash id stands for."""
    max_tokens: int = 131_072
    """Longest prompt and answer together; longer ones are cut, conversations end before."""

    def __post_init__(self) -> None:
        need_whole("requests", self.requests, 1)
        need_whole("hash-block", self.hash_block, 1, MAX_TOKENS)
        need_whole("n", self.n, 1, MOST_SEQUENCES)
        need_whole("beam-width", self.beam_width, 1, MOST_SEQUENCES)
        need_whole("tenants", self.tenants, 0, 1_000_000)
        need_whole("users", self.users, 0, 1_000_000)
        if self.users and not self.tenants:
            raise ConfigError(f"--users {self.users} without --tenants; accepted: both")
        if 1 < self.beam_width < self.n:
            raise ConfigError(
                f"--n {self.n} exceeds --beam-width {self.beam_width}; accepted: at most as many"
            )
        need_whole("max-tokens", self.max_tokens, 1, MAX_TOKENS)
        if not 1 / FASTEST <= self.rate <= FASTEST:
            raise ConfigError(
                f"--rate is {self.rate}; accepted: requests per second from {1 / FASTEST:g} to "
                f"{FASTEST:g}"
            )
        if self.prefix.tokens + 2 > self.max_tokens:
            raise ConfigError(
                f"--prefix-tokens {self.prefix.tokens} leaves no room for a prompt in --max-tokens "
                f"{self.max_tokens}; accepted: at least 2 tokens less"
            )


def need_whole(option: str, value: int, least: int, most: int = MOST) -> None:
    """Refuse what is not a whole number from ``least`` to ``most``."""
    if type(value) is not int or not least <= value <= most:
        raise ConfigError(
            f"--{option} is {value!r}; accepted: a whole number from {least} to {most:,}"
        )


PRESETS = {
    "conversation": WorkloadSpec(
        rate=4.0,
        prompt="lognormal:280:1.0",
        output="lognormal:230:0.8",
        prefix=PrefixTree(groups=8, tokens=512),
        sessions=Sessions("geometric:3.5", "exponential:15"),
        max_tokens=32_768,
    ),
    # Means of the public Azure 2023 code trace: 2,048 tokens in, 28 out, 2.6 requests a second.
    "code": WorkloadSpec(
        rate=2.6,
        arrival="mmpp:100:0.03:5",
        prompt="lognormal:2048:0.9",
        output="lognormal:28:0.9",
        max_tokens=8_192,
    ),
    "rag": WorkloadSpec(
        rate=1.0,
        prompt="lognormal:160:0.6",
        output="lognormal:180:0.6",
        prefix=PrefixTree(groups=120, tokens=8_192),
        hash_block=256,
    ),
    "agent": WorkloadSpec(
        rate=1.0,
        prompt="lognormal:900:1.2",
        output="lognormal:280:1.0",
        prefix=PrefixTree(groups=4, tokens=15_360),
        sessions=Sessions("geometric:16", "lognormal:6:1.2"),
    ),
    # Means of the public Mooncake conversation trace: 12,035 tokens in, 343 out, 3.4 a second.
    "mooncake": WorkloadSpec(
        rate=3.4,
        arrival="gamma:0.5",
        prompt="lognormal:7427:1.1",
        output="lognormal:343:0.6",
        prefix=PrefixTree(groups=12, tokens=4_608, depth=3),
        hash_block=512,
    ),
}


def preset(name: str) -> WorkloadSpec:
    """The preset of this name. Raises ``ConfigError`` when there is none."""
    if name not in PRESETS:
        raise unknown("preset", name, PRESETS)
    return PRESETS[name]
