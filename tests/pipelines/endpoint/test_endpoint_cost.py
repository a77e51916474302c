"""What a plan says of an endpoint's cost."""

from pipelines.endpoint.endpoint_requests import hourly, remarks
from pipelines.recipe.sections import Deploy
from trainyard.plan.prices import HOURS_A_MONTH, Prices

PRICES = Prices(
    "us-east-1",
    "2026-11-01",
    {"processing": {"ml.m5.large": {"usd": 0.1, "source": "list"}}},
    {"list": {"estimated": False}},
)


def test_a_plan_names_the_endpoints_machines_and_their_cost():
    [line] = remarks(Deploy(endpoint="models", instance_count=4), PRICES)
    assert "endpoint models" in line and "4 × ml.m5.large" in line
    assert "$0.400 an hour" in line and f"${0.4 * HOURS_A_MONTH:,.2f} a month" in line


def test_a_machine_without_a_price_is_named():
    [line] = remarks(Deploy(endpoint="models", instance_type="ml.new.large"), PRICES)
    assert "the price table has no ml.new.large" in line
    assert hourly(PRICES, [("ml.m5.large", 1), ("ml.new.large", 1)]) is None
    assert hourly(PRICES, []) is None


def test_a_recipe_without_an_endpoint_says_nothing():
    assert [*remarks(None, PRICES)] == []
