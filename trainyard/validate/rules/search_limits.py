"""Check tuning jobs: the requirements of their strategy, and ranges that cannot be searched."""

import math
from collections.abc import Iterator, Mapping
from typing import Any

from trainyard.language.definition_document import EPOCHS
from trainyard.validate.rules.job_view import Job, to_known_text
from trainyard.validate.rules.rule import Violation, rule
from trainyard.validate.rules.tuning_limits import (
    CONFIG,
    RANGES_GUIDE,
    REFUSAL,
    Range,
    iter_ranges,
    select_tuned_trainings,
    select_tuning_requests,
)

CATEGORIES, INTEGERS = "CategoricalParameterRanges", "IntegerParameterRanges"
STRATEGIES_GUIDE = "developer guide, automatic-model-tuning-how-it-works"


@rule(
    "error",
    select=iter_ranges,
    reason=REFUSAL,
    fix="make it a static hyperparameter",
    source="aws/amazon-sagemaker-feedback#195",
)
def range_of_one_value(search_range: Range) -> Iterator[Violation]:
    if search_range.low is not None and search_range.low == search_range.high:
        yield search_range.job.make_violation(
            f"{search_range.field}.MinValue", f"{search_range.name} is only {search_range.low:g}"
        )


@rule(
    "error",
    select=iter_ranges,
    reason=REFUSAL,
    fix="give finite numbers as text, integers in IntegerParameterRanges",
    source=RANGES_GUIDE,
)
def bound_that_is_no_number(search_range: Range) -> Iterator[Violation]:
    if search_range.kind == CATEGORIES:
        return
    entry = _resolve_range_entry(search_range)
    for name in ("MinValue", "MaxValue"):
        text = to_known_text(entry.get(name))
        if text is not None and not _is_valid_bound(text, is_integer=search_range.kind == INTEGERS):
            yield search_range.job.make_violation(
                f"{search_range.field}.{name}", f"{text!r} of {search_range.name}"
            )


def _resolve_range_entry(search_range: Range) -> Mapping[str, Any]:
    """Return the range's entry in the definition, with expressions resolved."""
    list_field, _, index = search_range.field.removesuffix("]").rpartition("[")
    items = dict(search_range.job.iter_items(list_field))
    value = search_range.job.document.resolve_value(dict(items[int(index)]))
    return value if isinstance(value, dict) else {}


def _is_valid_bound(text: str, is_integer: bool) -> bool:
    """Return whether a text is a finite number or, if ``is_integer``, an integer."""
    try:
        return math.isfinite(int(text) if is_integer else float(text))
    except ValueError:
        return False


@rule(
    "error",
    select=iter_ranges,
    reason=REFUSAL,
    fix="name each category once",
    source="aws/amazon-sagemaker-feedback#197",
)
def category_twice(search_range: Range) -> Iterator[Violation]:
    values = (
        _resolve_range_entry(search_range).get("Values")
        if search_range.kind == CATEGORIES
        else None
    )
    texts = [value for value in values or () if isinstance(value, str)]
    for value in sorted({value for value in texts if texts.count(value) > 1}):
        yield search_range.job.make_violation(
            f"{search_range.field}.Values", f"{value!r} of {search_range.name} occurs twice"
        )


@rule(
    "error",
    select=iter_ranges,
    reason=f"{REFUSAL}: strategy Grid takes categories only",
    fix="list the values in CategoricalParameterRanges, or use Random or Bayesian",
    source=STRATEGIES_GUIDE,
)
def grid_of_numbers(search_range: Range) -> Iterator[Violation]:
    strategy = to_known_text(
        search_range.job.document.resolve_value(
            _get_tuning_config(search_range.job).get("Strategy")
        )
    )
    if strategy == "Grid" and search_range.kind != CATEGORIES:
        yield search_range.job.make_violation(
            search_range.field, f"{search_range.name} in {search_range.kind}"
        )


def _get_tuning_config(job: Job) -> Mapping[str, Any]:
    """Return the tuning job's configuration; empty if it has none."""
    config = job.step.arguments.get(CONFIG)
    return config if isinstance(config, Mapping) else {}


@rule(
    "error",
    select=select_tuned_trainings,
    reason=f"{REFUSAL}: Hyperband does not know how long a job may train",
    fix=f"set HyperbandStrategyConfig.MaxResource, or one of {', '.join(EPOCHS)}",
    source="API reference, HyperbandStrategyConfig.MaxResource",
)
def hyperband_without_resource(job: Job) -> Iterator[Violation]:
    config = job.document.resolve_value(dict(_get_tuning_config(job)))
    if not isinstance(config, dict) or config.get("Strategy") != "Hyperband":
        return
    strategy = config.get("StrategyConfig") or {}
    hyperband = strategy.get("HyperbandStrategyConfig") if isinstance(strategy, dict) else strategy
    is_known = hyperband is None or isinstance(hyperband, dict)
    if (
        is_known
        and not (hyperband or {}).get("MaxResource")
        and not set(EPOCHS) & set(job.hyperparameters)
    ):
        yield job.make_violation(
            "StaticHyperParameters", "no MaxResource, and nothing to infer it from"
        )


@rule(
    "error",
    select=select_tuning_requests,
    reason=f"{REFUSAL}: Hyperband stops jobs itself",
    fix="set TrainingJobEarlyStoppingType to Off",
    source="API reference, HyperParameterTuningJobConfig.TrainingJobEarlyStoppingType",
)
def hyperband_with_early_stopping(job: Job) -> Iterator[Violation]:
    early = f"{CONFIG}.TrainingJobEarlyStoppingType"
    if job.read_text(f"{CONFIG}.Strategy") == "Hyperband" and job.read_text(early) == "Auto":
        yield job.make_violation(early, "Auto with strategy Hyperband")
