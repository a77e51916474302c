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
from trainyard.plan.prices import HOURS_A_MONTH, Price, load

TABLE: Mapping[str, Any] = json.loads(
    Path(__file__).with_name("interruptions.json").read_text(encoding="utf-8")
)

"""Published and guessed figures, each with its source."""

_low_to_high = itemgetter("low", "middle", "high")
WAITS = {how: Spread(*_low_to_high(entry)) for how, entry in TABLE["waits"].items()}
"""Seconds until a job's machines are there, ``on demand`` or ``spot``: guesses."""

START = Spread(*_low_to_high(TABLE["starts"]))
"""Seconds from machines to first step, without a checkpoint's load: a guess."""


def between_failures(nodes: int) -> Spread:
    """Return the hours of running between two failures of a job on ``nodes`` machines.

    One machine's loss stops all, so ``nodes`` machines fail as many times as often. The spread is
    that of the published rates, which are of nodes with 8 GPUs; a smaller node is assumed to fail
    as often.
    """
    rates = sorted(row["rate"] for row in TABLE["failures"])
    # The rates are failures of 1,000 nodes and a day: 24,000 node-hours.
    hours = [24_000 / (rate * nodes) for rate in rates]
    return Spread(hours[-1], hours[len(hours) // 2], hours[0])


def between_losses(instance_type: str, nodes: int) -> Spread:
    """Return the hours of running between two losses of spot machines.

    A job that keeps asking for scarce machines loses one within hours (spot-traces); AWS's
    advisor counts a few percent of all instances in a month, which means weeks. The first is taken
    as the lower decile and the second as the upper one. A family that the advisor does not list has
    the band of all.
    """
    probes = TABLE["probes"]
    bands = [row for row in TABLE["losses"] if row["family"] == _family(instance_type)]
    often = math.sqrt(probes["low"] * probes["high"])
    monthly = min((row["low"] + row["high"]) / 200 for row in bands or TABLE["losses"])
    rarely = HOURS_A_MONTH / -math.log1p(-monthly)
    # A guess: that the truth is as often nearer to the one as to the other, by a factor.
    return Spread(often, math.sqrt(often * rarely), rarely).times(1 / nodes)


def spot_share(instance_type: str, region: str) -> Spread:
    """Return the spot price over the price on demand.

    The price is EC2's: SageMaker publishes none of its own, and bills the saving as fewer seconds.
    The lowest and highest price seen for the type are the deciles; for a type without, those of the
    type in other regions, of its family, or of all types.
    """
    rows = TABLE["shares"]
    of_type = [row for row in rows if row["type"] == instance_type]
    near = (
        [row for row in of_type if row["region"] == region],
        of_type,
        [row for row in rows if _family(row["type"]) == _family(instance_type)],
        rows,
    )
    shares = next(filter(None, near))
    low, high = min(row["low"] for row in shares), max(row["high"] for row in shares)
    return Spread(low, math.sqrt(low * high), high)


def either(*spreads: Spread) -> Spread:
    """Return the hours between interruptions of several causes together: their rates add up."""
    rates = (tuple(1 / value for value in (s.p10, s.p50, s.p90)) for s in spreads)
    return Spread(*(1 / sum(pair) for pair in zip(*rates, strict=True)))


def _family(instance_type: str) -> str:
    return instance_type.removeprefix("ml.").partition(".")[0]


How = Literal["on demand", "spot"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Machines:
    """The machines of a job, as they are bought."""

    count: int
    gpus_per_node: int
    usd_per_hour: Spread
    """Price of all machines together; charged once they are there, not during the wait for them."""

    between: Spread
    """Mean hours of running from one interruption of the whole job to the next."""

    wait: Spread
    """Seconds until all machines are there, at the start and after each interruption."""


def machines(
    instance_type: str, count: int, how: How, *, region: str, usd_hour: float = 0.0
) -> Machines:
    """Return ``count`` instances of a type in a region.

    Args:
        usd_hour: price of one on demand; 0 where only the time is asked for.
    """
    share, between = Spread(1.0, 1.0, 1.0), between_failures(count)
    if how == "spot":
        share = spot_share(instance_type, region)
        between = either(between, between_losses(instance_type, count))
    return Machines(
        count=count,
        gpus_per_node=MACHINES[instance_type].accelerators,
        usd_per_hour=share.times(usd_hour * count),
        between=between,
        wait=WAITS[how],
    )


ELSEWHERE = "us-east-1"
"""Region whose prices are used where the job's own has none."""


def price(instance_type: str, region: str) -> Price | None:
    """Return USD for an hour of one instance, on demand; None where no region has a price."""
    regional_price = load(region).hourly("training", instance_type)
    if regional_price is None and (
        other_price := load(ELSEWHERE).hourly("training", instance_type)
    ):
        return Price(other_price.usd, is_estimated=True)
    return regional_price


# The devices that a training can be predicted on, and their capabilities.
#
# ``gpus.csv`` has the bfloat16 (float16 before Ampere) and fp8 peaks without sparsity and the
# memory bandwidths of NVIDIA's data sheets, as stas00/ml-engineering's accelerator table lists them
# (2026-08). ``memory_gib`` is the part of the label's memory that PyTorch finds: 79.1 on p5, 39.39
# on p4d, 22.18 on g5, from error messages of real trainings; where it is scaled from those, column
# ``guessed`` says so.
#
# ``matmul_tflops`` are the best rates that products of large matrices were measured to reach (the
# same book's MAMF, 2026-08); the guessed ones are the shares of the peak that H100 reaches: 80 %
# in 16 bits, 71 % in fp8. A device that is limited to less power than its siblings (H100 of 500 W)
# reaches their rate times the ratio of the limits: both of them are bound by it.


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """A device, and the node that it usually comes in."""

    name: str
    """Label's memory included, as in ``H100-80``, and the power limit where it is unusual."""

    accelerator: str
    """Name in ``trainyard/instance_types.csv``; empty if no instance type has the device."""

    bf16_tflops: float
    """Peak of dense products, in 10¹² operations per second."""

    fp8_tflops: float
    """Peak of dense products in fp8, in 10¹² operations per second; 0 for a device without fp8."""

    matmul_tflops: float
    """Best rate that products of large matrices reach of ``bf16_tflops``."""

    matmul_fp8_tflops: float
    memory_gib: float
    """Part of the label's memory that PyTorch can use."""

    bandwidth_tb_s: float
    """Bandwidth of the memory, in 10¹² bytes per second."""

    link_gb_s: float
    """Bandwidth of NVLink in one direction, in 10⁹ bytes per second; 0 if there is only PCIe."""

    node_gbps: float
    """The node's network in 10⁹ bits per second, where a setting gives no other."""

    gpus_per_node: int


def _read(path: Path) -> dict[str, Gpu]:
    with path.open(encoding="utf-8", newline="") as file:
        rows = [*csv.DictReader(file)]
    kinds: dict[str, Any] = {field.name: field.type for field in fields(Gpu)}
    gpus = (Gpu(**{name: kind(row[name]) for name, kind in kinds.items()}) for row in rows)
    return {gpu.name: gpu for gpu in gpus}


GPUS: Mapping[str, Gpu] = _read(Path(__file__).with_name("gpus.csv"))
"""Name → device."""


def device_of(machine: Machine) -> Gpu | None:
    """Return the GPU of an instance type, identified by name and memory.

    None if it has no GPU, one that is not in the table, or Trainium: the table has its peaks, but
    no training on it was measured here, and measurements on GPUs say nothing about it.
    """
    if machine.kind != "gpu":
        return None
    candidates = [gpu for gpu in GPUS.values() if machine.accelerator == gpu.accelerator != ""]
    return min(
        candidates,
        key=lambda gpu: abs(gpu.memory_gib - machine.accelerator_memory_gib),
        default=None,
    )
