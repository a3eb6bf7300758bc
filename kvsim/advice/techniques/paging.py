"""Paged memory instead of contiguous reservations (PagedAttention, arXiv:2309.06180)."""

from __future__ import annotations

from kvsim.advice.comparison import Comparison
from kvsim.advice.techniques.technique import Reason, Trial
from kvsim.scenario import Scenario


class Paging:
    """Blocks on demand, against the longest sequence reserved in one piece. No prefix cache in either."""

    name = "paged memory"
    price = None

    def trial(self, scenario: Scenario) -> Trial | Reason:
        """Contiguous against paged, all else equal."""
        contiguous = {"allocator": "contiguous", "reservation": "max"}
        paged = {"allocator": "paged", "enable_prefix_caching": False}
        return Trial(contiguous, paged)

    def reason(self, seen: Comparison) -> Reason:
        """How much of the memory reservations took, and whether it was short."""
        parts = (seen.without.summary or {}).get("kv_memory")
        assert isinstance(parts, dict)
        idle = parts["reserved"] + parts["internal_fragmentation"] + parts["external_fragmentation"]
        held = idle + parts["used"]
        wasted = f"reservations kept {idle / held:.0%} of what they held empty" if held else ""
        if seen.verdict == "inert":
            return Reason(f"{wasted}, but no request waited for memory")
        return Reason(f"{wasted}, and {(seen.without.summary or {}).get('verdict_evidence')}")
