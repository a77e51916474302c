"""Metric definitions: how SageMaker reads numbers out of a job's log."""

import re
from collections.abc import Iterator

from trainyard.validate.rules.jobs import Job, known_text, training
from trainyard.validate.rules.rule import Violation, rule

GUIDE = "developer guide, define-train-metrics"


def _expressions(job: Job) -> Iterator[tuple[str, str, str]]:
    """Path, metric and text of each regular expression."""
    for index, metric in job.items("AlgorithmSpecification.MetricDefinitions"):
        text = known_text(job.document.value(metric.get("Regex")))
        if text:
            where = f"AlgorithmSpecification.MetricDefinitions[{index}].Regex"
            yield where, str(metric.get("Name")), text


def _compiled(text: str) -> re.Pattern[str]:
    """What other dialects write otherwise is no mistake: ``(?<name>…)``, ``\\p{L}``."""
    common = re.sub(r"\(\?<(?=[A-Za-z])", "(?P<", text)
    return re.compile(re.sub(r"\\[pP]\{\w+\}", r"\\w", common))


@rule(
    "error",
    over=training,
    why="the metric is never read, or the service refuses the job",
    fix="mend the expression; brackets and the like that are meant literally need a backslash",
    source=GUIDE,
)
def malformed_metric_regex(job: Job) -> Iterator[Violation]:
    for where, name, text in _expressions(job):
        try:
            _compiled(text)
        except re.error as error:
            yield job.at(where, f"{name}: {text!r} is no regular expression: {error}")


@rule(
    "error",
    over=training,
    why="the value is what the first group matches: there is none, so the metric stays empty",
    fix="put the number in parentheses: loss=([0-9.]+)",
    source=GUIDE,
)
def metric_regex_without_group(job: Job) -> Iterator[Violation]:
    for where, name, text in _expressions(job):
        try:
            groups = _compiled(text).groups
        except re.error:  # the rule above says it
            continue
        if not groups:
            yield job.at(where, f"{name}: {text!r} captures nothing")
