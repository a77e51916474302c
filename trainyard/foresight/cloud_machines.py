"""The machines that a training can be predicted on: their hardware, price, and interruptions."""

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from trainyard.common.errors import ForesightError, nearest
from trainyard.foresight.gpus import Gpu, device_of
from trainyard.foresight.interrupted_run import Market
from trainyard.foresight.interval import Spread
from trainyard.instance_types import MACHINES
from trainyard.plan.prices import Price, load

HOURS_A_MONTH = 730
TABLE: Mapping[str, Any] = json.loads(
    Path(__file__).with_name("interruptions.json").read_text(encoding="utf-8")
)


def between_failures(nodes: int) -> Spread:
    """Return the hours of running between two failures of a job on ``nodes`` machines.

    One machine's loss stops all, so ``nodes`` machines fail as many times as often. The spread is
    that of the published rates, which are of nodes with 8 GPUs; a smaller node is assumed to fail
    as often.
    """
    rates = sorted(one["rate"] for one in TABLE["failures"])
    hours = [24_000 / (rate * nodes) for rate in rates]
    return Spread(hours[-1], hours[len(hours) // 2], hours[0])


def between_losses(instance_type: str, nodes: int) -> tuple[Spread, list[str]]:
    """Return the hours of running between two losses of spot machines, and what of it is a guess.

    A job that keeps asking for scarce machines loses one within hours (spot-traces); AWS's
    advisor counts a few percent of all instances in a month, which means weeks. The first is taken
    as the lower decile and the second as the upper one: that the truth is as often nearer to the
    one as to the other, by a factor, is a guess.
    """
    probes, bands = TABLE["probes"], _bands(instance_type)
    often = math.sqrt(probes["low"] * probes["high"])
    monthly = min((one["low"] + one["high"]) / 200 for one in bands)
    rarely = HOURS_A_MONTH / -math.log1p(-monthly)
    guessed = [
        f"between {often:.1f} and {rarely:,.0f} hours from one spot loss of a machine to the next: "
        "sources that differ by that much, and a median between them"
    ]
    if not _family_known(instance_type):
        guessed.append(f"the advisor's band of {instance_type} is that of all other families")
    return Spread(often, math.sqrt(often * rarely), rarely).times(1 / nodes), guessed


def spot_share(instance_type: str, region: str) -> tuple[Spread, list[str]]:
    """Return the spot price over the price on demand, and what of it is a guess.

    The price is EC2's: SageMaker publishes none of its own, and bills the saving as fewer seconds.
    The lowest and highest price seen for the type are the deciles; for a type without, those of its
    family, or of all types.
    """
    seen = TABLE["shares"]
    guessed = ["SageMaker's spot price is the same share of its price on demand as EC2's"]
    here = [one for one in seen if (one["type"], one["region"]) == (instance_type, region)]
    if not here:
        family = [one for one in seen if _family(one["type"]) == _family(instance_type)]
        of_type = [one for one in seen if one["type"] == instance_type]
        here = of_type or family or seen
        whose = "other regions" if of_type else "its family" if family else "all types"
        guessed.append(f"the spot price of {instance_type} in {region} is that of {whose}")
    low, high = min(one["low"] for one in here), max(one["high"] for one in here)
    return Spread(low, math.sqrt(low * high), high), guessed


def wait(market: str) -> Spread:
    """Return the seconds until a job's machines are there, ``on demand`` or ``spot``: a guess."""
    return _three(TABLE["waits"][market])


def start() -> Spread:
    """Return the seconds from machines to first step, without a checkpoint's load: a guess."""
    return _three(TABLE["starts"])


def either(*spreads: Spread) -> Spread:
    """Return the hours between interruptions of several causes together: their rates add up."""
    rates = (tuple(1 / value for value in (s.p10, s.p50, s.p90)) for s in spreads)
    return Spread(*(1 / sum(each) for each in zip(*rates, strict=True)))


def _three(entry: Mapping[str, float]) -> Spread:
    return Spread(entry["low"], entry["middle"], entry["high"])


def _family(instance_type: str) -> str:
    return instance_type.removeprefix("ml.").partition(".")[0]


def _family_known(instance_type: str) -> bool:
    return any(one["family"] == _family(instance_type) for one in TABLE["losses"])


def _bands(instance_type: str) -> Iterable[Mapping[str, Any]]:
    known = [one for one in TABLE["losses"] if one["family"] == _family(instance_type)]
    return known or TABLE["losses"]


How = Literal["on demand", "spot", "mixture"]
ELSEWHERE = "us-east-1"
"""Region whose prices are used where the job's own has none."""

PATIENCE = 7200.0
"""Seconds that a mixture waits for spot before it continues on demand."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Machines:
    """``count`` instances of a type in a region."""

    instance_type: str
    count: int
    region: str
    gpu: Gpu | None
    """Device; None for an instance without one that foresight has figures of."""

    gpus_per_node: int
    node_gbps: float
    """Network of an instance, in 10⁹ bits per second; 0 where AWS states none."""

    usd_per_hour: float | None
    """Price of all instances, on demand; None where no region has a price."""

    estimated: bool
    """True if the price was derived, and not read from AWS's list for the region."""

    spot_share: Spread
    """Spot price over the price on demand."""

    between_failures: Spread
    """Hours of running from one failure of the whole job to the next."""

    between_losses: Spread
    """Hours of running from one loss of spot machines to the next, without failures."""

    guessed: tuple[str, ...]
    """Figures that no source states, a sentence each."""

    def markets(self, how: How, patience: float = PATIENCE) -> list[Market]:
        """Return the markets for :func:`trainyard.foresight.interrupted_run.foresee`.

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
    """Return what is known about ``count`` instances of a type in a region.

    Raises:
        ForesightError: the type does not exist, or ``count`` is below 1.
    """
    machine = MACHINES.get(instance_type)
    if machine is None:
        known = nearest(instance_type, [*MACHINES])
        raise ForesightError(f"{instance_type} is not in trainyard/instance_types.csv; {known}")
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
    """Return the price of one instance in USD per hour, and what of it is a guess."""
    here = load(region).hourly("training", instance_type)
    if here is None:
        there = load(ELSEWHERE).hourly("training", instance_type)
        if there is None:
            return None, []
        said = f"the price of {instance_type} in {region} is that of {ELSEWHERE}"
        return Price(there.usd, estimated=True), [said]
    return here, [f"the price of {instance_type} was derived"] if here.estimated else []
