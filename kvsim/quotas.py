"""Quotas: the share of a KV pool that each tenant may have, held or cached.

A quota is a bound on a tenant and a promise to all others. As shares never sum to more than the pool,
nobody's blocks ever have to leave for another tenant's.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from kvsim.core import Request
from kvsim.errors import ConfigError, shown

OTHERS = "*"
"""Stands for every tenant that is not named."""
ACCEPTED = "shares by tenant that sum to at most 100%, as acme=50%,*=10%"
NONE_LEFT = 1e-9
"""Shares below this are rounding errors."""


def read_quotas(given: object) -> object:
    """Shares from 0 to 1 by tenant, from a table or from text like ``acme=50%,*=10%``."""
    if given is None:
        return None
    if isinstance(given, str):
        parts = [part.strip() for part in given.split(",")]
        if not all("=" in part for part in parts):
            raise ConfigError(f"--quotas {shown(given)}; accepted: {ACCEPTED}")
        given = dict(part.rsplit("=", 1) for part in parts)
        if len(given) < len(parts):
            raise ConfigError("--quotas names a tenant twice; accepted: each once")
    if not isinstance(given, Mapping) or not given:
        raise ConfigError(f"quotas are {shown(given)}; accepted: {ACCEPTED}")
    shares = {str(name).strip(): _share(str(name), value) for name, value in given.items()}
    if sum(shares.values()) > 1 + NONE_LEFT:
        raise ConfigError(
            f"quotas sum to {100 * sum(shares.values()):.6g}% of the pool; accepted: {ACCEPTED}"
        )
    return shares


def check_isolation(isolation: object) -> None:
    """ConfigError where blocks may be several tenants'."""
    if isolation == "global":
        raise ConfigError(
            "--quotas bounds tenants, whose blocks must be their own; accepted: --isolation tenant, "
            "user or session, not global"
        )


def _share(name: str, value: object) -> float:
    text = str(value).strip()
    try:
        share = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        share = -1.0
    if not 0 < share <= 1 or isinstance(value, bool):
        raise ConfigError(
            f"the quota of {shown(name)} is {shown(value)}; accepted: a share of the pool above 0, "
            "as 25% or 0.25"
        )
    return share


class Awaited:
    """The named tenants with a quota of whom no request has come yet."""

    def __init__(self, shares: Mapping[str, float]) -> None:
        self._absent = dict.fromkeys(name for name in shares if name != OTHERS)

    def watch(self, requests: Iterable[Request]) -> Iterator[Request]:
        """The same requests; whose they are is noted as they pass."""
        for request in requests:
            if request.tenant in self._absent:
                del self._absent[request.tenant]
            yield request

    @property
    def absent(self) -> tuple[str, ...]:
        """Their names, as they were given."""
        return tuple(self._absent)


class Quotas:
    """Which part of a pool is whose: a part for each named tenant, and what others have.

    ``*``: the part that every other tenant has for itself; without it, all others together have what
    the named ones leave.
    """

    def __init__(self, shares: Mapping[str, float]) -> None:
        self._named = {name: share for name, share in shares.items() if name != OTHERS}
        self._each = shares.get(OTHERS)
        self._parts = dict(self._named)

    @property
    def left(self) -> float:
        """Share of the pool that nobody has yet."""
        return 1 - sum(self._parts.values())

    def part(self, request: Request, trace: str = "the trace") -> str:
        """Name of the part that a request's blocks are in; parts of new tenants are made.

        ConfigError for a request without a tenant, and where the pool has no part left.
        """
        tenant = request.tenant
        if tenant is None:
            raise ConfigError(
                f"{trace}: request {request.row} has no 'tenant', whose quota it counts for; accepted: "
                "a trace that names it, or no --quotas"
            )
        if tenant in self._parts:
            return tenant
        name = OTHERS if self._each is None else tenant
        if name not in self._parts:
            self._parts[name] = self._new_share(tenant)
        return name

    def _new_share(self, tenant: str) -> float:
        share = self.left if self._each is None else self._each
        if share < NONE_LEFT or share > self.left + NONE_LEFT:
            raise ConfigError(
                f"--quotas leave {max(0.0, 100 * self.left):.6g}% of the pool to tenant {shown(tenant)}; "
                f"accepted: {ACCEPTED}, of which * is for each tenant that is not named"
            )
        return share

    def share(self, part: str) -> float:
        """The part's share of the pool."""
        return self._parts[part]
