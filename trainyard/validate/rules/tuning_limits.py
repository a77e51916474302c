"""Check tuning jobs: limits, objective, and the ranges that are searched."""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from trainyard.language.definition_document import Document
from trainyard.language.expressions import GET, ExpressionError, Reference, parse_get, split_path
from trainyard.language.steps import Step
from trainyard.validate.expression_checks import everywhere
from trainyard.validate.rules.images import aws_image
from trainyard.validate.rules.job_view import Job, as_list, jobs, known_text
from trainyard.validate.rules.rule import Violation, rule

CONFIG = "HyperParameterTuningJobConfig"
INTEGERS = "IntegerParameterRanges"
KINDS = (INTEGERS, "ContinuousParameterRanges", "CategoricalParameterRanges")
RANGES_GUIDE = "developer guide, automatic-model-tuning-define-ranges"
REFUSED = "CreateHyperParameterTuningJob refuses the request when the step starts"


def tunings(document: Document) -> list[Job]:
    """Return, for ``over``, each tuning step's own request, once."""
    return [
        Job(document=document, step=step, kind="training", arguments=step.arguments,
            path=f"{step.path}.Arguments")
        for step in document.steps if step.type == "Tuning"
    ]  # fmt: skip


def tuned(document: Document) -> list[Job]:
    """Return, for ``over``, the training definitions of tuning steps."""
    return [job for job in jobs(document) if job.step.type == "Tuning"]


@dataclass(frozen=True, slots=True)
class Range:
    """A range that a tuning job searches."""

    job: Job
    where: str
    kind: str
    name: str | None
    low: float | None
    high: float | None
    scaling: str | None
    values: tuple[Any, ...] = ()
    """Values of a categorical range; a value that only a run knows is Unknown."""


def ranges(document: Document) -> Iterator[Range]:
    """Iterate, for ``over``, over every range of every tuning step, wherever it is."""
    for job in tunings(document):
        yield from _ranges(job, f"{CONFIG}.ParameterRanges")
    for job in tuned(document):
        yield from _ranges(job, "HyperParameterRanges")


def searched_ranges(job: Job) -> Iterator[Range]:
    """Iterate over the ranges that are searched for a training job: its own, and those of the
    tuning job if that has only one definition. Empty for a job outside a tuning step.
    """
    alone = "TrainingJobDefinition" in job.step.arguments
    for found in ranges(job.document) if job.step.type == "Tuning" else ():
        if found.job.step is job.step and (found.job.path == job.path or alone):
            yield found


def _ranges(job: Job, where: str) -> Iterator[Range]:
    for kind in KINDS:
        for index, item in job.items(f"{where}.{kind}"):
            given = job.document.value(dict(item))
            yield Range(
                job,
                f"{where}.{kind}[{index}]",
                kind,
                known_text(given.get("Name")),
                _number(given.get("MinValue")),
                _number(given.get("MaxValue")),
                known_text(given.get("ScalingType")),
                tuple(as_list(given.get("Values"))),
            )


def _number(value: Any) -> float | None:
    """Return a range's bound, which is text, as a number; None if invalid, or not yet known."""
    try:
        return float(value) if isinstance(value, str | int | float) else None
    except ValueError:
        return None


@rule(
    "error",
    over=tunings,
    why=REFUSED,
    fix="lower MaxParallelTrainingJobs, or raise MaxNumberOfTrainingJobs",
    source="API reference, ResourceLimits",
)
def more_parallel_than_jobs(job: Job) -> Iterator[Violation]:
    parallel, most = (
        job.number(f"{CONFIG}.ResourceLimits.{name}")
        for name in ("MaxParallelTrainingJobs", "MaxNumberOfTrainingJobs")
    )
    if parallel is not None and most is not None and parallel > most:
        where = f"{CONFIG}.ResourceLimits.MaxParallelTrainingJobs"
        yield job.at(where, f"{parallel} at once, and {most} in all")


@rule(
    "error",
    over=tuned,
    why="the tuning job has nothing to compare its training jobs by: it is refused, or fails",
    fix="name a metric of MetricDefinitions, or define this one there",
    source="API reference, HyperParameterTuningJobObjective.MetricName",
)
def objective_without_metric(job: Job) -> Iterator[Violation]:
    defined = [job.document.value(metric.get("Name"))
               for _, metric in job.items("AlgorithmSpecification.MetricDefinitions")]  # fmt: skip
    built_in = not defined and not aws_image(job.image)  # an algorithm that defines its own
    if built_in or not all(isinstance(name, str) for name in defined):
        return
    for where, name, _ in objectives(job):
        if name not in defined:
            there = ", ".join(defined) or "nothing"
            yield Violation(
                step=job.step, path=where, problem=f"{name!r} is not defined; {there} is"
            )


def objectives(job: Job) -> Iterator[tuple[str, str, Any]]:
    """Iterate over (path of the metric, metric, Type) of each objective of this training
    definition.
    """
    of_all = job.step.arguments.get(CONFIG)
    of_all = of_all.get("HyperParameterTuningJobObjective") if isinstance(of_all, dict) else None
    path = f"{job.step.path}.Arguments.{CONFIG}.HyperParameterTuningJobObjective"
    for where, objective in ((f"{job.path}.TuningObjective", job.raw("TuningObjective")),
                             (path, of_all)):  # fmt: skip
        found = job.document.value(objective)
        if isinstance(found, dict) and isinstance(name := found.get("MetricName"), str):
            yield f"{where}.MetricName", name, found.get("Type")


MOST_SUMMARIES = 50


def references(document: Document) -> Iterator[tuple[Document, Step | None, str, Reference]]:
    """Iterate, for ``over``, over each reference to a step's property, with step and path."""
    for expression, place, step in everywhere(document):
        with suppress(ExpressionError):
            found = parse_get(expression[GET]) if GET in expression else None
            if found and found.kind == "Steps":
                yield document, step, place.path, found


@rule(
    "error",
    over=references,
    why="the step fails when it starts: the tuning job has no training job of that rank",
    fix="count from 0, to one less than MaxNumberOfTrainingJobs and 49 at most",
    source="SDK 3.27: TuningStep.get_top_model_s3_uri, top_k",
)
def no_such_training_job(
    found: tuple[Document, Step | None, str, Reference],
) -> Iterator[Violation]:
    document, step, path, reference = found
    tokens = split_path(reference.path)
    for job in tunings(document):
        if job.step.name != reference.name or tokens[0] != "TrainingJobSummaries":
            continue
        asked = job.number(f"{CONFIG}.ResourceLimits.MaxNumberOfTrainingJobs")
        most = MOST_SUMMARIES if asked is None else min(asked, MOST_SUMMARIES)
        if len(tokens) > 1 and isinstance(tokens[1], int) and tokens[1] >= most:
            problem = f"[{tokens[1]}] of {job.step.name}, which keeps {most:g}"
            yield Violation(step=step, path=path, problem=problem)


@rule("error", over=ranges, why=REFUSED, fix="exchange the two", source=RANGES_GUIDE)
def range_from_high_to_low(found: Range) -> Iterator[Violation]:
    if found.low is not None and found.high is not None and found.low > found.high:
        problem = f"{found.name} from {found.low:g} to {found.high:g}"
        yield found.job.at(f"{found.where}.MinValue", problem)


@rule(
    "error",
    over=ranges,
    why=REFUSED,
    fix="begin above 0 (Logarithmic), stay in 0 <= x < 1 (ReverseLogarithmic), or use Linear",
    source=f"{RANGES_GUIDE}; API reference, ContinuousParameterRange.ScalingType",
)
def scaling_outside_its_range(found: Range) -> Iterator[Violation]:
    low, high = found.low, found.high
    logarithmic = found.scaling == "Logarithmic" and low is not None and low <= 0
    reverse = found.scaling == "ReverseLogarithmic" and (
        (low is not None and low < 0) or (high is not None and high >= 1)
    )
    if logarithmic or reverse:
        problem = f"{found.scaling} of {found.name} from {low:g}" if low is not None else (
            f"{found.scaling} of {found.name}")  # fmt: skip
        yield found.job.at(
            f"{found.where}.ScalingType", problem + (f" to {high:g}" if high is not None else "")
        )


@rule(
    "error",
    over=tuned,
    why=f"{REFUSED}: the name has two values",
    fix="take it out of StaticHyperParameters, or out of the ranges",
    source="API reference, HyperParameterTrainingJobDefinition.StaticHyperParameters",
)
def static_and_tuned(job: Job) -> Iterator[Violation]:
    names = {found.name for found in searched_ranges(job)}
    for name in job.hyperparameters:
        if name in names:
            yield job.at(f"StaticHyperParameters['{name}']", f"{name} is tuned, too")
