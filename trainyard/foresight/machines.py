"""The machines that a training can be foreseen on: what they are, cost, and how they are lost."""

import math
from dataclasses import dataclass
from typing import Literal

from trainyard.common.errors import ForesightError
from trainyard.common.nearest import nearest
from trainyard.foresight.gpus import Gpu, device_of
from trainyard.foresight.interruptions import (
    between_failures,
    between_losses,
    either,
    spot_share,
    wait,
)
from trainyard.foresight.runs import Market
from trainyard.foresight.spread import Spread
from trainyard.machines import MACHINES
from trainyard.plan.prices import Price, load

How = Literal["on demand", "spot", "mixture"]
ELSEWHERE = "us-east-1"
"""The region whose prices are taken where one's own has none."""

PATIENCE = 7200.0
"""Seconds that a mixture waits for spot before it goes on on demand."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Machines:
    """``count`` instances of a type in a region."""

    instance_type: str
    count: int
    region: str
    gpu: Gpu | None
    """None where it has none that foresight has figures of."""

    gpus_per_node: int
    node_gbps: float
    """Network of an instance, in 10⁹ bits a second; 0 where AWS states none."""

    usd_per_hour: float | None
    """Of all of them, on demand; None where no region has a price."""

    estimated: bool
    """Whether the price was derived, and not read from AWS's list for the region."""

    spot_share: Spread
    """Spot price over the price on demand."""

    between_failures: Spread
    """Hours of running from one failure of the whole job to the next."""

    between_losses: Spread
    """The same of losses of spot machines, failures apart."""

    guessed: tuple[str, ...]
    """What no source states, a sentence each."""

    def markets(self, how: How, patience: float = PATIENCE) -> list[Market]:
        """How :func:`trainyard.foresight.runs.foresee` is told of them.

        Args:
            how: ``mixture`` is spot, and on demand from when a wait for spot takes longer than
                ``patience`` seconds.

        Raises:
            ForesightError: there is no price.
        """
        if self.usd_per_hour is None:
            raise ForesightError(
                f"{self.instance_type} has no price in {self.region}; refresh the table (trainyard "
                f"prices --region {self.region})"
            )
        usd = self.usd_per_hour
        demand = Market(
            name="on demand",
            usd_per_hour=Spread(usd, usd, usd),
            between=self.between_failures,
            wait=wait("on demand"),
        )
        spot = Market(
            name="spot",
            usd_per_hour=self.spot_share.times(usd),
            between=either(self.between_failures, self.between_losses),
            wait=wait("spot"),
            patience=patience if how == "mixture" else math.inf,
        )
        return {"on demand": [demand], "spot": [spot], "mixture": [spot, demand]}[how]


def machines(instance_type: str, count: int, region: str) -> Machines:
    """What is known of ``count`` instances of a type in a region.

    Raises:
        ForesightError: there is no such type, or no instance.
    """
    machine = MACHINES.get(instance_type)
    if machine is None:
        known = nearest(instance_type, [*MACHINES])
        raise ForesightError(f"{instance_type} is not in trainyard/machines.csv; {known}")
    if count < 1:
        raise ForesightError(f"{count} × {instance_type}: expected one instance or more")
    price, guessed = _price(instance_type, region)
    share, share_guessed = spot_share(instance_type, region)
    losses, losses_guessed = between_losses(instance_type, count)
    gpu = device_of(machine)
    unstated = sorted(gpu.guessed) if gpu else []
    return Machines(
        instance_type=instance_type,
        count=count,
        region=region,
        gpu=gpu,
        gpus_per_node=machine.accelerators,
        node_gbps=machine.network_gbps,
        usd_per_hour=price.usd * count if price else None,
        estimated=price is not None and price.estimated,
        spot_share=share,
        between_failures=between_failures(count),
        between_losses=losses,
        guessed=(
            *guessed,
            *(f"{name} of {gpu.name}" for name in unstated if gpu),
            *share_guessed,
            *losses_guessed,
            "how long machines are waited for, and how long a job takes to its first step",
        ),
    )


def _price(instance_type: str, region: str) -> tuple[Price | None, list[str]]:
    """USD an hour of one, and what of it is a guess."""
    here = load(region).hourly("training", instance_type)
    if here is None:
        there = load(ELSEWHERE).hourly("training", instance_type)
        if there is None:
            return None, []
        said = f"the price of {instance_type} in {region} is that of {ELSEWHERE}"
        return Price(there.usd, estimated=True), [said]
    return here, [f"the price of {instance_type} was derived"] if here.estimated else []
