"""What an endpoint costs: its machines by the hour, for as long as it serves."""

from collections.abc import Iterator, Sequence

from pipelines.recipe.deploy_section import Deploy
from trainyard.plan.prices import HOURS_A_MONTH, Prices


def hourly(prices: Prices, machines: Sequence[tuple[str, int]]) -> float | None:
    """Return USD an hour of (instance type, count) machines; None if one has no price.

    It is a processing job's price, since the table has none of endpoints.
    """
    machine_prices = [prices.cluster("processing", *machine) for machine in machines]
    known_usd = [price.usd for price in machine_prices if price]
    return sum(known_usd) if machine_prices and len(known_usd) == len(machine_prices) else None


def remarks(deploy: Deploy | None, prices: Prices) -> Iterator[str]:
    """Yield the line of a plan on the recipe's endpoint; nothing without one."""
    if deploy is None:
        return
    machines = f"{deploy.instance_count} × {deploy.instance_type}"
    usd = hourly(prices, [(deploy.instance_type, deploy.instance_count)])
    cost = (
        f"the price table has no {deploy.instance_type}"
        if usd is None
        else f"~${usd:,.3f} an hour, ~${usd * HOURS_A_MONTH:,.2f} a month, by processing's price"
    )
    yield f"endpoint {deploy.endpoint}, once pipelines.deploy created it: {machines}, {cost}"
