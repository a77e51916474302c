"""The question that ``trainyard advise`` answers: what is trained, by when, for how much money, on
which machines. Also the predictions for a file of training runs (``--rows``).
"""

import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from math import ceil
from pathlib import Path
from typing import Any, TextIO

from pydantic import ValidationError

from trainyard.common.errors import RecipeError, suggest_nearest
from trainyard.foresight import memory, model_shapes, step_time
from trainyard.foresight.cloud_machines import GPUS, How, find_gpu, find_price
from trainyard.foresight.interval import Spread
from trainyard.foresight.layouts import Machine, Space
from trainyard.foresight.memory import Memory
from trainyard.foresight.setting import Setting
from trainyard.foresight.step_time import Time
from trainyard.foresight.transformer_formulas import Shapes
from trainyard.instance_types import MACHINES
from trainyard.plan.prices import load_prices


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """An instance type to choose from, and its price."""

    name: str
    machine: Machine
    usd_hour: float
    """On-demand price of one instance in USD per hour."""

    is_estimated: bool
    """True if the price was derived and not read from AWS's list."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """The training run for which advice is wanted, and its limits."""

    model: Setting
    """Setting that says what is trained and how. Its layout fields (machines and parallelism) are
    not used: advice replaces them."""

    tokens: float
    """Number of tokens of the whole training run."""

    global_batch: int
    """Number of samples per optimizer step."""

    offers: Sequence[Offer]
    """Instance types to choose from."""

    max_nodes: int = 64
    deadline: float | None = None
    """Deadline in hours."""

    budget: float | None = None
    """Budget in USD."""

    region: str = "us-east-1"
    """Region whose prices and spot market are used."""

    how: How = "on demand"
    """How the machines are bought."""

    elsewhere: Sequence[Offer] = ()
    """Other instance types, which are suggested only if none of ``offers`` fits."""

    space: Space = Space()
    """Layouts to try."""

    shapes: Shapes | None = None
    """Shapes of the model; None to compute them by formula from the fields of ``model``."""

    learned: str = ""
    """Human-readable source of the corrections by the user's own runs; empty without corrections.
    """

    time: Callable[[Setting, Shapes | None], Time] = step_time.predict_step_time
    """Function that predicts a step's time, by the fitted constants or corrected by the user's own
    runs.
    """

    def __post_init__(self) -> None:
        step = self.global_batch * self.model.sequence
        if not step <= self.tokens:
            raise RecipeError(
                f"tokens {self.tokens:,.0f}: expected at least one step's tokens, global batch "
                f"{self.global_batch:,} × sequence {self.model.sequence:,} = {step:,}; train on "
                "more tokens, or use a smaller global batch"
            )

    @property
    def steps(self) -> int:
        """Number of optimizer steps of the whole training run."""
        return ceil(self.tokens / (self.global_batch * self.model.sequence))

    @property
    def parameters(self) -> int:
        """Number of parameters of the model."""
        return self._shapes.parameters

    @property
    def trained_parameters(self) -> int:
        """Number of parameters that are trained."""
        return self._shapes.trained

    @property
    def _shapes(self) -> Shapes:
        return self.shapes or model_shapes.derive_shapes(self.model)

    def predict_memory(self, setting: Setting) -> Memory:
        """Predict the memory that the model needs in a layout."""
        return memory.predict_memory(setting, self.shapes)


def iter_offers(region: str) -> Iterator[Offer]:
    """Iterate over all instance types that have a price in ``region`` and a GPU in ``gpus.csv``."""
    for name, instance in MACHINES.items():
        if (gpu := find_gpu(instance)) and (hourly := find_price(name, region)):
            gbps = instance.network_gbps
            machine = Machine(gpu=gpu.name, gpus=instance.accelerators, node_gbps=gbps)
            yield Offer(
                name=name, machine=machine, usd_hour=hourly.usd, is_estimated=hourly.is_estimated
            )


def choose_offers(
    text: str, region: str, option: str = "--instances"
) -> tuple[list[Offer], list[Offer]]:
    """Return (offers of the instance types in ``text``, all other offers) in ``region``.

    Args:
        text: names of instance types, separated by commas.
        region: region whose prices are used.
        option: name of the option or field that has the text, for the message.

    Raises:
        RecipeError: a type is unknown, or has no known GPU or no price in the region; or SageMaker
            has no such region.
    """
    _refuse_region(region)
    regional_offers = {offer.name: offer for offer in iter_offers(region)}
    names = list(dict.fromkeys(name.strip() for name in text.split(",")))
    for name in names:
        if name not in regional_offers:
            raise RecipeError(
                f"{option} {name}: no prediction is possible for it in {region}: no such type, "
                "no GPU of trainyard/foresight/gpus.csv, or no price; "
                f"{suggest_nearest(name, [*regional_offers])}"
                + ("" if option == "--instances" else "; name types with --instances")
            )
    return [regional_offers[name] for name in names], [
        o for o in regional_offers.values() if o.name not in names
    ]


def _refuse_region(region: str) -> None:
    """Raise a RecipeError if there are no prices for a region and SageMaker does not have it."""
    if load_prices(region).date is not None:
        return
    # Imported only if it is needed, because it takes a tenth of a second.
    from botocore.session import Session

    session = Session()
    partitions = session.get_available_partitions()
    regions = {r for name in partitions for r in session.get_available_regions("sagemaker", name)}
    if region not in regions:
        raise RecipeError(
            f"region {region}: SageMaker has no region of that name; "
            f"{suggest_nearest(region, sorted(regions))}; set --region, or aws.region in a recipe"
        )


def filter_by_precision(offers: Sequence[Offer], precisions: Sequence[str]) -> list[Offer]:
    """Return the offers whose devices support one of the precisions for matrix products.

    Raises:
        RecipeError: none does.
    """
    capable_offers = [
        o for o in offers if {*precisions} - {"fp8"} or GPUS[o.machine.gpu].fp8_tflops
    ]
    if not capable_offers:
        names = ", ".join(f"{offer.name} ({offer.machine.gpu})" for offer in offers)
        raise RecipeError(
            f"precision fp8: {names}: expected a device with fp8, such as H100 or L40S; name "
            "other types with --instances, or use precision bf16"
        )
    return capable_offers


SIZES = {"": 1.0, "k": 1e3, "m": 1e6, "b": 1e9, "g": 1e9, "t": 1e12}
HOURS = {"": 1.0, "h": 1.0, "d": 24.0, "w": 168.0}
_FORM = re.compile(r"(\d+(?:\.\d+)?(?:e[+]?\d+)?)\s*([a-z]?)", re.IGNORECASE)


MOST_TOKENS = 1e15
"""Largest accepted number of tokens of a training run. Published ones had up to about 4e13."""

MOST_USD = 1e12
MOST_HOURS = 10 * 8766.0
"""Longest accepted deadline: ten years."""


def parse_number(option: str, text: str, maximum: float = MOST_TOKENS) -> float:
    """Parse the value of an option that is a number such as ``300B``, ``1.4T`` or ``2e12``.

    Raises:
        RecipeError: it is not such a number, or is 0 or more than ``maximum``.
    """
    return _parse_amount(option, text, SIZES, "a number such as 300B, 1.4T or 2e12", maximum)


def parse_usd(text: str) -> float:
    """Parse the value of ``--budget`` in USD, such as ``100000`` or ``250k``.

    Raises:
        RecipeError: it is not a number, or is 0 or more than ``MOST_USD``.
    """
    return parse_number("--budget", text, MOST_USD)


def parse_hours(option: str, text: str) -> float:
    """Parse the value of an option that is a time such as ``30d``, ``36h`` or ``2w``.

    Return hours, which is also the unit of a number without a letter.

    Raises:
        RecipeError: it is not such a time, or is 0 or longer than ten years.
    """
    return _parse_amount(option, text, HOURS, "a time such as 36h, 30d or 2w", MOST_HOURS)


def _parse_amount(
    option: str, text: str, units: dict[str, float], expectation: str, maximum: float
) -> float:
    """Parse a number with a unit; raise a RecipeError if it is invalid or out of bounds."""
    match = _FORM.fullmatch(text.strip().replace(",", ""))
    unit = units.get(match[2].lower()) if match else None
    amount = float(match[1]) * unit if match and unit else math.nan
    # Do not write ``amount <= 0 or amount > most``: nan must fail as well.
    if not 0 < amount <= maximum:
        bounds = f"more than 0 and at most {maximum / units['']:,.0f}"
        raise RecipeError(f"{option} {text}: expected {expectation}, {bounds}")
    return amount


# Predict the training runs in a file (``--rows``): each line is a JSON object, the "row", and gets
# one line of JSON as its result.
#
# A row has fields of a Setting; missing fields have their default. Rows of
# ``benchmarks/foresight/rows/`` are accepted as well: their fields are under ``row``.
#
# If a row with pipeline parallelism does not have ``accumulation``, that does not mean a single
# micro-batch: its ``micro_batch`` is cut into one micro-batch per pipeline rank, as torchtitan cuts
# a local batch, if it can be divided so. The result says so under ``assumed``.

KNOWN_FIELDS = {*Setting.model_fields}
CLOSENESS = 0.8
"""Similarity (difflib's ratio) from which an unknown name counts as a misspelling of a field."""

FIGURES = 4
"""Number of significant digits in a result."""


def predict_file(path: Path, out: TextIO) -> bool:
    """Write a line with the predictions for each row of the file.

    Return False if a line has an error instead of predictions.

    Raises:
        RecipeError: the file cannot be read.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise RecipeError(
            f"--rows {path}: cannot be read: {error}; give a file with a JSON object per line"
        ) from None
    sound = True
    for answer in iter_predictions(text.splitlines()):
        out.write(json.dumps(answer, ensure_ascii=False) + "\n")
        sound &= "error" not in answer
    return sound


def iter_predictions(lines: Iterable[str]) -> Iterator[dict[str, Any]]:
    """Iterate over the results, one for each line that is not empty.

    A result has ``line`` (the line's number), the row's ``id`` if it has one, and the predictions
    or an ``error``.
    """
    for number, line in enumerate(lines, start=1):
        if line.strip():
            yield {"line": number, **_predict_line(line)}


def _predict_line(line: str) -> dict[str, Any]:
    """Return the predictions for a line, or its ``error``."""
    try:
        record = json.loads(line)
    except ValueError as error:
        return {"error": f"is not JSON: {error}"}
    if not isinstance(record, dict):
        return {"error": f"is {type(record).__name__}; expected an object with a Setting's fields"}
    nested_row = record.get("row")
    row = nested_row if isinstance(nested_row, dict) else record
    known_fields = {name: value for name, value in row.items() if name in KNOWN_FIELDS}
    ignored_names = [
        name for name in {**record, **row} if name not in KNOWN_FIELDS and name not in ("id", "row")
    ]
    identity = {"id": record.get("id", row.get("id"))} if "id" in {**record, **row} else {}
    try:
        for name in ignored_names:
            if close := get_close_matches(name, sorted(KNOWN_FIELDS), n=1, cutoff=CLOSENESS):
                raise ValueError(f"{name}: no such field; nearest valid name: {close[0]}")
        setting, assumption = _parse_setting(known_fields)
        return {**identity, **predict_setting(setting), "ignored": ignored_names, **assumption}
    except ValidationError as error:
        return {**identity, "error": _format_problem(error, known_fields)}
    except ValueError as error:
        return {**identity, "error": str(error)}


def _parse_setting(row: Mapping[str, Any]) -> tuple[Setting, dict[str, str]]:
    """Return the row's setting, and ``{"assumed": …}`` if something was assumed about it.

    Raises:
        ValidationError: the row is not a valid setting.
    """
    setting = Setting.model_validate(row)
    stages, samples = setting.pipeline, setting.micro_batch
    if stages == 1 or samples % stages or "accumulation" in setting.model_fields_set:
        return setting, {}
    cut = {"micro_batch": samples // stages, "accumulation": stages}
    note = f"micro_batch {samples} is cut into {stages} micro-batches: accumulation was left out"
    return setting.model_copy(update=cut), {"assumed": note}


def _format_problem(error: ValidationError, row: Mapping[str, Any]) -> str:
    """Return a message about the first problem: the field, its value, and what was expected."""
    first = error.errors()[0]
    message = first["msg"].removeprefix("Value error, ")
    if not first["loc"]:
        return message
    field = str(first["loc"][0])
    value = json.dumps(row[field], ensure_ascii=False) if field in row else "left out"
    return f"{field}: {value}: {message}"


def predict_setting(setting: Setting) -> dict[str, Any]:
    """Predict a step's time, tokens per second and memory in GiB, each with p10, p50 and p90."""
    step, used = step_time.predict_step_time(setting), memory.predict_memory(setting)
    return {
        "step_seconds": _round_figures(step.step_seconds),
        "tokens_per_second_per_gpu": _round_figures(step.tokens_per_second_per_gpu),
        "memory_gib": {
            "total": _round_figures(used.peak),
            **{name: _round_figures(part) for name, part in used.categories.items()},
        },
        "fits": used.fits,
        "usable_gib": _round_value(used.usable_gib),
        "peak_in": used.when,
        "mfu": _round_value(step.mfu),
        "seconds": {name: _round_value(part) for name, part in step.parts.items()},
    }


def _round_figures(spread: Spread) -> dict[str, float]:
    return {name: _round_value(getattr(spread, name)) for name in ("p10", "p50", "p90")}


def _round_value(value: float) -> float:
    """Return the value with ``FIGURES`` significant digits; 0 if it is not finite."""
    if value == 0 or not math.isfinite(value):
        return 0.0
    return round(value, FIGURES - 1 - math.floor(math.log10(abs(value))))
