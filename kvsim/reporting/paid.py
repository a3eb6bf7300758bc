"""What a deployment costs by some prices: rented from a list, or owned."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import date
from typing import NamedTuple

from kvsim.analysis.economics import Bill, Offer, OwnedCost, cheapest_bill, owned_cost
from kvsim.catalog import Gpu
from kvsim.errors import ConfigError
from kvsim.planning.prices import Preference, named, quote, warnings
from kvsim.planning.question import Electricity, Owned

UNKNOWN = "no price is known (--gpu-price says one)"


class Paid(NamedTuple):
    """A bill, with all that a reader needs to check it."""

    bill: Bill
    line: str
    """The price in words, with its source."""
    owned: OwnedCost | None
    """Dollars an hour of each GPU by what they are spent on; None of rented ones."""
    doubts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Prices:
    """The prices and the site by which everything is reckoned."""

    today: date
    """The day by which the age of prices is judged."""
    preference: Preference = field(default_factory=Preference)
    electricity: Electricity = field(default_factory=Electricity)
    owned: Owned | None = None

    def of(self, gpu: Gpu, replicas: int, gpus_per_replica: int, busy: float) -> Paid | None:
        """The cheapest way to run so many replicas; None if there is no price and none was asked for."""
        if self.owned is not None:
            return self._owned(gpu, self.owned, replicas * gpus_per_replica, busy)
        try:
            quoted = quote(gpu, self.preference, self.today)
        except ConfigError:
            if self.preference != Preference():
                raise
            return None
        bill = cheapest_bill(quoted.offers, replicas, gpus_per_replica)
        if bill is None:
            return None
        listed = quoted.price_of(bill.offer)
        units = f"{bill.instances} × {bill.offer.name}" if bill.offer.gpus else named(listed)
        line = (
            f"{units}, ${listed.usd_per_gpu_hour:g} a GPU-hour, {listed.kind}, {listed.region}, "
            f"{listed.date or 'undated'} ({listed.source}; {quoted.note})"
        )
        return Paid(bill, line, None, tuple(warnings(listed, self.today)))

    def _owned(self, gpu: Gpu, owned: Owned, gpus: int, busy: float) -> Paid:
        power = self.electricity.power(gpu)
        if power is None:
            raise ConfigError(f"{gpu.name}: its power is not known, so it cannot be owned")
        parts = owned_cost(owned.of(gpu), power, busy)
        bill = cheapest_bill([Offer("owned", None, parts.total)], 1, gpus)
        assert bill is not None
        said = " + ".join(f"${usd:.3f} {what}" for what, usd in parts._asdict().items())
        return Paid(bill, f"owned: {said} a GPU-hour", parts, ())
