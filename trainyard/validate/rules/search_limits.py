"""Check tuning jobs: needs of a strategy, and ranges with nothing to search."""

import math
from collections.abc import Iterator, Mapping
from typing import Any

from trainyard.language.statuses import EPOCHS
from trainyard.validate.rules.job_view import Job, known_text
from trainyard.validate.rules.rule import Violation, rule
from trainyard.validate.rules.tuning_limits import (
    CONFIG,
    RANGES_GUIDE,
    REFUSED,
    Range,
    ranges,
    tuned,
    tunings,
)

CATEGORIES, WHOLE = "CategoricalParameterRanges", "IntegerParameterRanges"
STRATEGIES_GUIDE = "developer guide, automatic-model-tuning-how-it-works"


@rule(
    "error",
    over=ranges,
    why=REFUSED,
    fix="make it a static hyperparameter",
    source="aws/amazon-sagemaker-feedback#195",
)
def range_of_one_value(found: Range) -> Iterator[Violation]:
    if found.low is not None and found.low == found.high:
        yield found.job.at(f"{found.where}.MinValue", f"{found.name} is {found.low:g} only")


@rule(
    "error",
    over=ranges,
    why=REFUSED,
    fix="give finite numbers as text, whole ones in IntegerParameterRanges",
    source=RANGES_GUIDE,
)
def bound_that_is_no_number(found: Range) -> Iterator[Violation]:
    if found.kind == CATEGORIES:
        return
    given = _item(found)
    for name in ("MinValue", "MaxValue"):
        text = known_text(given.get(name))
        if text is not None and not _fits(text, whole=found.kind == WHOLE):
            yield found.job.at(f"{found.where}.{name}", f"{text!r} of {found.name}")


def _item(found: Range) -> Mapping[str, Any]:
    """Return the range itself, resolved."""
    where, _, index = found.where.removesuffix("]").rpartition("[")
    items = dict(found.job.items(where))
    value = found.job.document.value(dict(items[int(index)]))
    return value if isinstance(value, dict) else {}


def _fits(text: str, whole: bool) -> bool:
    try:
        return math.isfinite(int(text) if whole else float(text))
    except ValueError:
        return False


@rule(
    "error",
    over=ranges,
    why=REFUSED,
    fix="name each category once",
    source="aws/amazon-sagemaker-feedback#197",
)
def category_twice(found: Range) -> Iterator[Violation]:
    values = _item(found).get("Values") if found.kind == CATEGORIES else None
    known = [value for value in values or () if isinstance(value, str)]
    for value in sorted({value for value in known if known.count(value) > 1}):
        yield found.job.at(f"{found.where}.Values", f"{value!r} of {found.name} occurs twice")


@rule(
    "error",
    over=ranges,
    why=f"{REFUSED}: strategy Grid takes categories only",
    fix="list the values in CategoricalParameterRanges, or take Random or Bayesian",
    source=STRATEGIES_GUIDE,
)
def grid_of_numbers(found: Range) -> Iterator[Violation]:
    strategy = known_text(found.job.document.value(_config(found.job).get("Strategy")))
    if strategy == "Grid" and found.kind != CATEGORIES:
        yield found.job.at(found.where, f"{found.name} in {found.kind}")


def _config(job: Job) -> Mapping[str, Any]:
    config = job.step.arguments.get(CONFIG)
    return config if isinstance(config, Mapping) else {}


@rule(
    "error",
    over=tuned,
    why=f"{REFUSED}: Hyperband does not know how far a job may go",
    fix=f"set HyperbandStrategyConfig.MaxResource, or one of {', '.join(EPOCHS)}",
    source="API reference, HyperbandStrategyConfig.MaxResource",
)
def hyperband_without_resource(job: Job) -> Iterator[Violation]:
    config = job.document.value(dict(_config(job)))
    if not isinstance(config, dict) or config.get("Strategy") != "Hyperband":
        return
    own = config.get("StrategyConfig") or {}
    given = own.get("HyperbandStrategyConfig") if isinstance(own, dict) else own
    known = given is None or isinstance(given, dict)
    if (
        known
        and not (given or {}).get("MaxResource")
        and not set(EPOCHS) & set(job.hyperparameters)
    ):
        yield job.at("StaticHyperParameters", "no MaxResource, and nothing to infer it from")


@rule(
    "error",
    over=tunings,
    why=f"{REFUSED}: Hyperband stops jobs itself",
    fix="set TrainingJobEarlyStoppingType to Off",
    source="API reference, HyperParameterTuningJobConfig.TrainingJobEarlyStoppingType",
)
def hyperband_with_early_stopping(job: Job) -> Iterator[Violation]:
    early = f"{CONFIG}.TrainingJobEarlyStoppingType"
    if job.text(f"{CONFIG}.Strategy") == "Hyperband" and job.text(early) == "Auto":
        yield job.at(early, "Auto with strategy Hyperband")
