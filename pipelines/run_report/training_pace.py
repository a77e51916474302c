"""Compare the pace (time per step) of a training job with earlier jobs and its forecast."""

from collections.abc import Iterator, Mapping
from typing import Any

from rich.table import Table

from pipelines.advice.training_setting import LoopTraining, derive_described_training
from pipelines.run_report.step_documents import is_loop_training
from training.layout import Layout
from trainyard.common.errors import ForesightError
from trainyard.foresight import measured_corrections
from trainyard.runs.execution import Execution
from trainyard.runs.run_display import Steps, read_latest_metrics
from trainyard.runs.training_speed import STEP, ExpectedTime, Pace, Seconds, estimate_expected_time
from trainyard.validate.rules.job_view import PROCESSES

PARTS = ("data", "forward_backward", "communication", "optimizer", "checkpoint")
LOOK_BACK = 5
"""Number of earlier executions that are searched for similar training jobs."""

SPEED = {
    *Layout.model_fields,
    *("global_batch", "micro_batch", "precision", "optimizer", "deterministic"),
    *("workload", "workload_config", "tuning"),
}
"""Hyperparameters that affect the time of a step."""

EXCHANGED_APART = ("ddp", "smddp")
"""Strategies whose metric lines report the gradient exchange separately
(``training.watching.clock``).
"""


class Paces:
    """Paces of training jobs; the expected times of a job are computed only once."""

    def __init__(self) -> None:
        self._expectations: dict[str, tuple[ExpectedTime, ...]] = {}

    def find_pace(self, execution: Execution, job: Mapping[str, Any]) -> Pace | None:
        """Return the job's pace; None if it does not run our loop, or has no metric yet."""
        step_seconds = read_step_seconds(job)
        if step_seconds is None:
            return None
        name = job["TrainingJobName"]
        if name not in self._expectations:
            self._expectations[name] = tuple(_iter_expected_times(execution, job))
        return Pace(found=step_seconds, expected=self._expectations[name])

    def build_table(self, execution: Execution, steps: Steps) -> Table | None:
        """Return a table with the time of a step and its parts, and the expected times; None if
        nothing is expected.
        """
        pace = self.read_execution_pace(execution, steps)
        return pace.build_table() if pace else None

    def read_execution_pace(self, execution: Execution, steps: Steps) -> Pace | None:
        """Return the pace of the execution's training job; None if nothing is expected of it."""
        if "Train" not in steps or (job := steps["Train"].job) is None:
            return None
        if job[0] != "TrainingJob":
            return None
        pace = self.find_pace(execution, execution.describe_training_job(job[1]))
        return pace if pace and pace.expected else None

    def remark_on_job(self, execution: Execution, job: Mapping[str, Any]) -> str:
        """Return a remark if the job is slow; empty if it is not."""
        # The first metric line includes the time in which kernels are chosen and compiled.
        interval = job.get("HyperParameters", {}).get("log_interval", "")
        if interval.isdecimal() and read_latest_metrics(job).get("train:step", 0) <= int(interval):
            return ""
        pace = self.find_pace(execution, job)
        return pace.describe_slowness() if pace else ""


def read_pace(execution: Execution, steps: Steps) -> Pace | None:
    """Return the pace of the execution's training, for the report; None if there is none."""
    return Paces().read_execution_pace(execution, steps)


def read_step_seconds(job: Mapping[str, Any]) -> Seconds | None:
    """Return the seconds of a step and its parts in the job's latest metrics, or None."""
    metrics = read_latest_metrics(job)
    if not is_loop_training(metrics) or "train:step_seconds" not in metrics:
        return None
    parts = {part: metrics.get(f"train:{part}_seconds") for part in (STEP, *PARTS)}
    return {part: value for part, value in parts.items() if value is not None}


def _iter_expected_times(execution: Execution, job: Mapping[str, Any]) -> Iterator[ExpectedTime]:
    """Yield the expected times: first those of earlier training jobs, then the forecast."""
    if (
        earlier_time := estimate_expected_time(list(_iter_similar_step_times(execution, job)))
    ) is not None:
        yield earlier_time
    try:
        yield forecast_step_time(derive_described_training(job))
    except ForesightError:  # no forecast
        return


def _iter_similar_step_times(execution: Execution, job: Mapping[str, Any]) -> Iterator[Seconds]:
    """Yield the step times of earlier training jobs with the same work on the same machines."""
    names = {job["TrainingJobName"]}
    for earlier_run in execution.list_earlier(LOOK_BACK):
        for step in earlier_run.list_steps():
            if step.status != "Succeeded" or not step.job or step.job[0] != "TrainingJob":
                continue
            if step.job[1] not in names:  # a cached step has the job of an earlier execution
                names.add(step.job[1])
                earlier_job = earlier_run.describe_training_job(step.job[1])
                if (
                    _list_speed_factors(earlier_job) == _list_speed_factors(job)
                    and (times := read_step_seconds(earlier_job)) is not None
                ):
                    yield times


def _list_speed_factors(job: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return everything that affects a job's time per step: settings, machines, processes."""
    settings, resources = job.get("HyperParameters", {}), job["ResourceConfig"]
    work = {name: settings[name] for name in sorted(SPEED & settings.keys())}
    machines = (resources.get("InstanceType"), resources.get("InstanceCount"))
    return work, machines, job.get("Environment", {}).get(PROCESSES)


def forecast_step_time(training: LoopTraining) -> ExpectedTime:
    """Return the predicted seconds of a step and of the parts that metric lines report."""
    time = measured_corrections.read_measured_runs().predict_time(training.setting, training.shapes)
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
    return ExpectedTime(seconds=parts, most=step.p90, grounds="is foreseen")
