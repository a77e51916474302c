"""Check tuning jobs: limits, objective, and the ranges that are searched."""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from trainyard.language.definition_document import Document, Step
from trainyard.language.expressions import GET, ExpressionError, Reference, parse_get, split_path
from trainyard.validate.expression_checks import iter_located_expressions
from trainyard.validate.rules.images import match_aws_image
from trainyard.validate.rules.job_view import Job, as_list, iter_jobs, to_known_text
from trainyard.validate.rules.rule import Violation, rule

CONFIG = "HyperParameterTuningJobConfig"
INTEGERS = "IntegerParameterRanges"
KINDS = (INTEGERS, "ContinuousParameterRanges", "CategoricalParameterRanges")
RANGES_GUIDE = "developer guide, automatic-model-tuning-define-ranges"
REFUSAL = "CreateHyperParameterTuningJob refuses the request when the step starts"


def select_tuning_requests(document: Document) -> list[Job]:
    """Return the request of each tuning step itself as a ``Job``, for a rule's ``select``."""
    return [
        Job(document=document, step=step, kind="training", arguments=step.arguments,
            path=f"{step.path}.Arguments")
        for step in document.steps if step.type == "Tuning"
    ]  # fmt: skip


def select_tuned_trainings(document: Document) -> list[Job]:
    """Return the training definitions of tuning steps, for a rule's ``select``."""
    return [job for job in iter_jobs(document) if job.step.type == "Tuning"]


@dataclass(frozen=True, slots=True)
class Range:
    """A range of a hyperparameter that a tuning job searches."""

    job: Job
    field: str
    """Path of the range in the job's arguments."""

    kind: str
    """One of ``KINDS``."""

    name: str | None
    """Name of the hyperparameter; None if it is known only when the pipeline runs."""

    low: float | None
    high: float | None
    scaling: str | None
    values: tuple[Any, ...] = ()
    """Values of a categorical range; ``Unknown`` for those that are known only at run time."""


def iter_ranges(document: Document) -> Iterator[Range]:
    """Iterate over every range of every tuning step, for a rule's ``select``.

    Ranges are in the tuning job's configuration, or in its training definitions.
    """
    for job in select_tuning_requests(document):
        yield from _iter_field_ranges(job, f"{CONFIG}.ParameterRanges")
    for job in select_tuned_trainings(document):
        yield from _iter_field_ranges(job, "HyperParameterRanges")


def iter_searched_ranges(job: Job) -> Iterator[Range]:
    """Iterate over the ranges that are searched for a training job of a tuning step.

    They are the definition's own ranges and, if the tuning job has only one definition, those of
    the tuning job. A job outside a tuning step has none.
    """
    alone = "TrainingJobDefinition" in job.step.arguments
    for search_range in iter_ranges(job.document) if job.step.type == "Tuning" else ():
        if search_range.job.step is job.step and (search_range.job.path == job.path or alone):
            yield search_range


def _iter_field_ranges(job: Job, field: str) -> Iterator[Range]:
    """Iterate over the ranges at the path ``field`` in a job's arguments."""
    for kind in KINDS:
        for index, item in job.iter_items(f"{field}.{kind}"):
            entry = job.document.resolve_value(dict(item))
            yield Range(
                job,
                f"{field}.{kind}[{index}]",
                kind,
                to_known_text(entry.get("Name")),
                _parse_bound(entry.get("MinValue")),
                _parse_bound(entry.get("MaxValue")),
                to_known_text(entry.get("ScalingType")),
                tuple(as_list(entry.get("Values"))),
            )


def _parse_bound(value: Any) -> float | None:
    """Return a range's bound, which the API has as text, as a number.

    Return None if it is invalid, or not known before the run.
    """
    try:
        return float(value) if isinstance(value, str | int | float) else None
    except ValueError:
        return None


@rule(
    "error",
    select=select_tuning_requests,
    reason=REFUSAL,
    fix="lower MaxParallelTrainingJobs, or raise MaxNumberOfTrainingJobs",
    source="API reference, ResourceLimits",
)
def more_parallel_than_jobs(job: Job) -> Iterator[Violation]:
    parallel, max_jobs = (
        job.read_number(f"{CONFIG}.ResourceLimits.{name}")
        for name in ("MaxParallelTrainingJobs", "MaxNumberOfTrainingJobs")
    )
    if parallel is not None and max_jobs is not None and parallel > max_jobs:
        field = f"{CONFIG}.ResourceLimits.MaxParallelTrainingJobs"
        yield job.make_violation(field, f"{parallel} at once, but only {max_jobs} in total")


@rule(
    "error",
    select=select_tuned_trainings,
    reason="the tuning job cannot compare its training jobs: it is refused, or fails",
    fix="name a metric of MetricDefinitions, or define this one there",
    source="API reference, HyperParameterTuningJobObjective.MetricName",
)
def objective_without_metric(job: Job) -> Iterator[Violation]:
    metric_names = [
        job.document.resolve_value(metric.get("Name"))
        for _, metric in job.iter_items("AlgorithmSpecification.MetricDefinitions")
    ]
    # An image that is not of AWS's frameworks may be of an algorithm that defines its own metrics.
    built_in = not metric_names and not match_aws_image(job.image)
    if built_in or not all(isinstance(name, str) for name in metric_names):
        return
    for metric_path, name, _ in iter_objectives(job):
        if name not in metric_names:
            choices = ", ".join(metric_names) or "nothing"
            yield Violation(
                step=job.step, path=metric_path, problem=f"{name!r} is not defined, only {choices}"
            )


def iter_objectives(job: Job) -> Iterator[tuple[str, str, Any]]:
    """Iterate over (path of the metric's name, metric's name, Type) of each objective that applies
    to this training definition: its own, and that of the tuning job.
    """
    of_all = job.step.arguments.get(CONFIG)
    of_all = of_all.get("HyperParameterTuningJobObjective") if isinstance(of_all, dict) else None
    path = f"{job.step.path}.Arguments.{CONFIG}.HyperParameterTuningJobObjective"
    for objective_path, objective in (
        (f"{job.path}.TuningObjective", job.read_raw("TuningObjective")),
        (path, of_all),
    ):
        entry = job.document.resolve_value(objective)
        if isinstance(entry, dict) and isinstance(name := entry.get("MetricName"), str):
            yield f"{objective_path}.MetricName", name, entry.get("Type")


MOST_SUMMARIES = 50


def iter_step_references(
    document: Document,
) -> Iterator[tuple[Document, Step | None, str, Reference]]:
    """Iterate over each reference to a step's property, for a rule's ``select``.

    Each item is (document, step with the reference, path of the reference, reference).
    """
    for expression, location, step in iter_located_expressions(document):
        with suppress(ExpressionError):
            reference = parse_get(expression[GET]) if GET in expression else None
            if reference and reference.kind == "Steps":
                yield document, step, location.path, reference


@rule(
    "error",
    select=iter_step_references,
    reason="the step fails when it starts: the tuning job has no training job of that rank",
    fix="count from 0, to one less than MaxNumberOfTrainingJobs and 49 at most",
    source="SDK 3.27: TuningStep.get_top_model_s3_uri, top_k",
)
def no_such_training_job(
    occurrence: tuple[Document, Step | None, str, Reference],
) -> Iterator[Violation]:
    document, step, path, reference = occurrence
    tokens = split_path(reference.path)
    for job in select_tuning_requests(document):
        if job.step.name != reference.name or tokens[0] != "TrainingJobSummaries":
            continue
        job_limit = job.read_number(f"{CONFIG}.ResourceLimits.MaxNumberOfTrainingJobs")
        max_summaries = MOST_SUMMARIES if job_limit is None else min(job_limit, MOST_SUMMARIES)
        if len(tokens) > 1 and isinstance(tokens[1], int) and tokens[1] >= max_summaries:
            problem = f"[{tokens[1]}] of {job.step.name}, which lists {max_summaries:g}"
            yield Violation(step=step, path=path, problem=problem)


@rule("error", select=iter_ranges, reason=REFUSAL, fix="swap the two", source=RANGES_GUIDE)
def range_from_high_to_low(search_range: Range) -> Iterator[Violation]:
    if (
        search_range.low is not None
        and search_range.high is not None
        and search_range.low > search_range.high
    ):
        problem = f"{search_range.name} from {search_range.low:g} to {search_range.high:g}"
        yield search_range.job.make_violation(f"{search_range.field}.MinValue", problem)


@rule(
    "error",
    select=iter_ranges,
    reason=REFUSAL,
    fix="begin above 0 (Logarithmic), stay in 0 <= x < 1 (ReverseLogarithmic), or use Linear",
    source=f"{RANGES_GUIDE}; API reference, ContinuousParameterRange.ScalingType",
)
def scaling_outside_its_range(search_range: Range) -> Iterator[Violation]:
    low, high = search_range.low, search_range.high
    logarithmic = search_range.scaling == "Logarithmic" and low is not None and low <= 0
    reverse = search_range.scaling == "ReverseLogarithmic" and (
        (low is not None and low < 0) or (high is not None and high >= 1)
    )
    if logarithmic or reverse:
        problem = (
            f"{search_range.scaling} of {search_range.name} from {low:g}"
            if low is not None
            else (f"{search_range.scaling} of {search_range.name}")
        )
        yield search_range.job.make_violation(
            f"{search_range.field}.ScalingType",
            problem + (f" to {high:g}" if high is not None else ""),
        )


@rule(
    "error",
    select=select_tuned_trainings,
    reason=f"{REFUSAL}: the name has two values",
    fix="remove it from StaticHyperParameters, or from the ranges",
    source="API reference, HyperParameterTrainingJobDefinition.StaticHyperParameters",
)
def static_and_tuned(job: Job) -> Iterator[Violation]:
    names = {search_range.name for search_range in iter_searched_ranges(job)}
    for name in job.hyperparameters:
        if name in names:
            yield job.make_violation(f"StaticHyperParameters['{name}']", f"{name} is also tuned")
