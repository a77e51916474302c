"""A question for advice: what is trained, by when, for how much, on which machines."""

import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import ceil

from trainyard.common.errors import RecipeError, nearest
from trainyard.foresight import memory, model_shapes, step_time
from trainyard.foresight.cloud_machines import How, price
from trainyard.foresight.gpus import GPUS, device_of
from trainyard.foresight.layouts import Machine, Space
from trainyard.foresight.memory import Memory
from trainyard.foresight.model_shapes import Shapes
from trainyard.foresight.setting import Setting
from trainyard.foresight.step_time import Time
from trainyard.instance_types import MACHINES
from trainyard.plan.prices import load


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """An instance type to choose from, and its price."""

    name: str
    machine: Machine
    usd_hour: float
    """Price of one instance per hour, on demand."""

    is_estimated: bool
    """True if the price was derived and not read from AWS's list."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """The training to advise on, and its limits."""

    model: Setting
    """Setting whose fields say what is trained and how; the layout's fields are replaced."""

    tokens: float
    """Tokens of the whole training."""

    global_batch: int
    """Samples per optimizer step."""

    offers: Sequence[Offer]
    max_nodes: int = 64
    deadline: float | None = None
    """Deadline in hours."""

    budget: float | None = None
    """Budget in USD."""

    region: str = "us-east-1"
    """Region whose prices and spot markets count."""

    how: How = "on demand"
    """How the machines are bought."""

    elsewhere: Sequence[Offer] = ()
    """Instance types that are not allowed, but may be named where nothing fits."""

    space: Space = Space()
    shapes: Shapes | None = None
    """The model's shapes; None: by formula from the model's fields."""

    learned: str = ""
    """Source of corrections of the constants, in words; empty without corrections."""

    time: Callable[[Setting, Shapes | None], Time] = step_time.foresee
    """Predicts a step's time: by the fitted constants, or corrected by your own runs."""

    def __post_init__(self) -> None:
        step = self.global_batch * self.model.sequence
        if not step <= self.tokens:
            raise RecipeError(
                f"tokens {self.tokens:,.0f}: expected at least one step's, global batch "
                f"{self.global_batch:,} × sequence {self.model.sequence:,} = {step:,}; train on "
                "more tokens, or take a smaller global batch"
            )

    @property
    def steps(self) -> int:
        """Optimizer steps of the whole training."""
        return ceil(self.tokens / (self.global_batch * self.model.sequence))

    @property
    def parameters(self) -> int:
        """Parameters of the model."""
        return self._shapes.parameters

    @property
    def trained_parameters(self) -> int:
        """Parameters that are trained."""
        return self._shapes.trained

    @property
    def _shapes(self) -> Shapes:
        return self.shapes or model_shapes.from_setting(self.model)

    def ask(self, setting: Setting) -> Memory:
        """Return the memory of a layout of this model."""
        return memory.foresee(setting, self.shapes)


def offers(region: str) -> Iterator[Offer]:
    """Iterate over all instance types that have a price and a device known to foresight."""
    for name, instance in MACHINES.items():
        if (gpu := device_of(instance)) and (hourly := price(name, region)):
            gbps = instance.network_gbps
            machine = Machine(gpu=gpu.name, gpus=instance.accelerators, node_gbps=gbps)
            yield Offer(
                name=name, machine=machine, usd_hour=hourly.usd, is_estimated=hourly.is_estimated
            )


def choose_offers(
    text: str, region: str, option: str = "--instances"
) -> tuple[list[Offer], list[Offer]]:
    """Return (the instance types to choose from, all others).

    Args:
        option: name of the option or field that has the text, for the message.

    Raises:
        RecipeError: a type is unknown, or has no GPU or no price in the region; or SageMaker has no
            such region.
    """
    _refuse_region(region)
    regional_offers = {offer.name: offer for offer in offers(region)}
    names = list(dict.fromkeys(name.strip() for name in text.split(",")))
    for name in names:
        if name not in regional_offers:
            raise RecipeError(
                f"{option} {name}: no training on it can be predicted in {region}: no such type, "
                "no GPU of trainyard/foresight/gpus.csv, or no price; "
                f"{nearest(name, [*regional_offers])}"
                + ("" if option == "--instances" else "; name types with --instances")
            )
    return [regional_offers[name] for name in names], [
        o for o in regional_offers.values() if o.name not in names
    ]


def _refuse_region(region: str) -> None:
    if load(region).date is not None:
        return
    from botocore.session import Session  # takes a tenth of a second

    session = Session()
    partitions = session.get_available_partitions()
    regions = {r for name in partitions for r in session.get_available_regions("sagemaker", name)}
    if region not in regions:
        raise RecipeError(
            f"region {region}: SageMaker has no region of that name; "
            f"{nearest(region, sorted(regions))}; set --region, or aws.region in a recipe"
        )


def multiplying(offers: Sequence[Offer], precisions: Sequence[str]) -> list[Offer]:
    """List the ``offers`` whose devices multiply in one of ``precisions``.

    Raises:
        RecipeError: no device does.
    """
    capable_offers = [
        o for o in offers if {*precisions} - {"fp8"} or GPUS[o.machine.gpu].fp8_tflops
    ]
    if not capable_offers:
        names = ", ".join(f"{offer.name} ({offer.machine.gpu})" for offer in offers)
        raise RecipeError(
            f"precision fp8: {names}: expected a device with fp8, such as H100 or L40S; name "
            "other types with --instances, or take precision bf16"
        )
    return capable_offers


SIZES = {"": 1.0, "k": 1e3, "m": 1e6, "b": 1e9, "g": 1e9, "t": 1e12}
HOURS = {"": 1.0, "h": 1.0, "d": 24.0, "w": 168.0}
_FORM = re.compile(r"(\d+(?:\.\d+)?(?:e[+]?\d+)?)\s*([a-z]?)", re.IGNORECASE)


MOST_TOKENS = 1e15
"""Largest number of tokens of a training; published ones had up to some 4e13."""

MOST_USD = 1e12
MOST_HOURS = 10 * 8766.0
"""Longest deadline: ten years."""


def number(option: str, text: str, most: float = MOST_TOKENS) -> float:
    """Parse a number such as ``300B``, ``1.4T``, ``2e12``.

    Raises:
        RecipeError: it is not such a number, or 0, or more than ``most``.
    """
    return _amount(option, text, SIZES, "a number such as 300B, 1.4T or 2e12", most)


def dollars(text: str) -> float:
    """Parse ``--budget``, such as ``100000`` or ``250k``.

    Raises:
        RecipeError: it is not a sum of money above 0.
    """
    return number("--budget", text, MOST_USD)


def hours(option: str, text: str) -> float:
    """Parse a time such as ``30d``, ``36h``, ``2w``; without a letter, hours.

    Raises:
        RecipeError: it is not such a time, or 0, or longer than ten years.
    """
    return _amount(option, text, HOURS, "a time such as 36h, 30d or 2w", MOST_HOURS)


def _amount(
    option: str, text: str, units: dict[str, float], expectation: str, most: float
) -> float:
    match = _FORM.fullmatch(text.strip().replace(",", ""))
    unit = units.get(match[2].lower()) if match else None
    amount = float(match[1]) * unit if match and unit else math.nan
    if not 0 < amount <= most:  # false for nan
        bounds = f"more than 0 and at most {most / units['']:,.0f}"
        raise RecipeError(f"{option} {text}: expected {expectation}, {bounds}")
    return amount
