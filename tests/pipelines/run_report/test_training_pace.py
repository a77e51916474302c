"""The expected pace of our trainings, the lines about a run in a terminal, what a run printed."""

from types import SimpleNamespace
from typing import Any

import pytest

from pipelines.advice.training_setting import derive_described_training
from pipelines.run_report.run_panels import PANELS
from pipelines.run_report.run_progress import build_checks_table, read_progress
from pipelines.run_report.step_documents import read_metrics
from pipelines.run_report.training_pace import (
    LOOK_BACK,
    Paces,
    forecast_step_time,
    read_step_seconds,
)
from tests.pipelines.advice.test_training_setting import job as hyperparameters
from tests.trainyard.console.test_frozen_page import step
from trainyard.console.app_hooks import render_panels
from trainyard.runs.execution import Step
from trainyard.runs.training_speed import STEP
from trainyard.terminal import console

LINE = {"step": 120.0, "loss": 2.5, "step_seconds": 2.0, "data_seconds": 0.9,
        "forward_backward_seconds": 0.9, "communication_seconds": 0.1, "optimizer_seconds": 0.1,
        "checkpoint_seconds": 0.0}  # fmt: skip


def make_training_description(name: str, took: float = 2.0, **changed: Any) -> dict[str, Any]:
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

    def list_steps(self) -> list[Step]:
        metadata = {"TrainingJob": {"Arn": f"arn:x/{self.job['TrainingJobName']}"}}
        return [step("Train", metadata=metadata)]

    def describe_training_job(self, name: str) -> dict[str, Any]:
        return self.job

    def list_earlier(self, limit: int) -> list["Run"]:
        assert limit == LOOK_BACK
        self.asked += 1
        return list(self.before)


def find_expected_seconds(run: Run) -> dict[str, dict[str, float]]:
    pace = Paces().find_pace(run, run.job)  # type: ignore[arg-type]
    assert pace
    return {one.grounds: dict(one.seconds) for one in pace.expected}


def test_earlier_runs_that_were_alike_go_before_what_is_foreseen():
    cheaper = hyperparameters(learning_rate="1e-5", max_steps="7")  # as long a step
    other = hyperparameters(micro_batch="4")
    smaller = {"InstanceType": "ml.p4d.24xlarge", "InstanceCount": 2}
    run = Run(
        make_training_description("now"),
        Run(make_training_description("a", 1.0, HyperParameters=cheaper)),
        Run(make_training_description("a", 1.0, HyperParameters=cheaper)),  # from the cache: once
        Run(make_training_description("b", 1.2)),
        Run(make_training_description("c", 9.0, HyperParameters=other)),
        Run(make_training_description("d", 9.0, ResourceConfig=smaller)),
        Run(make_training_description("now", 9.0)),
        Run(make_training_description("e", FinalMetricDataList=[])),
    )
    found = find_expected_seconds(run)
    assert list(found) == ["2 earlier runs took", "is foreseen"]
    assert found["2 earlier runs took"][STEP] == pytest.approx(1.1)


def test_on_a_cpu_the_earlier_runs_are_all_there_is():
    where = {"InstanceType": "ml.m5.large", "InstanceCount": 2}
    before = Run(make_training_description("a", 1.0, ResourceConfig=where))
    assert list(
        find_expected_seconds(Run(make_training_description("now", ResourceConfig=where), before))
    ) == ["1 earlier run took"]
    assert find_expected_seconds(Run(make_training_description("now", ResourceConfig=where))) == {}


def test_a_slow_training_is_told_with_its_part_and_asks_for_others_once():
    run = Run(make_training_description("now", 4.0), Run(make_training_description("a", 1.5)))
    run.before[0].job["FinalMetricDataList"][3]["Value"] = 0.1  # data
    paces = Paces()
    for _ in range(3):
        said = paces.remark_on_job(run, run.job)  # type: ignore[arg-type]
    assert (
        "slow: a step takes 4 s, not the 1.5 s" in said and "data: 0.9 s instead of 0.1 s" in said
    )
    assert run.asked == 1


def test_the_first_metric_line_is_a_warm_up():
    """Kernels are compiled in it, so its time is expected and must not be reported as slow."""
    run = Run(make_training_description("now", 400.0), Run(make_training_description("a", 1.5)))
    done = run.job["FinalMetricDataList"][0]
    assert done["MetricName"] == "train:step"
    said = {}
    for done["Value"] in (10.0, 20.0):
        said[done["Value"]] = Paces().remark_on_job(run, run.job)  # type: ignore[arg-type]
    assert said[10.0] == "" and said[20.0].startswith("slow: a step takes 400 s")


def test_what_is_foreseen_has_the_parts_that_metric_lines_have():
    training = derive_described_training(make_training_description("now"))
    found = forecast_step_time(training)
    parts = {part: s for part, s in found.seconds.items() if part != STEP}
    assert sum(parts.values()) == pytest.approx(found.seconds[STEP])
    assert set(parts) < {name.removesuffix("_seconds") for name in LINE}
    assert parts["communication"] == 0  # fsdp's is in forward_backward
    ddp = derive_described_training(
        make_training_description(
            "x", HyperParameters=hyperparameters(strategy="ddp", shard_degree="0")
        )
    )
    assert forecast_step_time(ddp).seconds["communication"] > 0


def test_another_training_than_our_loops_is_left_alone():
    theirs = make_training_description(
        "x", FinalMetricDataList=[{"MetricName": "loss", "Value": 1.0}]
    )
    assert read_step_seconds(theirs) is None and read_step_seconds({}) is None
    assert Paces().remark_on_job(Run(theirs), theirs) == ""  # type: ignore[arg-type]


def test_the_report_has_this_run_and_what_was_expected_of_it():
    run = Run(make_training_description("now", 4.0), Run(make_training_description("a", 1.5)))
    by_name = {"Train": run.list_steps()[0]}
    page = "".join(render_panels(PANELS[-1:], run, by_name))  # type: ignore[arg-type]
    assert "1 earlier run took" in page and "is foreseen" in page
    assert "slow: a step takes 4 s" in page
    alone = Run(
        make_training_description(
            "x", ResourceConfig={"InstanceType": "ml.m5.large", "InstanceCount": 2}
        )
    )
    assert render_panels(PANELS[-1:], alone, by_name) == ("",)  # type: ignore[arg-type]


CHECK = {"name": "max_loss", "direction": "lower", "value": 2.0, "threshold": 3.0, "passed": True}
COMPARED = CHECK | {"name": "superiority_loss", "kind": "superiority", "direction": "higher",
                    "value": 0.01, "low": -0.005, "high": None, "threshold": 0.0,
                    "passed": False}  # fmt: skip


def render_checks_table(*checks: dict, **gate: str) -> list[list[str]]:
    with console.capture() as capture:
        console.print(build_checks_table({"checks": list(checks)} | gate))
    return [line.split() for line in capture.get().splitlines()]


def test_limits_are_shown_where_a_check_has_some_and_what_is_demanded_of_them():
    head, plain, compared = render_checks_table(CHECK, COMPARED)
    assert head == ["gate", "value", "limits", "demanded"]
    assert plain == ["max_loss", "2.0000", "at", "most", "3.0000", "pass"]
    assert compared[1:] == ["0.0100", "-0.0050", "to", "∞", "low", "above", "0.0000", "reject"]
    assert render_checks_table(CHECK)[0] == ["gate", "value", "demanded"]


def test_a_cold_start_says_that_there_is_no_champion_and_what_the_policy_did():
    undecided = COMPARED | {"value": None, "low": None, "passed": True}
    _, row = render_checks_table(undecided, champion="none", cold_start="pass")
    assert "no champion, cold_start: pass" in " ".join(row) and "missing" not in row
    _, row = render_checks_table(CHECK | {"value": None, "kind": "threshold"}, champion="none")
    assert "missing" in row


def test_a_training_that_has_told_its_step_has_a_bar():
    told = [{"MetricName": "train:step", "Value": 30.0}, {"MetricName": "train:loss", "Value": 2}]
    job = {"FinalMetricDataList": told, "HyperParameters": {"max_steps": "300"}}
    assert read_progress(job) == (30, 300)
    assert read_progress(job | {"FinalMetricDataList": []}) is None
    assert read_progress(job | {"HyperParameters": {}}) is None


def test_a_metrics_expression_means_what_it_means_to_jobs():
    """Its dialect differs from Python's; an invalid or slow one does not affect others."""
    regexes = {"f1": r"f1=(?<value>[0-9.]+)", "bad": "(", "slow": "word=((a|aa)+)$",
               "mae": "mae=([0-9.]+)"}  # fmt: skip
    given = [{"Name": name, "Regex": regex} for name, regex in regexes.items()]
    lines = ["f1=0.5 mae=3", f"word={'a' * 60}!", "f1=1.0 mae=nothing"]
    metadata = {"TrainingJob": {"Arn": "arn:aws:sagemaker:us-east-1:1:training-job/x"}}
    service = SimpleNamespace(
        describe_training_job=lambda name: {"AlgorithmSpecification": {"MetricDefinitions": given}},
        iter_lines=lambda _: lines,
    )
    found = read_metrics(service, {"Train": step("Train", metadata=metadata)})
    assert found == {"f1": [0.5, 1.0], "mae": [3.0]}
