"""Money, energy and carbon: worked examples whose answers can be checked by hand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvsim.analysis.economics import (
    HOURS_PER_MONTH,
    Offer,
    Ownership,
    Power,
    cheapest_bill,
    energy,
    owned_cost,
    unit_costs,
)

P4D = Offer("p4d", 8, 32.77 / 8)
SINGLE = Offer("single", None, 5.0)


def test_a_month_of_one_p4d_at_its_old_price_is_what_the_article_paid() -> None:
    bill = cheapest_bill([P4D], replicas=1, gpus_per_replica=8)
    assert bill is not None
    assert bill.usd_per_month == pytest.approx(32.77 * 730)
    assert bill.usd_per_month == pytest.approx(23_922.10)


def test_an_instance_is_paid_whole() -> None:
    bill = cheapest_bill([P4D], replicas=9, gpus_per_replica=1)
    assert bill is not None
    assert (bill.instances, bill.gpus_needed, bill.gpus_billed) == (2, 9, 16)
    assert bill.usd_per_hour == pytest.approx(2 * 32.77)


def test_a_replica_does_not_straddle_instances() -> None:
    three = cheapest_bill([Offer("four", 4, 1.0)], replicas=2, gpus_per_replica=3)
    assert three is not None
    assert three.instances == 2
    assert cheapest_bill([Offer("four", 4, 1.0)], replicas=1, gpus_per_replica=8) is None


def test_single_gpus_win_where_an_instance_would_stand_half_empty() -> None:
    few = cheapest_bill([P4D, SINGLE], replicas=2, gpus_per_replica=1)
    many = cheapest_bill([P4D, SINGLE], replicas=8, gpus_per_replica=1)
    assert few is not None
    assert many is not None
    assert (few.offer, many.offer) == (SINGLE, P4D)


@given(
    st.integers(1, 40),
    st.sampled_from([1, 2, 4, 8]),
    st.sampled_from([None, 8, 16]),
    st.floats(0.1, 50),
)
def test_a_larger_fleet_is_never_cheaper(
    replicas: int, size: int, gpus: int | None, price: float
) -> None:
    one = cheapest_bill([Offer("a", gpus, price)], replicas, size)
    more = cheapest_bill([Offer("a", gpus, price)], replicas + 1, size)
    assert one is not None
    assert more is not None
    assert one.usd_per_hour <= more.usd_per_hour
    assert one.gpus_billed >= one.gpus_needed


def test_unit_costs_of_a_dollar_a_second() -> None:
    summary = {
        "output_throughput": 2000.0,
        "total_token_throughput": 8000.0,
        "request_goodput": 4.0,
    }
    costs = unit_costs(3600.0, summary)
    assert costs == pytest.approx((500.0, 125.0, 250.0))


def test_work_that_was_not_done_has_no_price() -> None:
    costs = unit_costs(10.0, {"output_throughput": None, "request_goodput": 0.0})
    assert costs == (None, None, None)


def test_energy_of_an_idle_and_of_a_busy_gpu() -> None:
    power = Power(1000, idle_share=0.2, pue=1.5, usd_per_kwh=0.1, co2_grams_per_kwh=400)
    idle, busy = energy(power, 1, 0.0), energy(power, 1, 1.0)
    assert idle.kilowatts == pytest.approx(0.3)
    assert busy.kilowatts == pytest.approx(1.5)
    assert busy.kwh_per_month == pytest.approx(1.5 * 730)
    assert busy.usd_per_month == pytest.approx(109.5)
    assert busy.co2_kg_per_month == pytest.approx(438.0)


def test_an_assumed_load_replaces_the_measured_one() -> None:
    assert energy(Power(700, load=0.5), 1, 1.0) == energy(Power(700), 1, 0.5)


def test_carbon_is_unknown_without_the_intensity_of_the_grid() -> None:
    assert energy(Power(700), 8, 0.5).co2_kg_per_month is None


def test_an_owned_gpu_costs_its_share_of_the_hours_that_it_is_used() -> None:
    owned = Ownership(35_040, years=4, utilisation=0.5, staff_usd_per_gpu_year=4380)
    cost = owned_cost(owned, Power(1000, pue=1.0, usd_per_kwh=0.1), 1.0)
    assert cost.capital == pytest.approx(2.0)
    assert cost.staff == pytest.approx(1.0)
    assert cost.power == pytest.approx(0.1)
    assert cost.total == pytest.approx(3.1)


def test_a_month_has_730_hours() -> None:
    assert HOURS_PER_MONTH == 730
