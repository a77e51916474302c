"""Tests of the expected pace of our trainings: from earlier runs, and from the forecast."""

from typing import Any

import pytest

from pipelines.advice.training_setting import of_description
from pipelines.run_report.run_panels import PANELS
from pipelines.run_report.training_pace import LOOK_BACK, Paces, foreseen, seconds
from tests.pipelines.advice.test_training_setting import job as hyperparameters
from trainyard.console.app_hooks import read_panels
from trainyard.runs.execution import Step
from trainyard.runs.training_speed import STEP

LINE = {"step": 120.0, "loss": 2.5, "step_seconds": 2.0, "data_seconds": 0.9,
        "forward_backward_seconds": 0.9, "communication_seconds": 0.1, "optimizer_seconds": 0.1,
        "checkpoint_seconds": 0.0}  # fmt: skip


def described(name: str, took: float = 2.0, **changed: Any) -> dict[str, Any]:
    """A training job as DescribeTrainingJob answers."""
    line = LINE | {"step_seconds": took}
    return {
        "TrainingJobName": name,
        "HyperParameters": hyperparameters(),
        "ResourceConfig": {"InstanceType": "ml.p4d.24xlarge", "InstanceCount": 4},
        "FinalMetricDataList": [{"MetricName": f"train:{n}", "Value": v} for n, v in line.items()],
    } | changed


class Run:
    """An execution with one training, and those before it."""

    def __init__(self, job: dict[str, Any], *before: "Run") -> None:
        self.job, self.before, self.asked = job, before, 0

    def steps(self) -> list[Step]:
        metadata = {"TrainingJob": {"Arn": f"arn:x/{self.job['TrainingJobName']}"}}
        told: dict[str, Any] = {"started": None, "ended": None, "reason": "", "cached": False}
        return [Step(name="Train", title="T", status="Succeeded", metadata=metadata, **told)]

    def training_job(self, name: str) -> dict[str, Any]:
        return self.job

    def earlier(self, limit: int) -> list["Run"]:
        assert limit == LOOK_BACK
        self.asked += 1
        return list(self.before)


def expected(run: Run) -> dict[str, dict[str, float]]:
    pace = Paces().find_pace(run, run.job)  # type: ignore[arg-type]
    assert pace
    return {one.grounds: dict(one.seconds) for one in pace.expected}


def test_earlier_runs_that_were_alike_go_before_what_is_foreseen():
    cheaper = hyperparameters(learning_rate="1e-5", max_steps="7")  # as long a step
    other = hyperparameters(micro_batch="4")
    smaller = {"InstanceType": "ml.p4d.24xlarge", "InstanceCount": 2}
    run = Run(
        described("now"),
        Run(described("a", 1.0, HyperParameters=cheaper)),
        Run(described("a", 1.0, HyperParameters=cheaper)),  # from the cache: once
        Run(described("b", 1.2)),
        Run(described("c", 9.0, HyperParameters=other)),
        Run(described("d", 9.0, ResourceConfig=smaller)),
        Run(described("now", 9.0)),
        Run(described("e", FinalMetricDataList=[])),
    )
    found = expected(run)
    assert list(found) == ["2 earlier runs took", "is foreseen"]
    assert found["2 earlier runs took"][STEP] == pytest.approx(1.1)


def test_on_a_cpu_the_earlier_runs_are_all_there_is():
    where = {"InstanceType": "ml.m5.large", "InstanceCount": 2}
    before = Run(described("a", 1.0, ResourceConfig=where))
    assert list(expected(Run(described("now", ResourceConfig=where), before))) == [
        "1 earlier run took"
    ]
    assert expected(Run(described("now", ResourceConfig=where))) == {}


def test_a_slow_training_is_told_with_its_part_and_asks_for_others_once():
    run = Run(described("now", 4.0), Run(described("a", 1.5)))
    run.before[0].job["FinalMetricDataList"][3]["Value"] = 0.1  # data
    paces = Paces()
    for _ in range(3):
        said = paces.remark_on_job(run, run.job)  # type: ignore[arg-type]
    assert "slow: a step takes 4 s, and 1.5 s" in said and "data: 0.9 s for 0.1 s" in said
    assert run.asked == 1


def test_the_first_metric_line_is_a_warm_up():
    """Kernels are compiled in it, so its time is expected and must not be reported as slow."""
    run = Run(described("now", 400.0), Run(described("a", 1.5)))
    step = run.job["FinalMetricDataList"][0]
    assert step["MetricName"] == "train:step"
    said = {}
    for step["Value"] in (10.0, 20.0):
        said[step["Value"]] = Paces().remark_on_job(run, run.job)  # type: ignore[arg-type]
    assert said[10.0] == "" and said[20.0].startswith("slow: a step takes 400 s")


def test_what_is_foreseen_has_the_parts_that_metric_lines_have():
    training = of_description(described("now"))
    found = foreseen(training)
    parts = {part: s for part, s in found.seconds.items() if part != STEP}
    assert sum(parts.values()) == pytest.approx(found.seconds[STEP])
    assert set(parts) < {name.removesuffix("_seconds") for name in LINE}
    assert parts["communication"] == 0  # fsdp's is in forward_backward
    ddp = of_description(
        described("x", HyperParameters=hyperparameters(strategy="ddp", shard_degree="0"))
    )
    assert foreseen(ddp).seconds["communication"] > 0


def test_another_training_than_our_loops_is_left_alone():
    theirs = described("x", FinalMetricDataList=[{"MetricName": "loss", "Value": 1.0}])
    assert seconds(theirs) is None and seconds({}) is None
    assert Paces().remark_on_job(Run(theirs), theirs) == ""  # type: ignore[arg-type]


def test_the_report_has_this_run_and_what_was_expected_of_it():
    run = Run(described("now", 4.0), Run(described("a", 1.5)))
    by_name = {"Train": run.steps()[0]}
    page = "".join(read_panels(PANELS[-1:], run, by_name))  # type: ignore[arg-type]
    assert "1 earlier run took" in page and "is foreseen" in page
    assert "slow: a step takes 4 s" in page
    alone = Run(described("x", ResourceConfig={"InstanceType": "ml.m5.large", "InstanceCount": 2}))
    assert read_panels(PANELS[-1:], alone, by_name) == ("",)  # type: ignore[arg-type]
