"""Say whether answers are worse, by the truths that came later, than the evaluation recorded.

Truths are in Model Monitor's format (developer guide, "Ingest ground truth labels and merge them
with predictions"): JSON Lines below ``prefix/yyyy/mm/dd/hh``, by the day of their arrival. One is
joined with a captured request by its inference ID, or by the event ID of a request without one.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import numpy as np
from scipy.stats import t as student

from pipelines.monitoring.asked_records import RecordedRequest, lines_of_days
from pipelines.monitoring.drift import QUALITY, Change
from pipelines.recipe.config import Recipe
from pipelines.recipe.monitor_section import Monitor
from pipelines.registry.package_evidence import Absent
from pipelines.registry.promotion_record import evidence_of
from pipelines.serving.captured_answers import UNREADABLE, inside
from pipelines.serving.rollout import serving
from trainyard.common.errors import DataError, RecipeError, nearest

Losses = Callable[[np.ndarray, np.ndarray], np.ndarray]
TINY = 1e-15
"""Least probability that a logarithm is taken of."""
OF_TRUTHS: Mapping[str, Losses] = {
    "log_loss": lambda p, y: -np.log(np.clip(np.where(y == 1, p, 1 - p), TINY, 1)),
    "brier": lambda p, y: np.square(p - y),
    "accuracy": lambda p, y: ((p > 0.5) == (y == 1)).astype(float),
    "mae": lambda p, y: np.abs(p - y),
    "mse": lambda p, y: np.square(p - y),
}
"""Metric → its value of each answer, from predicted numbers and truths, both (n,)."""
OF_PROBABILITIES = ("log_loss", "brier", "accuracy")
WORDS = {"true": 1.0, "false": 0.0}


@dataclass(frozen=True, slots=True)
class RecordedQuality:
    """What the evaluation of the serving model recorded."""

    variant: str
    """The endpoint's variant of that model."""
    metric: str
    lower_is_better: bool
    value: float
    standard_error: float
    margin: float = 0.0
    """How much worse answers may be, in the metric's unit."""


def read_quality(
    recipe: Recipe, monitor: Monitor, sagemaker: Any, endpoint: str
) -> RecordedQuality:
    """Return the record of the model that the endpoint serves.

    Raises:
        RecipeError: the metric is not computed from truths.
        DataError: the registry has no record of the metric, or no standard error of it.
        ServiceError: AWS refused.
    """
    workload_spec = recipe.workload_spec
    metric = monitor.metric or workload_spec.primary_metric
    possible = [name for name in OF_TRUTHS if name in workload_spec.metrics]
    if metric not in possible:
        raise RecipeError(
            f"monitor.metric: {metric} is not computed from a predicted number and its truth; "
            f"{nearest(metric, possible) if possible else f'{recipe.kind} has no such metric'}"
        )
    package = serving(sagemaker, endpoint)
    if package is None:
        raise DataError(f"endpoint {endpoint}: serves no model package, so nothing was recorded")
    evidence = evidence_of(package)
    try:
        entry = evidence.json(evidence.source("Statistics")["S3Uri"])["metrics"][metric]
        value, error = float(entry["value"]), float(entry["standard_error"])
    except (Absent, KeyError, TypeError) as cause:
        raise DataError(
            f"{package}: its evaluation recorded no {metric} with a standard error ({cause}); "
            "remove "
            "monitor.truths, or set monitor.metric to one that it has"
        ) from None
    margin = recipe.gate.comparisons.get("non_inferiority", {}).get(metric, 0.0)
    variant = f"version-{package.rpartition('/')[2]}"
    return RecordedQuality(
        variant, metric, workload_spec.metrics[metric] == "lower", value, error, margin
    )


def truths(s3: Any, uri: str, start: datetime, end: datetime) -> dict[str, float | None]:
    """Return ID of a request → its truth, of those that arrived from ``start``'s day to ``end``'s;
    None for what is not a number, ``true`` or ``false``.

    Raises:
        DataError: a line is not in Model Monitor's format.
        ServiceError: S3 refused.
    """
    truth_values: dict[str, float | None] = {}
    for place, line in lines_of_days(s3, uri, start, end):
        try:
            event = json.loads(line)
            truth_data = event["groundTruthData"]["data"]
            truth_values[event["eventMetadata"]["eventId"]] = _number(truth_data)
        except UNREADABLE as error:
            raise DataError(
                f"{place}: {error!r}; a line of ground truths is {{'groundTruthData': {{'data': "
                "'1', 'encoding': 'CSV'}, 'eventMetadata': {'eventId': '…'}, 'eventVersion': '0'}"
            ) from None
    return truth_values


def _number(raw_value: Any) -> float | None:
    text = str(raw_value).strip().lower()
    try:
        value = WORDS[text] if text in WORDS else float(text)
    except ValueError:
        return None
    return value if np.isfinite(value) else None


def judge_quality(
    answers: Sequence[RecordedRequest], path: str, group: str | None, record: RecordedQuality
) -> tuple[Change | None, Iterator[str]]:
    """Return the change of the metric, one-sided, and notes on what was not compared.

    Args:
        answers: requests whose truths are known.
        path: where the predicted number stands in an answer.
        group: column of a request whose equal values mark requests that depend on each other.
    """
    rows = [request for request in answers if request.variant == record.variant]
    pairs = [(inside(request.answer, path), request.truth) for request in rows]
    right = [_fits(record.metric, *pair) for pair in pairs]
    values = np.array([pair for pair, fits in zip(pairs, right, strict=True) if fits], float)
    names = [
        request.record.get(group or "") for request, fits in zip(rows, right, strict=True) if fits
    ]
    notes = _notes(record, len(rows), len(values))
    if len(values) < 2:
        return None, notes
    losses = OF_TRUTHS[record.metric](*values.T)
    return change(losses, names if None not in names else None, record), notes


def _fits(metric: str, prediction: Any, truth: float | None) -> bool:
    if truth is None or isinstance(prediction, bool) or not isinstance(prediction, int | float):
        return False
    if metric in OF_PROBABILITIES:
        return 0 <= prediction <= 1 and truth in (0, 1)
    return _number(prediction) is not None  # neither NaN nor beyond float64


def _notes(record: RecordedQuality, rows: int, compared_count: int) -> Iterator[str]:
    if compared_count < rows:
        expectation = (
            "a probability and a truth of 0 or 1"
            if record.metric in OF_PROBABILITIES
            else ("a number and its truth")
        )
        yield (
            f"{record.metric}: {rows - compared_count} of {rows} truths not compared: not "
            f"{expectation}"
        )
    if compared_count < 2:
        yield f"{record.metric}: not compared, too few truths of {record.variant}: {compared_count}"


def change(losses: np.ndarray, groups: Sequence[Any] | None, record: RecordedQuality) -> Change:
    """Return the metric's change, with Welch's one-sided p-value (Biometrika 34, 1947).

    The evaluation's standard error counts as known exactly; ours is that of a mean over groups, as
    in ``training.scores``.

    Args:
        losses: the metric of each answer, (n,), n > 1.
        groups: the group of each; None for each its own.
    """
    value = float(losses.mean())
    pulls = (losses - value) / len(losses)
    if groups is not None:
        _, places = np.unique(np.array([str(group) for group in groups]), return_inverse=True)
        pulls = np.bincount(places, pulls)
    count = len(pulls)
    worse = (value - record.value) * (1 if record.lower_is_better else -1) - record.margin
    own_variance = float(np.square(pulls).sum()) * count / (count - 1) if count > 1 else np.inf
    both = own_variance + record.standard_error**2
    if count < 2:  # one group says nothing of the others
        chance = 1.0
    elif not both:
        chance = float(worse <= 0)
    else:
        freedom = (both / own_variance) ** 2 * (count - 1) if own_variance else np.inf
        chance = float(student.sf(worse / both**0.5, freedom))
    movement = f"{record.value:.4g} when evaluated → {value:.4g} of {len(losses):,} answers"
    return Change(record.metric, QUALITY, chance, None, movement)
