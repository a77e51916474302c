"""A log shows once a minute what a running step does."""

from itertools import pairwise
from types import SimpleNamespace

import pytest

from tests.trainyard.emulator.harness import Cloud, process_step
from trainyard.emulator.client_environment import apply_environment
from trainyard.runs.execution import Execution, Step
from trainyard.runs.live_watch import INTERVAL_S, SignsOfLife
from trainyard.runs.run_display import Display


class Training:
    """Answers as an execution whose training makes a step every half second."""

    def __init__(self) -> None:
        self.now = 0.0

    def describe_training_job(self, name: str) -> dict:
        metrics = {"train:loss": 2.5, "train:step": self.now * 2, "train:speed": 7.0}
        entries = [{"MetricName": name, "Value": value} for name, value in metrics.items()]
        return {"FinalMetricDataList": entries if self.now else []}

    def read_last_lines(self, step: Step, count: int) -> dict[str, list[str]]:
        return {"algo-1": ["Installing requirements"]}


def read_finished_step(job: dict) -> tuple[float, float] | None:
    metrics = {one["MetricName"]: one["Value"] for one in job["FinalMetricDataList"]}
    return (metrics["train:step"], 600) if metrics else None


def running(name: str) -> Step:
    return SimpleNamespace(name=name, status="Executing", job=("TrainingJob", name), seconds=1.0)


@pytest.mark.parametrize("poll", [1.0, 7.0, 59.0])
def test_a_training_tells_its_step_loss_pace_and_rest(poll: float):
    execution, lines = Training(), []
    alive = SignsOfLife(Display(progress=read_finished_step), clock=lambda: execution.now)
    while execution.now < 5 * INTERVAL_S:
        lines += [
            (execution.now, text)
            for _, text in alive.iter_quiet_steps(execution, [running("Train")])
        ]
        execution.now += poll
    times = [now for now, _ in lines]
    assert len(times) >= 2  # where it looks each 59 s, the line comes after two looks
    assert all(after - before >= INTERVAL_S for before, after in pairwise(times))
    for now, text in lines:
        assert text.startswith(f"step {now * 2:.0f} of 600, loss 2.5, 0.5 s a step, "), text
        assert text.endswith(" left")


def test_a_training_without_metrics_shows_the_end_of_its_log():
    execution = Training()
    alive = SignsOfLife(Display(progress=read_finished_step), clock=lambda: execution.now)
    assert list(alive.iter_quiet_steps(execution, [running("Train")])) == []
    alive._printed_at["Train"] = -INTERVAL_S
    [(_, text)] = alive.iter_quiet_steps(execution, [running("Train")])
    assert text == "Installing requirements"


def test_another_job_of_the_emulator_shows_the_end_of_its_log(emulator, tmp_path):
    cloud = Cloud(emulator, tmp_path)
    cloud.create("long", [process_step("Look", "echo counted 7 rows; sleep 60")])
    arn = cloud.start("long")
    now = 0.0
    alive = SignsOfLife(Display(), clock=lambda: now)
    with apply_environment(emulator.env):
        execution = Execution(arn)
        list(alive.iter_quiet_steps(execution, execution.list_steps()))
        now, texts = INTERVAL_S, []
        while not texts or texts[-1] != "counted 7 rows":
            now += INTERVAL_S
            texts += [text for _, text in alive.iter_quiet_steps(execution, execution.list_steps())]
    cloud.sm.stop_pipeline_execution(PipelineExecutionArn=arn, ClientRequestToken="0" * 32)
