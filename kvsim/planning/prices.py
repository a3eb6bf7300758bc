"""Which price a plan reckons with: from the catalog, from a file, or said by the user."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import NamedTuple

from kvsim.analysis.economics import Offer
from kvsim.catalog import Gpu, Price, load_gpu, prices, regional_prices
from kvsim.errors import ConfigError, unknown

OLD_DAYS = 365
HIGHEST = 1e9
"""Dollars that something may cost: more is a slip of the pen."""
KNOWN = 5
"""Prices that a message about a missing one names."""
GIVEN = "given"
"""Provider and kind of a price that the user has said."""
REQUIRED = ("gpu", "usd_per_gpu_hour", "source", "date")
ANY, USUAL = "any", "aws"
"""Providers: the cheapest of all, and whose prices are taken where none is named."""
_DATE = re.compile(r"(?P<year>\d{4})(-(?P<month>\d{2})(-(?P<day>\d{2}))?)?(?!\d)")


@dataclass(frozen=True, slots=True)
class Preference:
    """Which of the known prices to take."""

    provider: str | None = None
    """``any``: the cheapest of all. Where the provider does not list a GPU, any as well. Without:
    ``aws`` of the catalog, and everything that a file lists."""
    commitment: str = "on-demand"
    """Beginning of the kind of price: on-demand, spot, 1y, 3y, capacity block, or of a file's own."""
    region: str | None = None
    """Part of the region's name; without, prices that hold for one region or for the median."""
    file: Path | None = None
    gpu_prices: tuple[tuple[str | None, float], ...] = ()
    """Dollars per GPU and hour by GPU of the catalog (None: any), instead of any list."""

    def __post_init__(self) -> None:
        for flag, name in (("--commitment", self.commitment), ("--region", self.region)):
            if name is not None and not name.strip():
                raise ConfigError(f"{flag} is empty; accepted: as in on-demand, us-east-1")

    def said(self, gpu: Gpu) -> float | None:
        """What the user says the GPU costs; the most specific, then the last one said."""
        known = dict(self.gpu_prices)
        return known.get(gpu.name, known.get(None))


class Quote(NamedTuple):
    """The offers for a GPU, with all that a reader needs to check them."""

    offers: tuple[Offer, ...]
    prices: tuple[Price, ...]
    note: str
    """Why these, in a few words."""

    def price_of(self, offer: Offer) -> Price:
        """The line of the price list behind an offer."""
        return self.prices[self.offers.index(offer)]


def quote(gpu: Gpu, preference: Preference, today: date = date.max) -> Quote:
    """The newest prices of a GPU that fit the preference, of those that were known ``today``.

    ConfigError if there are none.
    """
    listed = _listed(gpu, preference)
    said = preference.said(gpu)
    if said is not None:
        return _quoted([_said(gpu, said)], "given")
    where = "the catalog" if preference.file is None else str(preference.file)
    kind = [price for price in listed if _fits(price, preference)]
    fitting = [price for price in kind if (day(price) or date.min) <= today]
    if not fitting:
        # Of that kind there are some, but of later days.
        known = f"{where} by {today}" if kind else where
        raise ConfigError(_missing(gpu, kind or listed, preference, known))
    if preference.file is not None:
        return _quoted(newest(fitting), f"from {where}")
    provider = preference.provider or USUAL
    own = [price for price in fitting if price.provider == provider]
    if own:
        # A line without an instance beside lines with one is a mean over them, not an offer.
        instances = [price for price in own if price.sku]
        return _quoted(newest(instances or own), f"{provider} list price")
    cheapest = min(newest(fitting), key=lambda price: price.usd_per_gpu_hour)
    asked = "" if provider == ANY else f"{provider} lists none; "
    return _quoted([cheapest], f"{asked}cheapest of {len(newest(fitting))} lists")


def _listed(gpu: Gpu, preference: Preference) -> list[Price]:
    """Every price of a GPU that there is; by region only if a region is asked for.

    ConfigError for a provider that lists nothing at all: that is a slip of the pen.
    """
    if preference.file is not None:
        listed = read_prices(preference.file)
        _require_known(preference.provider, listed)
        own = [price for price in listed if preference.provider in (None, ANY, price.provider)]
        return [price for price in own if price.catalog_gpu == gpu.name]
    _require_known(preference.provider, prices())
    return prices(gpu.name) + (regional_prices(gpu.name) if preference.region else [])


def _require_known(provider: str | None, listed: Iterable[Price]) -> None:
    known = {ANY, *(price.provider for price in listed if price.provider)}
    if provider is not None and provider not in known:
        raise unknown("provider", provider, known)


def _quoted(chosen: Sequence[Price], note: str) -> Quote:
    offers = tuple(Offer(named(price), price.gpus, price.usd_per_gpu_hour) for price in chosen)
    return Quote(offers, tuple(chosen), note)


def named(price: Price) -> str:
    """Provider and instance."""
    return " ".join(part for part in (price.provider, price.sku) if part) or "unnamed offer"


def _fits(price: Price, preference: Preference) -> bool:
    here = preference.region is None or preference.region in price.region
    return here and price.kind.startswith(preference.commitment)


def newest(listed: Iterable[Price]) -> list[Price]:
    """The newest price of each thing that can be rented; undated ones are the oldest."""
    latest: dict[tuple[str, str, str], Price] = {}
    for price in listed:
        key = (price.provider, price.sku, price.region)
        if key not in latest or (day(price) or date.min) >= (day(latest[key]) or date.min):
            latest[key] = price
    return list(latest.values())


def day(price: Price) -> date | None:
    """The first day that a price's date names, of ``2026`` New Year; None for ``before 2025-06`` ..."""
    found = _DATE.match(price.date)
    if found is None:
        return None
    return date(int(found["year"]), int(found["month"] or 1), int(found["day"] or 1))


def warnings(price: Price, today: date) -> list[str]:
    """What is doubtful about a price."""
    doubts = [_age(price, today)] if price.kind != GIVEN else []
    doubts += [
        f"{named(price)} {price.gpu} {doubt}"
        for kind, doubt in BOUND.items()
        if price.kind.startswith(kind)
    ]
    return [doubt for doubt in doubts if doubt]


BOUND = {
    "spot": "is spot capacity, which can be taken away at any time: no spare replicas are planned",
    "1y": "is paid for a whole year, whether it is used or not",
    "3y": "is paid for three whole years, whether it is used or not",
}
"""What binds, by the beginning of a kind of price."""


def _age(price: Price, today: date) -> str | None:
    dated = day(price)
    if dated is None:
        return f"the price of {price.gpu} ({named(price)}) has no date: {price.date or 'none'}"
    if (today - dated).days > OLD_DAYS:
        return (
            f"the price of {price.gpu} ({named(price)}) is of {price.date}, more than a year "
            f"before {today}"
        )
    return None


def _missing(gpu: Gpu, listed: list[Price], preference: Preference, where: str) -> str:
    known = list(dict.fromkeys(_described(price) for price in listed))
    more = f" and {len(known) - KNOWN} more" if len(known) > KNOWN else ""
    region = f" in {preference.region}" if preference.region else ""
    return (
        f"no {preference.commitment} price for {gpu.name}{region} in {where}; "
        f"known: {', '.join(known[:KNOWN]) or 'none'}{more} (--gpu-price or --price-file sets one)"
    )


def _described(price: Price) -> str:
    return f"{price.kind} in {price.region} of {price.date or 'no date'}"


def _said(gpu: Gpu, usd: float) -> Price:
    return Price(
        provider=GIVEN,
        sku="",
        gpu=gpu.name,
        catalog_gpu=gpu.name,
        gpus=None,
        usd_per_hour=None,
        usd_per_gpu_hour=usd,
        region="any",
        kind=GIVEN,
        date="",
        verified=False,
        source="--gpu-price",
        notes="",
    )


def read_amount(flag: str, text: str) -> tuple[str | None, float]:
    """Dollars for any GPU (``2.10``) or for one (``h200=2.10``)."""
    name, separator, amount = text.rpartition("=")
    try:
        usd = float(amount)
    except ValueError:
        usd = 0.0
    if not 0 < usd <= HIGHEST:
        raise ConfigError(f"{flag} {text}: must be like 2.10 or h200=2.10, more than 0")
    return (load_gpu(name).name if separator else None), usd


def read_prices(path: Path) -> list[Price]:
    """Prices of a CSV file with the columns of :data:`REQUIRED`, and those of the catalog's list."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.DictReader(file)
            missing = [name for name in REQUIRED if name not in (reader.fieldnames or ())]
            if missing:
                raise ConfigError(
                    f"{path}: column {missing[0]!r} is missing; needed: {', '.join(REQUIRED)}"
                )
            return [_price(row, f"{path}:{reader.line_num}") for row in reader]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise ConfigError(f"{path}: {getattr(error, 'strerror', None) or error}") from None


def _price(row: dict[str, str], where: str) -> Price:
    text = {key: (value or "").strip() for key, value in row.items() if isinstance(key, str)}
    if len(text) < len(row):
        raise ConfigError(f"{where}: has more cells than the {len(text)} columns of its header")
    usd = _dollars(text["usd_per_gpu_hour"], where)
    try:
        gpu = load_gpu(text["gpu"])
    except ConfigError as error:
        raise ConfigError(f"{where}: gpu: {error}") from None
    gpus = _gpus(text.get("gpus", ""), where)
    if not text["source"]:
        raise ConfigError(f"{where}: source is empty; accepted: where the price is from")
    price = Price(
        provider=text.get("provider", ""),
        sku=text.get("sku", ""),
        gpu=text["gpu"],
        catalog_gpu=gpu.name,
        gpus=gpus,
        usd_per_hour=None if gpus is None else usd * gpus,
        usd_per_gpu_hour=usd,
        region=text.get("region", "") or "any",
        kind=text.get("kind", "") or "on-demand",
        date=text["date"],
        verified=text.get("verified", "") == "yes",
        source=text["source"],
        notes=text.get("notes", ""),
    )
    try:
        day(price)
    except ValueError:
        raise ConfigError(
            f"{where}: date = {price.date!r}: no such day; accepted: 2026-11-29, 2026-11 or 2026"
        ) from None
    return price


def _dollars(text: str, where: str) -> float:
    try:
        usd = float(text)
    except ValueError:
        usd = 0.0
    if not 0 < usd <= HIGHEST:
        raise ConfigError(f"{where}: usd_per_gpu_hour = {text!r:.40}: must be a number above 0")
    return usd


def _gpus(text: str, where: str) -> int | None:
    if not text.strip():
        return None
    if not text.strip().isdecimal() or not 1 <= int(text) <= 100_000:
        raise ConfigError(f"{where}: gpus = {text!r:.40}: must be a whole number, or empty")
    return int(text)
