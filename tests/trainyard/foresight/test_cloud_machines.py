"""How machines are bought: price, waits, losses."""

import pytest

from trainyard.foresight.cloud_machines import (
    TABLE,
    combine_interruptions,
    estimate_failure_hours,
    estimate_loss_hours,
    estimate_spot_share,
    find_price,
    make_machines,
)
from trainyard.foresight.interval import Spread
from trainyard.instance_types import MACHINES
from trainyard.plan.prices import load_prices


def test_every_figure_has_a_source_with_a_date():
    table = TABLE
    lists = [table["failures"], table["losses"], table["shares"], [*table["waits"].values()]]
    entries = [*sum(lists, []), table["probes"], table["starts"], table["checkpoints"]]
    assert {one["source"] for one in entries} == set(table["sources"])
    for source in table["sources"].values():
        assert source["date"][:2] == "20" and {"what", "guess"} <= source.keys()
    assert all(0 < one["low"] <= one["high"] <= 1 for one in table["shares"])
    assert {one["type"] for one in table["shares"]} <= set(MACHINES)
    families = {name.split(".")[1] for name in MACHINES}
    assert {one["family"] for one in table["losses"]} <= families


def test_llama_3_failed_every_three_hours():
    """419 unexpected interruptions of 16,384 GPUs in 54 days."""
    assert estimate_failure_hours(16384 // 8).p50 == pytest.approx(54 * 24 / 419, rel=0.01)
    assert estimate_failure_hours(1).p50 == pytest.approx(2048 * estimate_failure_hours(2048).p50)


def test_the_loss_of_one_machine_stops_all():
    one, many = (estimate_loss_hours("ml.p5.48xlarge", nodes) for nodes in (1, 16))
    assert many.p50 == pytest.approx(one.p50 / 16) and 0 < one.p10 < one.p50 < one.p90
    families = {one["family"] for one in TABLE["losses"]}
    of_families = [estimate_loss_hours(f"ml.{family}.xlarge", 1) for family in families]
    rarest = max(of_families, key=lambda spread: spread.p90)
    assert estimate_loss_hours("ml.trn1.32xlarge", 1) == rarest  # the band of all families


def test_a_spot_price_is_that_of_the_type_the_family_or_all():
    of_type = estimate_spot_share("ml.p5.48xlarge", "us-west-2")
    assert 0.2 < of_type.p10 < of_type.p90 < 0.5
    elsewhere = estimate_spot_share("ml.p5.48xlarge", "eu-west-1")  # seen in other regions alone
    assert elsewhere.p10 <= of_type.p10 and of_type.p90 <= elsewhere.p90 < 1
    everything = estimate_spot_share("ml.trn1.32xlarge", "us-east-1")
    family = estimate_spot_share("ml.g7.4xlarge", "us-west-2")
    assert everything.p10 <= family.p10 and family.p90 <= everything.p90 == 1
    assert family != everything


def test_causes_add_up_and_machines_are_paid_each():
    demand = make_machines("ml.p5.48xlarge", 2, "on demand", region="us-west-2", usd_hour=60)
    found = (demand.count, demand.gpus_per_node, demand.usd_per_hour.p50)
    assert found == (2, 8, 120)
    both = combine_interruptions(Spread(1, 2, 4), Spread(1, 6, 4))
    assert (both.p10, both.p50, both.p90) == (0.5, pytest.approx(1.5), 2)


def test_a_region_without_a_price_has_another_ones_and_is_an_estimate():
    exact = find_price("ml.g5.xlarge", "us-east-1")
    assert (
        exact == load_prices("us-east-1").find_hourly("training", "ml.g5.xlarge")
        and not exact.is_estimated
    )
    found = find_price("ml.p5.48xlarge", "eu-north-1")
    assert found.is_estimated and found.usd == find_price("ml.p5.48xlarge", "us-east-1").usd
    assert find_price("ml.p2.xlarge", "us-east-1") is None
