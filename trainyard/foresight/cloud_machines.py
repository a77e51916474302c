"""How machines are bought: their price, the waits for them, and what interrupts a job on them."""

import csv
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from operator import itemgetter
from pathlib import Path
from typing import Any, Literal

from trainyard.foresight.interval import Spread
from trainyard.instance_types import MACHINES, Machine
from trainyard.plan.prices import HOURS_A_MONTH, Price, load_prices

TABLE: Mapping[str, Any] = json.loads(
    Path(__file__).with_name("interruptions.json").read_text(encoding="utf-8")
)
"""Published and guessed figures, each with its source."""

_low_to_high = itemgetter("low", "middle", "high")
WAITS = {how: Spread(*_low_to_high(entry)) for how, entry in TABLE["waits"].items()}
"""Mapping of ``on demand`` or ``spot`` to the seconds until a job has its machines: guesses."""

START = Spread(*_low_to_high(TABLE["starts"]))
"""Seconds from the machines' start to the first step, without loading a checkpoint: a guess."""


def estimate_failure_hours(nodes: int) -> Spread:
    """Return the running hours between two failures of a job on ``nodes`` machines.

    The failure of one machine stops all, so a job on ``nodes`` machines fails ``nodes`` times as
    often as a job on one. The spread is that of the published rates, which are for nodes with 8
    GPUs; a smaller node is assumed to fail as often.
    """
    rates = sorted(row["rate"] for row in TABLE["failures"])
    # The rates are failures per 1,000 nodes and day, which is per 24,000 node-hours.
    hours = [24_000 / (rate * nodes) for rate in rates]
    return Spread(hours[-1], hours[len(hours) // 2], hours[0])


def estimate_loss_hours(instance_type: str, nodes: int) -> Spread:
    """Return the running hours between two losses of one of ``nodes`` spot machines.

    A job that keeps requesting scarce machines loses one within hours (spot-traces). AWS's advisor
    counts a few percent of all instances per month, which means weeks between losses. The first is
    taken as the lower decile and the second as the upper one. For a family that the advisor does
    not list, the lowest band of all families is used.
    """
    probes = TABLE["probes"]
    bands = [row for row in TABLE["losses"] if row["family"] == _parse_family(instance_type)]
    often = math.sqrt(probes["low"] * probes["high"])
    monthly = min((row["low"] + row["high"]) / 200 for row in bands or TABLE["losses"])
    rarely = HOURS_A_MONTH / -math.log1p(-monthly)
    # A guess: the true value is equally likely to be nearer, by a factor, to either of the two.
    return Spread(often, math.sqrt(often * rarely), rarely).scale(1 / nodes)


def estimate_spot_share(instance_type: str, region: str) -> Spread:
    """Return the spot price divided by the price on demand.

    The price is EC2's: SageMaker publishes no spot prices, and bills the saving as fewer seconds.
    The deciles are the lowest and the highest share seen for the type in the region; if there are
    none, those of the type in other regions, of its family, or of all types, in this order.
    """
    rows = TABLE["shares"]
    of_type = [row for row in rows if row["type"] == instance_type]
    near = (
        [row for row in of_type if row["region"] == region],
        of_type,
        [row for row in rows if _parse_family(row["type"]) == _parse_family(instance_type)],
        rows,
    )
    shares = next(filter(None, near))
    low, high = min(row["low"] for row in shares), max(row["high"] for row in shares)
    return Spread(low, math.sqrt(low * high), high)


def combine_interruptions(*spreads: Spread) -> Spread:
    """Combine the hours between interruptions of several causes; their rates add up."""
    rates = (tuple(1 / value for value in (s.p10, s.p50, s.p90)) for s in spreads)
    return Spread(*(1 / sum(pair) for pair in zip(*rates, strict=True)))


def _parse_family(instance_type: str) -> str:
    """Return the family of an instance type, such as ``p5`` for ``ml.p5.48xlarge``."""
    return instance_type.removeprefix("ml.").partition(".")[0]


How = Literal["on demand", "spot"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Machines:
    """The machines of a job, and the conditions under which they are bought."""

    count: int
    gpus_per_node: int
    usd_per_hour: Spread
    """Price of all machines together. The wait for the machines is not charged."""

    between: Spread
    """Mean hours of running between two interruptions of the whole job."""

    wait: Spread
    """Seconds until all machines are available, at the start and after each interruption."""


def make_machines(
    instance_type: str, count: int, how: How, *, region: str, usd_hour: float = 0.0
) -> Machines:
    """Return ``count`` instances of a type in a region, bought on demand or as spot.

    Args:
        instance_type: name of the type, such as ``ml.p5.48xlarge``.
        count: number of instances.
        how: ``on demand`` or ``spot``.
        region: AWS region.
        usd_hour: price of one instance on demand, per hour; 0 if only the time matters.
    """
    share, between = Spread(1.0, 1.0, 1.0), estimate_failure_hours(count)
    if how == "spot":
        share = estimate_spot_share(instance_type, region)
        between = combine_interruptions(between, estimate_loss_hours(instance_type, count))
    return Machines(
        count=count,
        gpus_per_node=MACHINES[instance_type].accelerators,
        usd_per_hour=share.scale(usd_hour * count),
        between=between,
        wait=WAITS[how],
    )


ELSEWHERE = "us-east-1"
"""Region whose prices are used if there is no price for the job's own region."""


def find_price(instance_type: str, region: str) -> Price | None:
    """Return the on-demand price of one instance in USD per hour.

    If the region has no price, return that of ``ELSEWHERE``, marked as estimated; None if that
    region has none either.
    """
    regional_price = load_prices(region).find_hourly("training", instance_type)
    if regional_price is None and (
        other_price := load_prices(ELSEWHERE).find_hourly("training", instance_type)
    ):
        return Price(other_price.usd, is_estimated=True)
    return regional_price


# The devices for which a training run can be predicted, and their capabilities.
#
# ``gpus.csv`` contains the bfloat16 (float16 before Ampere) and fp8 peaks without sparsity and the
# memory bandwidths of NVIDIA's data sheets, as stas00/ml-engineering's accelerator table lists them
# (2026-08). ``memory_gib`` is the part of the nominal memory that PyTorch can use: 79.1 on p5,
# 39.39 on p4d, 22.18 on g5, from error messages of real runs. Column ``guessed`` says which
# values were scaled from those.
#
# ``matmul_tflops`` are the best rates that products of large matrices were measured to reach (the
# same book's MAMF, 2026-08). The guessed ones are the share of the peak that H100 reaches: 80 % in
# 16 bits, 71 % in fp8. For a device with a lower power limit than its siblings (H100 of 500 W), the
# rate is their rate times the ratio of the power limits, because power limits the rate of both.


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """A device, and the node that it usually comes in."""

    name: str
    """Name with the nominal memory, as in ``H100-80``, and the power limit if it is unusual."""

    accelerator: str
    """Name in ``trainyard/instance_types.csv``; empty if no instance type has the device."""

    bf16_tflops: float
    """Peak of dense products in 16 bits, in 10¹² operations per second."""

    fp8_tflops: float
    """Peak of dense products in fp8, in 10¹² operations per second; 0 for a device without fp8."""

    matmul_tflops: float
    """Best measured rate of products of large matrices in 16 bits, in 10¹² operations per second.

    It is below ``bf16_tflops``."""

    matmul_fp8_tflops: float
    memory_gib: float
    """Part of the nominal memory that PyTorch can use, in GiB."""

    bandwidth_tb_s: float
    """Bandwidth of the memory, in 10¹² bytes per second."""

    link_gb_s: float
    """Bandwidth of NVLink in one direction, in 10⁹ bytes per second; 0 if there is only PCIe."""

    node_gbps: float
    """Bandwidth of the node's network in 10⁹ bits per second, unless a setting gives another."""

    gpus_per_node: int


def _read_gpus(path: Path) -> dict[str, Gpu]:
    with path.open(encoding="utf-8", newline="") as file:
        rows = [*csv.DictReader(file)]
    kinds: dict[str, Any] = {field.name: field.type for field in fields(Gpu)}
    gpus = (Gpu(**{name: kind(row[name]) for name, kind in kinds.items()}) for row in rows)
    return {gpu.name: gpu for gpu in gpus}


GPUS: Mapping[str, Gpu] = _read_gpus(Path(__file__).with_name("gpus.csv"))
"""Mapping of a device's name to the device."""


def find_gpu(machine: Machine) -> Gpu | None:
    """Return the GPU of an instance type, identified by its name and memory.

    Return None if the instance type has no GPU, has one that is not in the table, or has Trainium:
    the table contains the peaks of Trainium, but no training run on it was measured, and
    measurements on GPUs say nothing about it.
    """
    if machine.kind != "gpu":
        return None
    candidates = [gpu for gpu in GPUS.values() if machine.accelerator == gpu.accelerator != ""]
    return min(
        candidates,
        key=lambda gpu: abs(gpu.memory_gib - machine.accelerator_memory_gib),
        default=None,
    )
