"""How fast a training of ours goes, beside earlier runs that were alike and what is foreseen."""

from collections.abc import Iterator, Mapping
from typing import Any

from rich.table import Table

from pipelines.advice.training_setting import Ours, of_description
from pipelines.run_report.run_documents import is_ours
from training.layout import Layout
from trainyard.common.errors import ForesightError
from trainyard.foresight import measured_corrections
from trainyard.runs.execution import Execution
from trainyard.runs.run_display import Steps, latest
from trainyard.runs.training_speed import STEP, Expected, Pace, Seconds, earlier
from trainyard.validate.rules.job_view import PROCESSES

PARTS = ("data", "forward_backward", "communication", "optimizer", "checkpoint")
LOOK_BACK = 5
"""Executions before this one in which runs that were alike are looked for."""

SPEED = {
    *Layout.model_fields,
    *("global_batch", "micro_batch", "precision", "optimizer", "deterministic"),
    *("workload", "workload_config", "tuning"),
}
"""Hyperparameters that a step's time depends on."""

EXCHANGED_APART = ("ddp", "smddp")
"""Strategies whose gradient exchange a metric line reports apart (``training.watching.clock``)."""


class Paces:
    """The pace of training jobs; what is expected of a job is looked for once."""

    def __init__(self) -> None:
        self._expected: dict[str, tuple[Expected, ...]] = {}

    def of(self, execution: Execution, job: Mapping[str, Any]) -> Pace | None:
        """None where the job is none of our loop's, or has said nothing yet."""
        found = seconds(job)
        if found is None:
            return None
        name = job["TrainingJobName"]
        if name not in self._expected:
            self._expected[name] = tuple(_expected(execution, job))
        return Pace(found=found, expected=self._expected[name])

    def table(self, execution: Execution, steps: Steps) -> Table | None:
        """The step's time and its parts, beside what was expected; None where nothing was."""
        pace = self.read(execution, steps)
        return pace.table() if pace else None

    def read(self, execution: Execution, steps: Steps) -> Pace | None:
        """The pace of a run's training; None where nobody expected anything of it."""
        if "Train" not in steps or (job := steps["Train"].job) is None:
            return None
        if job[0] != "TrainingJob":
            return None
        pace = self.of(execution, execution.training_job(job[1]))
        return pace if pace and pace.expected else None

    def said(self, execution: Execution, job: Mapping[str, Any]) -> str:
        """What there is to say of a job that is slow; nothing of another."""
        if _warms_up(job):
            return ""
        pace = self.of(execution, job)
        return pace.said() if pace else ""


def _warms_up(job: Mapping[str, Any]) -> bool:
    """Return whether its latest metric line is the first one, in which kernels are chosen and
    compiled."""
    interval = job.get("HyperParameters", {}).get("log_interval", "")
    return interval.isdecimal() and latest(job).get("train:step", 0) <= int(interval)


def read_pace(execution: Execution, steps: Steps) -> Pace | None:
    """What the report says of it."""
    return Paces().read(execution, steps)


def seconds(job: Mapping[str, Any]) -> Seconds | None:
    """What a step took as the job's latest metric line says it; None where there is none."""
    found = latest(job)
    if not is_ours(found) or "train:step_seconds" not in found:
        return None
    parts = {part: found.get(f"train:{part}_seconds") for part in (STEP, *PARTS)}
    return {part: value for part, value in parts.items() if value is not None}


def _expected(execution: Execution, job: Mapping[str, Any]) -> Iterator[Expected]:
    """By earlier runs, which go first, and as it is foreseen."""
    if (before := earlier(list(_alike(execution, job)))) is not None:
        yield before
    try:
        yield foreseen(of_description(job))
    except ForesightError:  # nothing is claimed of it
        return


def _alike(execution: Execution, job: Mapping[str, Any]) -> Iterator[Seconds]:
    """Steps of earlier trainings with the same work on the same machines."""
    names = {job["TrainingJobName"]}
    for other in execution.earlier(LOOK_BACK):
        for step in other.steps():
            if step.status != "Succeeded" or not step.job or step.job[0] != "TrainingJob":
                continue
            if step.job[1] not in names:  # answered from the cache: the same job once more
                names.add(step.job[1])
                before = other.training_job(step.job[1])
                if _work(before) == _work(job) and (took := seconds(before)) is not None:
                    yield took


def _work(job: Mapping[str, Any]) -> tuple[Any, ...]:
    told, where = job.get("HyperParameters", {}), job["ResourceConfig"]
    work = {name: told[name] for name in sorted(SPEED & told.keys())}
    machines = (where.get("InstanceType"), where.get("InstanceCount"))
    return work, machines, job.get("Environment", {}).get(PROCESSES)


def foreseen(training: Ours) -> Expected:
    """The parts of a step as metric lines tell them apart."""
    time = measured_corrections.read().time(training.setting, training.shapes)
    step, exchange = time.step_seconds, 0.0
    if training.loop.strategy in EXCHANGED_APART:
        exchange = time.parts["data parallel"]
    optimizer = time.parts["optimizer"]
    parts = {
        STEP: step.p50,
        "data": 0.0,
        "forward_backward": sum(time.parts.values()) - optimizer - exchange,
        "communication": exchange,
        "optimizer": optimizer,
    }
    return Expected(seconds=parts, most=step.p90, grounds="is foreseen")
