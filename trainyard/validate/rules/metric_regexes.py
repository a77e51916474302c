"""Check metric definitions: regular expressions that read numbers from a job's log."""

from collections.abc import Iterator

from trainyard.metric_regex import Expression
from trainyard.validate.rules.job_view import Job, known_text, training
from trainyard.validate.rules.rule import Violation, rule

GUIDE = "developer guide, define-train-metrics"


def _expressions(job: Job) -> Iterator[tuple[str, str, Expression | str]]:
    """Iterate over (path, name, expression or why it is invalid) of each metric."""
    for index, metric in job.items("AlgorithmSpecification.MetricDefinitions"):
        text = known_text(job.document.value(metric.get("Regex")))
        if text:
            where = f"AlgorithmSpecification.MetricDefinitions[{index}].Regex"
            yield where, f"{metric.get('Name')}: {text!r}", _compiled(text)


def _compiled(text: str) -> Expression | str:
    try:
        return Expression(text)
    except ValueError as error:
        return str(error)


@rule(
    "error",
    over=training,
    why="the metric is never read, or the service refuses the job",
    fix="mend the expression; literal brackets and the like need a backslash",
    source=GUIDE,
)
def malformed_metric_regex(job: Job) -> Iterator[Violation]:
    for where, name, found in _expressions(job):
        if isinstance(found, str):
            yield job.at(where, f"{name} is not a regular expression: {found}")


@rule(
    "error",
    over=training,
    why="the value is what the first group matches: there is none, so the metric stays empty",
    fix="put the number in parentheses: loss=([0-9.]+)",
    source=GUIDE,
)
def metric_regex_without_group(job: Job) -> Iterator[Violation]:
    for where, name, found in _expressions(job):
        if isinstance(found, Expression) and not found.groups:
            yield job.at(where, f"{name} captures nothing")
