"""Check relations between fields of a recipe.

Values that cannot be intended are errors; values that are merely unlikely are warnings of
``validate``.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

from pipelines.recipe.config import Recipe, explain_unfit_type
from pipelines.recipe.environments import explain_unfit_region
from pipelines.recipe.schema import list_workloads
from training.config import TrainConfig

LARGEST_RATE = 1.0
"""Largest peak learning rate: in a step, AdamW moves a weight by about this much, and LAMB a layer
by this share of its norm.
"""
USUAL_RATE = 0.1  # a higher peak is a warning
FieldProblem = tuple[str, str]
"""(Field, problem of its value)."""


@dataclass(frozen=True, slots=True)
class Relation:
    """A relation that fields of a recipe must have to each other."""

    severity: Literal["error", "warning"]
    check: Callable[[Recipe], Iterator[FieldProblem]]


RELATIONS: list[Relation] = []


def register_relation(
    severity: Literal["error", "warning"],
) -> Callable[[Callable[[Recipe], Iterator[FieldProblem]]], Relation]:
    """Register a function that yields the problems of a recipe that breaks a relation.

    If fields of a recipe are wrong, the function gets only the valid ones. If it then reads an
    absent one, which raises AttributeError, its check is skipped.
    """

    def register(check: Callable[[Recipe], Iterator[FieldProblem]]) -> Relation:
        """Append the check to RELATIONS; return its entry."""
        RELATIONS.append(Relation(severity, check))
        return RELATIONS[-1]

    return register


def list_errors(recipe: Recipe, *, partial: bool = False) -> Iterator[str]:
    """Yield a line ``field: problem`` for every value that cannot be intended.

    ``partial``: whether wrong fields are absent from the recipe.
    """
    for rule in RELATIONS:
        if rule.severity == "error":
            try:
                yield from (": ".join(finding) for finding in rule.check(recipe))
            except AttributeError:
                if not partial:
                    raise


def list_warnings(recipe: Recipe) -> Iterator[str]:
    """Yield a line ``field: problem`` for every value that is unlikely to be intended."""
    for rule in RELATIONS:
        if rule.severity == "warning":
            yield from (": ".join(finding) for finding in rule.check(recipe))


@register_relation("error")
def check_region(recipe: Recipe) -> Iterator[FieldProblem]:
    region = recipe.aws.region
    if region is not None and (refusal := explain_unfit_region(region)):
        yield "aws.region", f"is {region!r}; {refusal}"


@register_relation("error")
def check_instance_types(recipe: Recipe) -> Iterator[FieldProblem]:
    for name in ("shard", "train", "evaluate", "gate", "transform"):
        section = recipe.__dict__.get(name)
        type_name = getattr(section, "instance_type", None)  # None: no section, or a wrong type
        if type_name is not None and (refusal := explain_unfit_type(type_name)):
            yield f"{name}.instance_type", f"is {type_name!r}; {refusal}"


@register_relation("error")
def check_warm_up_end(recipe: Recipe) -> Iterator[FieldProblem]:
    loop = recipe.train.loop
    if loop and loop.warmup_steps >= loop.max_steps:
        yield (
            "train.loop.warmup_steps",
            f"is {loop.warmup_steps}, and the training ends after max_steps {loop.max_steps}: the "
            f"learning rate would only rise; expected less, such as {loop.max_steps // 20}",
        )


@register_relation("error")
def check_learning_rate(recipe: Recipe) -> Iterator[FieldProblem]:
    loop = recipe.train.loop
    if loop and (peak := _compute_peak_rate(loop)) > LARGEST_RATE:
        yield (
            "train.loop.learning_rate",
            f"is {loop.learning_rate:g}{_describe_scaling(loop)}; expected at most "
            f"{LARGEST_RATE:g}, such as 0.001: {loop.optimizer} changes the weights by about "
            f"their own size at a rate of {peak:g}",
        )


@register_relation("warning")
def warn_high_learning_rate(recipe: Recipe) -> Iterator[FieldProblem]:
    loop = recipe.train.loop
    if loop and USUAL_RATE < _compute_peak_rate(loop) <= LARGEST_RATE:
        yield (
            "train.loop.learning_rate",
            f"is {loop.learning_rate:g}{_describe_scaling(loop)}; {loop.optimizer} seldom learns "
            f"above {USUAL_RATE:g}: is this a rate for SGD?",
        )


def _compute_peak_rate(loop: TrainConfig) -> float:
    """Return the peak learning rate after scaling with the batch size."""
    reference = loop.reference_batch
    return loop.learning_rate * (loop.global_batch / reference if reference else 1)


def _describe_scaling(loop: TrainConfig) -> str:
    """Return text on the peak rate after scaling; empty without ``reference_batch``."""
    if not loop.reference_batch:
        return ""
    share = f"global_batch {loop.global_batch} / reference_batch {loop.reference_batch}"
    return f", which {share} scales to {_compute_peak_rate(loop):g}"


@register_relation("error")
def check_thresholds_reachable(recipe: Recipe) -> Iterator[FieldProblem]:
    limits, metrics = _find_metric_limits(recipe), recipe.workload_spec.metrics
    for name, threshold in recipe.gate.thresholds.items():
        bound, _, metric = name.partition("_")
        low, high = limits.get(metric, (-math.inf, math.inf))
        worst = threshold < low or (threshold == low and metrics.get(metric) == "lower")
        if bound == "max" and worst:
            unit = f", such as {-threshold:g}" if threshold < 0 else ""
            yield (
                f"gate.{name}",
                f"is {threshold:g}, which no model meets: {metric} is never below {low:g}; "
                f"expected a number above {low:g}{unit}",
            )
        elif bound == "min" and threshold > high:
            share = f", such as {threshold / 100:g}" if threshold <= 100 else ""  # noqa: PLR2004
            yield (
                f"gate.{name}",
                f"is {threshold:g}, which no model meets: {metric} is never above {high:g}; "
                f"expected a number up to {high:g}{share}",
            )
        floor = recipe.gate.thresholds.get(f"min_{metric}")
        if bound == "max" and floor is not None and floor > threshold:
            yield (
                f"gate.{name}",
                f"is {threshold:g}, below min_{metric} {floor:g}: no model meets both; swap them, "
                "or remove one",
            )


@register_relation("error")
def check_margins(recipe: Recipe) -> Iterator[FieldProblem]:
    for kind, margins in recipe.gate.comparisons.items():
        for metric, margin in margins.items():
            span = recipe.workload_spec.ranges.get(metric)
            if span is not None and margin >= span:
                yield (
                    f"gate.{kind}.{metric}",
                    f"is {margin:g}, but two models never differ by more than {span:g}, so the "
                    f"check has no effect; expected less, such as {span / 100:g}",
                )


@register_relation("warning")
def check_threshold_strictness(recipe: Recipe) -> Iterator[FieldProblem]:
    limits, metrics = _find_metric_limits(recipe), recipe.workload_spec.metrics
    for name, threshold in recipe.gate.thresholds.items():
        bound, _, metric = name.partition("_")
        low, high = limits.get(metric, (-math.inf, math.inf))
        better = metrics.get(metric)
        if (bound, better) in (("max", "higher"), ("min", "lower")):
            opposite = f"{'min' if bound == 'max' else 'max'}_{metric}"
            yield (
                f"gate.{name}",
                f"rejects the better models: {better} {metric} is better; {opposite}?",
            )
        elif (bound == "min" and threshold <= low) or (bound == "max" and threshold >= high):
            yield f"gate.{name}", f"is {threshold:g}, which every model meets; it rejects none"


def _find_metric_limits(recipe: Recipe) -> dict[str, tuple[float, float]]:
    """Return each metric's smallest and largest possible value, by name; infinite if not known."""
    spec = recipe.workload_spec
    # In our workloads, losses, errors and shares are never negative; in others, a loss may be.
    low = 0.0 if recipe.train.loop and recipe.workload.name in list_workloads() else -math.inf
    return {
        metric: (0.0 if metric in spec.ranges else low, spec.ranges.get(metric, math.inf))
        for metric in spec.metrics
    }


@register_relation("error")
def check_spot_progress(recipe: Recipe) -> Iterator[FieldProblem]:
    loop = recipe.train.loop
    if loop and recipe.train.spot and loop.checkpoint_interval >= loop.max_steps:
        yield (
            "train.loop.checkpoint_interval",
            f"is {loop.checkpoint_interval}, and the training ends after max_steps "
            f"{loop.max_steps}: with spot, each interruption would lose all steps; expected less, "
            f"such as {max(1, loop.max_steps // 10)}",
        )


@register_relation("error")
def check_search_validations(recipe: Recipe) -> Iterator[FieldProblem]:
    loop, tune = recipe.train.loop, recipe.tune
    stops = tune is not None and (tune.stop_early or tune.strategy == "hyperband")
    if loop and tune and stops and loop.validation_interval >= loop.max_steps:
        method = "tune.stop_early" if tune.stop_early else "tune.strategy hyperband"
        yield (
            "train.loop.validation_interval",
            f"is {loop.validation_interval}, and the training ends after max_steps "
            f"{loop.max_steps}: {method} compares unfinished training jobs; expected less, "
            f"such as {max(1, loop.max_steps // 10)}",
        )


@register_relation("warning")
def check_intervals(recipe: Recipe) -> Iterator[FieldProblem]:
    loop = recipe.train.loop
    if loop is None:
        return
    consequences = {
        "checkpoint_interval": "no checkpoint before the last step: a failure loses all steps",
        "validation_interval": "no validation before the last step",
        "log_interval": "no metric between the first step and the last",
    }
    for name, lack in consequences.items():
        value = getattr(loop, name)
        if name in loop.model_fields_set and value > loop.max_steps:
            yield f"train.loop.{name}", f"is {value}, beyond max_steps {loop.max_steps}: {lack}"


@register_relation("warning")
def check_decay_start(recipe: Recipe) -> Iterator[FieldProblem]:
    loop = recipe.train.loop
    if loop and loop.schedule == "wsd":
        decay = math.ceil(loop.decay_share * loop.max_steps)
        if decay > loop.max_steps - loop.warmup_steps > 0:
            yield (
                "train.loop.decay_share",
                f"is {loop.decay_share:g}, {decay} of {loop.max_steps} steps, and warmup_steps is "
                f"{loop.warmup_steps}: the learning rate never stays at its peak",
            )


@register_relation("warning")
def check_unused_settings(recipe: Recipe) -> Iterator[FieldProblem]:
    loop, train = recipe.train.loop, recipe.train
    fields = {f"train.{name}" for name in train.model_fields_set}
    fields |= {f"train.loop.{name}" for name in loop.model_fields_set} if loop else set()
    used = {
        "train.max_wait_minutes": (train.spot, "spot: true"),
        "train.loop.decay_share": (loop and loop.schedule == "wsd", "schedule: wsd"),
        "train.loop.window_samples": (loop and loop.shuffle == "windowed", "shuffle: windowed"),
        "train.loop.profile_at": (loop and loop.profile_steps, "profile_steps"),
    }
    for field, (is_used, setting) in used.items():
        if field in fields and not is_used:
            yield field, f"has no effect without {setting}"
