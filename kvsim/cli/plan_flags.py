"""The flags of ``kvsim plan``: what a fleet may be, and what everything costs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from kvsim.cli.common import flag_option
from kvsim.errors import ConfigError
from kvsim.lists import listed
from kvsim.scenario import Scenario

if TYPE_CHECKING:
    from datetime import date

    from kvsim.planning.prices import Preference
    from kvsim.planning.question import Electricity, Owned


def asked(*written: str, help: str, metavar: str | None = None) -> Any:
    """A flag about what is asked."""
    return flag_option(*written, help=help, panel="Plan", metavar=metavar)


def priced(*written: str, help: str) -> Any:
    """A flag about money."""
    return flag_option(*written, help=help, panel="Prices and energy")


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the fleet must reach, and what it may be."""

    slo: Annotated[
        list[str] | None,
        asked(help="ttft_p99=2s for the run, ttft=2s for each request. Repeatable."),
    ] = None
    goodput: Annotated[
        list[str] | None, asked(help="The same in milliseconds: ttft:500. Repeatable.")
    ] = None
    attainment: Annotated[
        float | None, asked(help="Share of requests that must meet every limit.")
    ] = None
    tensor_parallel_size: Annotated[
        str | None,
        asked(help="Tensor parallel sizes to try, by commas; without, 1,2,4,8.", metavar="LIST"),
    ] = None
    token_budgets: Annotated[
        str | None, asked(help="Tokens in an iteration to try, by commas; auto: the engine's own.")
    ] = None
    max_gpus: Annotated[int, asked(help="Most GPUs of a fleet.")] = 128
    headroom: Annotated[float, asked(help="Meet the objective at this much more traffic: 0.2.")] = (
        0.0
    )
    calibration_error: Annotated[
        float | None, asked(help="How wrong the times may be, as a share.")
    ] = None
    quick: Annotated[bool, asked("--quick", help="Only the fleets: no rates, no sensitivity.")] = (
        False
    )

    def targets(self, scenario: Scenario) -> list[str]:
        """Objectives: those of the flags, else those of the scenario."""
        said = [*(self.slo or ()), *(self.goodput or ())]
        return said or [f"{name}={limit}s" for name, limit in scenario.slo.items()]

    def sizes(self, scenario: Scenario) -> tuple[int, ...]:
        """Tensor parallel sizes: those of the flag, else the scenario's, else the usual ones."""
        from kvsim.planning.question import TENSOR_PARALLEL_SIZES

        if self.tensor_parallel_size is not None:
            return tuple(map(size, listed("--tensor-parallel-size", self.tensor_parallel_size)))
        given = "tensor_parallel_size" in scenario.model_fields_set
        return (scenario.tensor_parallel_size,) if given else TENSOR_PARALLEL_SIZES

    @property
    def budgets(self) -> tuple[int | None, ...]:
        """Token budgets."""
        from kvsim.planning.question import TOKEN_BUDGETS

        return TOKEN_BUDGETS if self.token_budgets is None else budgets(self.token_budgets)


@dataclass(frozen=True, slots=True)
class Money:
    """Prices, the site, and what is owned."""

    price_file: Annotated[Path | None, priced(help="CSV of prices instead of the catalog's.")] = (
        None
    )
    gpu_price: Annotated[
        list[str] | None, priced(help="Dollars per GPU-hour: 2.10, or h200=2.10. Repeatable.")
    ] = None
    provider: Annotated[
        str | None, priced(help="Whose prices; any: the cheapest list; without, aws.")
    ] = None
    commitment: Annotated[
        str, priced(help="on-demand, spot, 1y or 3y, or how a kind of the price file begins.")
    ] = "on-demand"
    region: Annotated[
        str | None, priced(help="Only prices of regions with this in their name: us-east-1, eu.")
    ] = None
    as_of: Annotated[
        str | None, priced(help="Take the prices known on a day (2024-06-01); without, today.")
    ] = None
    pue: Annotated[float, priced(help="Power usage effectiveness of the site.")] = 1.3
    electricity_price: Annotated[float, priced(help="Dollars per kWh.")] = 0.10
    carbon_intensity: Annotated[float | None, priced(help="Grams of CO2 per kWh.")] = None
    idle_power: Annotated[float, priced(help="Share of the design power drawn when idle.")] = 0.15
    power_load: Annotated[
        float | None, priced(help="Share of time at full power, instead of the replay's.")
    ] = None
    capex: Annotated[
        list[str] | None, priced(help="Own the GPUs: dollars for one, or h200=31000. Repeatable.")
    ] = None
    years: Annotated[
        float | None, priced(help="Years of depreciation of owned GPUs; without, 4.")
    ] = None
    owned_utilisation: Annotated[
        float | None, priced(help="Share of time that owned GPUs serve this workload; without, 1.")
    ] = None
    staff: Annotated[
        float | None, priced(help="Staff and other cost of owned GPUs, dollars per GPU and year.")
    ] = None

    @property
    def preference(self) -> Preference:
        """Which prices to take."""
        from kvsim.planning.prices import Preference, read_amount

        said = tuple(read_amount("--gpu-price", text) for text in self.gpu_price or ())
        return Preference(self.provider, self.commitment, self.region, self.price_file, said)

    @property
    def electricity(self) -> Electricity:
        """The site."""
        from kvsim.planning.question import Electricity

        return Electricity(
            self.idle_power,
            self.power_load,
            self.pue,
            self.electricity_price,
            self.carbon_intensity,
        )

    @property
    def owned(self) -> Owned | None:
        """Owned hardware, if its price was said."""
        from kvsim.planning.prices import read_amount
        from kvsim.planning.question import Owned

        given = {
            "years": self.years,
            "utilisation": self.owned_utilisation,
            "staff_usd_per_gpu_year": self.staff,
        }
        said = {name: value for name, value in given.items() if value is not None}
        if not self.capex:
            if said:
                raise ConfigError(
                    "--years, --owned-utilisation and --staff mean nothing without --capex"
                )
            return None
        return Owned(tuple(read_amount("--capex", text) for text in self.capex), **said)

    @property
    def day(self) -> date:
        """The day by which prices are old; today if none is said."""
        from datetime import date

        if self.as_of is None:
            return date.today()
        try:
            return date.fromisoformat(self.as_of)
        except ValueError:
            raise ConfigError(f"--as-of {self.as_of}: must be a day like 2026-11-29") from None


def size(text: str) -> int:
    """A tensor parallel size."""
    if not text.isdecimal() or not 1 <= int(text) <= 1024:
        raise ConfigError(f"--tensor-parallel-size {text}: must be whole numbers as in 1,2,4,8")
    return int(text)


def budgets(text: str) -> tuple[int | None, ...]:
    """Token budgets."""
    names = listed("--token-budgets", text)
    for name in names:
        if name != "auto" and not (name.isdecimal() and int(name) > 0):
            raise ConfigError(f"--token-budgets {name}: must be auto or whole numbers as in 2048")
    return tuple(None if name == "auto" else int(name) for name in names)
