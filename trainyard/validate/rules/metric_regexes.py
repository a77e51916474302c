"""Check metric definitions: the regular expressions that read numbers from a job's log."""

from collections.abc import Iterator

from trainyard.metric_regex import Expression
from trainyard.validate.rules.job_view import Job, select_training_jobs, to_known_text
from trainyard.validate.rules.rule import Violation, rule

GUIDE = "developer guide, define-train-metrics"


def _iter_metric_regexes(job: Job) -> Iterator[tuple[str, str, Expression | str]]:
    """Iterate over the metrics: (path; name and expression for messages; compiled expression, or
    the reason why it is invalid).
    """
    for index, metric in job.iter_items("AlgorithmSpecification.MetricDefinitions"):
        text = to_known_text(job.document.resolve_value(metric.get("Regex")))
        if text:
            expression: Expression | str
            try:
                expression = Expression(text)
            except ValueError as error:
                expression = str(error)
            field = f"AlgorithmSpecification.MetricDefinitions[{index}].Regex"
            yield field, f"{metric.get('Name')}: {text!r}", expression


@rule(
    "error",
    select=select_training_jobs,
    reason="the metric is never read, or the service refuses the job",
    fix="correct the expression; special characters such as brackets need a backslash",
    source=GUIDE,
)
def malformed_metric_regex(job: Job) -> Iterator[Violation]:
    for field, name, expression in _iter_metric_regexes(job):
        if isinstance(expression, str):
            yield job.make_violation(field, f"{name} is not a regular expression: {expression}")


@rule(
    "error",
    select=select_training_jobs,
    reason="the value is what the first group matches: there is none, so the metric stays empty",
    fix="put the number in parentheses: loss=([0-9.]+)",
    source=GUIDE,
)
def metric_regex_without_group(job: Job) -> Iterator[Violation]:
    for field, name, expression in _iter_metric_regexes(job):
        if isinstance(expression, Expression) and not expression.groups:
            yield job.make_violation(field, f"{name} captures nothing")
