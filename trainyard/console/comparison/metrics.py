"""The figures that a run made: metrics of its training jobs, and numbers in its property files."""

from collections.abc import Iterator, Mapping
from functools import partial
from itertools import islice
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from trainyard.console.account import Account
from trainyard.console.comparison.works import Group, Work
from trainyard.console.wording import figure
from trainyard.runs.comparing.differences import Value
from trainyard.runs.numbers import got, in_json, is_overwritten, place

MOST = 200
"""Numbers of one file that are shown."""
KEPT = 600.0
OVERWRITTEN = "(file)"


def metrics(here: Account, works: Mapping[str, Work]) -> Group:
    """Name such as ``Train.loss`` or ``Evaluate.report.accuracy.value`` → the figure."""
    found: Group = {}
    for name, work in works.items():
        for metric in work.job.get("FinalMetricDataList") or ():
            found[f"{name}.{metric.get('MetricName')}"] = figure_of(metric.get("Value"))
        found |= {f"{name}.{metric}": figure_of(value) for metric, value in _best(work)}
        for file in work.declared.document.get("PropertyFiles") or ():
            leaves = _file(here, work, file)
            stem = file.get("PropertyFileName")
            found |= {f"{name}.{stem}.{path}": value for path, value in leaves.items()}
    return found


def figure_of(value: Any) -> Value:
    """A figure, which may be NaN, as a value that can be compared."""
    number = float("nan") if value is None else float(value)
    return Value(figure(number), repr(number), number)


def _best(work: Work) -> Iterator[tuple[str, float]]:
    """What a tuning job's best training job reached."""
    best = work.job.get("BestTrainingJob") or {}
    found = best.get("FinalHyperParameterTuningJobObjectiveMetric") or {}
    if "Value" in found:
        yield str(found.get("MetricName")), found["Value"]


def _file(here: Account, work: Work, file: Mapping[str, Any]) -> Group:
    where = place(work.job, file)
    if where is None:
        return {}
    found = here.lately(("compare: property file", where), partial(_got, here, where), KEPT)
    if found is None:
        return {}
    written, content = found
    if is_overwritten(work.job, written):
        return {
            OVERWRITTEN: Value("cannot be known: another job has overwritten it", "", known=False)
        }
    return dict(leaves(content))


def _got(here: Account, uri: str) -> tuple[Any, bytes] | None:
    try:
        return got(here.s3, uri)
    except (ClientError, BotoCoreError):  # a step that failed has written none
        return None


def leaves(content: bytes) -> Iterator[tuple[str, Value]]:
    """The first numbers in a JSON text, by their paths in it; none where it is not JSON."""
    for path, value in islice(in_json(content), MOST):
        yield path, figure_of(value)
