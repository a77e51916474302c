"""Compare an endpoint's requests and responses in a period with those of a baseline."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from pipelines.endpoint.answer_quality import (
    NO_VARIANT,
    RecordedQuality,
    RecordedRequest,
    Source,
    judge_quality,
    read_captures,
    read_record_files,
    read_truths,
)
from pipelines.endpoint.drift import MISSING, QUALITY, Change, compare_columns
from pipelines.endpoint.endpoint_requests import explain_missing_number, find_number
from pipelines.recipe.config import Recipe
from pipelines.recipe.sections import Monitor
from pipelines.registry.package_evidence import split_s3_uri
from trainyard.aws_clients import service_errors
from trainyard.common.errors import DataError, RecipeError, suggest_nearest
from trainyard.quality import constraints
from trainyard.quality.constraints import FRACTIONAL, INTEGRAL, infer_type
from trainyard.quality.model_quality import GREATER, LESS, Cells, Table, build_table

TEXTS = "language_model"
"""Workload whose requests are texts; these are compared by features such as their length."""


@dataclass(frozen=True, slots=True)
class Period:
    """The comparison of a period with its baseline."""

    requests: Source
    baseline: Source
    now: Table
    before: Table
    changes: tuple[Change, ...]
    absent: tuple[str, ...]
    """Features that no request has."""
    notes: tuple[str, ...]
    """What was not compared, and why."""
    record: RecordedQuality | None = None
    """What the serving model's evaluation recorded; None if the recipe names no truths."""

    def list_drifted_features(self, *respects: str) -> list[str]:
        """Return the features that drifted in one of these respects, each once."""
        features = (c.feature for c in self.changes if c.has_drifted and c.respect in respects)
        return [*dict.fromkeys(features)]


def compare_period(
    s3: Any,
    recipe: Recipe,
    monitor: Monitor,
    root: str,
    end: datetime,
    record: RecordedQuality | None = None,
) -> Period:
    """Compare the period that ends at ``end`` with the baseline.

    Args:
        root: S3 URI below which the endpoint's requests are captured.
        record: the serving model's recorded quality, if the recipe names truths.

    Raises:
        DataError: the period or the baseline has no records.
        RecipeError: a feature is missing from the baseline.
        ServiceError: S3 refused.
    """
    start = end - timedelta(days=monitor.days)
    truth_values = read_truths(s3, monitor.truths, start, end) if monitor.truths else {}
    requests = _read_captures(s3, root, start, end, truth_values)
    if monitor.baseline:
        baseline = read_record_files(s3, monitor.baseline)
    else:
        baseline = _read_captures(
            s3, root, start - timedelta(days=monitor.baseline_days), start, {}
        )
    return compare_sources(recipe, monitor, requests, baseline, record)


def _read_captures(
    s3: Any, root: str, start: datetime, end: datetime, truth_values: Mapping[str, float | None]
) -> Source:
    """Return the requests captured in the period; raise DataError if there are none."""
    source = read_captures(s3, root, start, end, truth_values)
    if not source.number:
        unread_note = (
            f"; {source.unread} were not read: {source.unread_reason}" if source.unread else ""
        )
        raise DataError(
            f"{root}: has no requests from {start:%F %R} to {end:%F %R} UTC{unread_note}; choose "
            "another time by --until or monitor.days, or set monitor.baseline to records"
        )
    return source


def compare_sources(
    recipe: Recipe,
    monitor: Monitor,
    requests: Source,
    baseline: Source,
    record: RecordedQuality | None = None,
) -> Period:
    """Compare the requests of a period with those of a baseline.

    Raises:
        RecipeError: a feature is missing from the baseline, or the responses lack the number to
            compare.
        DataError: requests and baseline have no column to compare.
    """
    has_texts = recipe.kind == TEXTS
    before, now = (
        build_table(
            compute_text_features(request.record) if has_texts else request.record
            for request in side
        )
        for side in (baseline.requests, requests.requests)
    )
    config = None if recipe.train.loop is None else recipe.workload_config
    kinds = dict.fromkeys(getattr(config, "categories", ()), False)
    kinds |= dict.fromkeys(getattr(config, "numbers", ()), True)
    names, raw_names = monitor.features or tuple(kinds), ()
    if not names:
        # Raw records may have labels and identifiers, which are not part of a request.
        raw = all(
            request.variant == NO_VARIANT and request.answer is None
            for request in baseline.requests
        )
        raw_names = tuple(name for name in before.columns if raw and name not in now.columns)
        names = tuple(name for name in before.columns if name not in raw_names)
    if not names:
        raise DataError(
            "monitor: the records of the baseline have no column that a request has; name the "
            "columns to compare in monitor.features"
        )
    for name in names:
        if name not in before.columns:
            near = suggest_nearest(name, [*before.columns])
            raise RecipeError(
                f"monitor: the baseline has no column {name!r}; {near}; or name the columns to "
                "compare in monitor.features"
            )
    absent = tuple(name for name in names if name not in now.columns)
    before, now = (_choose_columns(table, names) for table in (before, now))
    quantities = {
        name
        for name in names
        if kinds.get(name, infer_type(before.columns[name]) in (INTEGRAL, FRACTIONAL))
    }
    notes = (
        [f"{requests.unread} requests not read: {requests.unread_reason}"]
        if requests.unread
        else []
    )
    if raw_names:
        notes.append(
            f"{', '.join(raw_names)}: not compared, because no request has them; name features in "
            "monitor.features"
        )
    if monitor.prediction:
        _refuse_missing_number(
            monitor.prediction, asked=requests.requests, baseline=baseline.requests
        )
        answers = _select_answer_numbers(monitor.prediction, baseline.requests, requests.requests)
        if all(answers):
            name = f"answer.{monitor.prediction}"
            before.columns[name], now.columns[name] = answers
            quantities.add(name)
        else:
            notes.append(
                f"{monitor.prediction}: not compared, because period and baseline have no answers "
                "of the same model"
            )
    own_changes = []
    if record and requests.truth_source and monitor.prediction:
        group = getattr(config, "group", None)
        change, quality_notes = judge_quality(
            requests.truth_source.requests, monitor.prediction, group, record
        )
        own_changes, notes = [change] if change else [], [*notes, *quality_notes]
    limits = {"error": monitor.error, "least_psi": monitor.least_psi, "also": own_changes}
    changes = compare_columns(before.columns, now.columns, quantities, **limits)
    return Period(requests, baseline, now, before, tuple(changes), absent, tuple(notes), record)


def _refuse_missing_number(path: str, **sources: Sequence[RecordedRequest]) -> None:
    """Raise RecipeError if there are answers, but none has a number at ``path``."""
    for source, records in sources.items():
        answers = [request.answer for request in records if request.answer is not None]
        if wrong := explain_missing_number(path, answers):
            suffix = "" if source == "asked" else " of the baseline"
            raise RecipeError(f"monitor.prediction{suffix}: {wrong}")


def _choose_columns(table: Table, names: Iterable[str]) -> Table:
    """Return the table with the columns ``names`` only; columns that it does not have are empty."""
    empty: Cells = [None] * table.rows
    return Table({name: table.columns.get(name, empty) for name in names}, table.rows)


def _select_answer_numbers(path: str, *sources: Sequence[RecordedRequest]) -> list[Cells]:
    """Return each source's response numbers at ``path``, of the variants that all sources have."""
    common = set.intersection(*({request.variant for request in source} for source in sources))
    if any(request.variant == NO_VARIANT for request in sources[0]):
        # A transform's scores name no variant: then the responses of all variants count.
        common = {request.variant for source in sources for request in source}
    return [
        [str(value) for request in source if request.variant in common
         if (value := find_number(request.answer, path)) is not None]
        for source in sources
    ]  # fmt: skip


# Features of a text: its length, and the shares of kinds of its characters.
#
# The characters of one text depend on each other. So they are not counted over all texts, but each
# text gets numbers of its own.

KINDS = {
    "letters": str.isalpha,
    "digits": str.isdigit,
    "spaces": str.isspace,
    "not_ascii": lambda character: not character.isascii(),
}


def compute_text_features(record: Mapping[str, Any]) -> dict[str, float]:
    """Return the features of the texts in a record, such as ``text.bytes`` and ``text.letters``."""
    features: dict[str, float] = {}
    for name, text in record.items():
        if not isinstance(text, str):
            continue
        features[f"{name}.bytes"] = len(text.encode(errors="replace"))
        for kind, is_kind in KINDS.items():
            features[f"{name}.{kind}"] = sum(map(is_kind, text)) / max(len(text), 1)
    return features


# Write a period's statistics, constraints and violations in Model Monitor's formats.
#
# Developer guide, "Schema for Statistics", "Schema for Constraints", "Schema for Violations".


def write_monitor_files(
    s3: Any, folder: str, period: Period, least_psi: float, kms_key: str | None
) -> None:
    """Write statistics, constraints and violations as JSON files to the S3 URI ``folder``.

    Raises:
        ServiceError: S3 refused.
    """
    encryption = {"ServerSideEncryption": "aws:kms", "SSEKMSKeyId": kms_key} if kms_key else {}
    # The order matters: if constraint_violations.json exists, the other two do.
    documents = {
        "statistics": constraints.describe_data(period.now),
        "constraints": constraints.suggest_constraints(constraints.describe_data(period.before)),
        "constraint_violations": {"violations": [*build_violations(period, least_psi)]},
    }
    bucket, prefix = split_s3_uri(folder)
    with service_errors(f"writing {folder}"):
        for name, document in documents.items():
            s3.put_object(
                Bucket=bucket,
                Key=f"{prefix}/{name}.json",
                Body=json.dumps(document, indent=1).encode(),
                **encryption,
            )


def build_violations(period: Period, least_psi: float) -> Iterator[dict[str, str]]:
    """Yield the entries of constraint_violations.json, one for each change that is drift."""
    for change in period.changes:
        if not change.has_drifted:
            continue
        if change.respect == QUALITY and period.record:
            yield {
                "metric_name": change.feature,
                "constraint_check_type": GREATER if period.record.lower_is_better else LESS,
                "description": f"{change.movement}, Holm's p {change.p_value:.2g}",
            }
            continue
        if change.feature in period.absent:
            check, text = "missing_column_check", "No request has this column"
        elif change.respect == MISSING:
            check, text = "completeness_check", f"Data completeness has changed: {change.movement}"
        else:
            check = "baseline_drift_check"
            text = (
                f"Baseline drift distance: {change.psi:.4g} exceeds threshold: {least_psi:g} "
                f"(population stability index; {change.movement}, Holm's p {change.p_value:.2g})"
            )
        yield {"feature_name": change.feature, "constraint_check_type": check, "description": text}
