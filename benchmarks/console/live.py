"""How long after something has happened to a run a browser's page shows it."""

import json
import shutil
import statistics
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import boto3

from benchmarks.console.following import FLAGS
from benchmarks.console.processes import Visitor, console, emulator
from benchmarks.console.state import IMAGE, ROLE
from benchmarks.harness import Figure, Section, Target
from trainyard.emulator.client_environment import applied
from trainyard.language.statuses import ENDED

PIPELINE, TRAINING = "live", "Train"
STEPS = 16
POINTS = 40
"""Lines with a metric that the training logs, one a second."""

LIMIT = 1.0
"""Seconds within which a page shows what has happened."""

WATCH = """() => {
  window.seen = {};
  const note = (what) => { window.seen[what] ??= Date.now(); };
  const look = () => {
    for (const cell of document.querySelectorAll("td.Executing, td.Succeeded"))
      note(`${cell.closest("tr").querySelector("a").textContent} ${cell.classList[0]}`);
    for (const row of document.querySelectorAll("#metrics-best tbody tr"))
      note(`${row.querySelector("th").textContent} ${row.lastElementChild.textContent}`);
  };
  new MutationObserver(look).observe(document.body, { childList: true, subtree: true });
  look();
}"""
"""Notes in the page when each step's status and each count of a metric's values came, in ms."""


def measure(folder: Path) -> Section:
    """Start a run, look at its page and its training's in two tabs, and compare the times."""
    section = Section("live", f"a run of {STEPS} steps and a training's {POINTS} values, followed")
    section.columns = ("", "changes", "median, s", "worst, s")
    with emulator(folder / "live") as (_, env), applied(env), console(env) as (_, visitor):
        delays = _delays(visitor)
    for what, found in delays.items():
        section.rows.append(
            (what, str(len(found)), f"{statistics.median(found):.2f}", f"{max(found):.2f}")
        )
        section.data[what] = found
        section.targets.append(Target(f"{what}, worst, s", Figure((max(found),)), "≤", LIMIT))
    section.notes.append(
        "From the time that the API tells of the change to when it stands in chromium's page."
    )
    return section


def _delays(visitor: Visitor) -> dict[str, list[float]]:
    """What happened → seconds until a page showed it, each time."""
    from playwright.sync_api import sync_playwright

    sagemaker = boto3.session.Session().client("sagemaker")
    sagemaker.create_pipeline(
        PipelineName=PIPELINE, PipelineDefinition=json.dumps(_definition()), RoleArn=ROLE
    )
    with sync_playwright() as playwright:
        chromium = shutil.which("chromium")
        browser = playwright.chromium.launch(executable_path=chromium, args=FLAGS.split())
        context = browser.new_context()
        context.new_page().goto(visitor.address)
        arn = sagemaker.start_pipeline_execution(PipelineName=PIPELINE)["PipelineExecutionArn"]
        run = f"{visitor.root}/runs/{PIPELINE}/{arn.rpartition('/')[2]}"
        tabs = [context.new_page(), context.new_page()]
        for tab, address in zip(tabs, (run, f"{run}/{TRAINING}"), strict=True):
            tab.goto(address)
            tab.evaluate(WATCH)
        opened = time.time() + 1  # what happened before is not followed
        _wait(sagemaker, arn)
        tabs[0].wait_for_timeout(5_000)
        seen = {name: at / 1000 for tab in tabs for name, at in tab.evaluate("seen").items()}
        browser.close()
    delays: dict[str, list[float]] = {}
    for what, name, at in (*_of_steps(sagemaker, arn), *_of_metrics(sagemaker, arn)):
        if at > opened:
            delays.setdefault(what, []).append(_shown(seen, name) - at)
    return delays


def _shown(seen: Mapping[str, float], name: str) -> float:
    """When that was there, or what follows on it: the end of a step, a higher count."""
    what, _, value = name.rpartition(" ")
    mine = {one.rpartition(" ")[2]: at for one, at in seen.items() if one.startswith(f"{what} ")}
    if not value.isdigit():
        return min(at for status, at in mine.items() if status in (value, "Succeeded"))
    return min(at for count, at in mine.items() if int(count) >= int(value))


def _wait(sagemaker: Any, arn: str) -> None:
    while True:
        status = sagemaker.describe_pipeline_execution(PipelineExecutionArn=arn)
        if status["PipelineExecutionStatus"] in ENDED:
            assert status["PipelineExecutionStatus"] == "Succeeded", status
            return
        time.sleep(1)


def _of_steps(sagemaker: Any, arn: str) -> Iterator[tuple[str, str, float]]:
    """(what happened, what a page then shows, when) of each step."""
    found = sagemaker.list_pipeline_execution_steps(PipelineExecutionArn=arn, MaxResults=100)
    for step in found["PipelineExecutionSteps"]:
        name = step["StepName"]
        yield "a step starts", f"{name} Executing", step["StartTime"].timestamp()
        yield "a step ends", f"{name} Succeeded", step["EndTime"].timestamp()


def _of_metrics(sagemaker: Any, arn: str) -> Iterator[tuple[str, str, float]]:
    """The same of each value that the training has logged."""
    group = "/aws/sagemaker/TrainingJobs"
    logs = boto3.session.Session().client("logs")
    lines = logs.filter_log_events(logGroupName=group, filterPattern='"loss="')["events"]
    for number, line in enumerate(lines, 1):
        yield "a metric has a new value", f"loss {number}", line["timestamp"] / 1000


def _definition() -> dict[str, Any]:
    """One step after the other, and a training beside them."""
    script = f"for i in $(seq {POINTS}); do echo step=$i loss=0.$i; sleep 1; done"
    training = {
        "RoleArn": ROLE,
        "AlgorithmSpecification": {
            "TrainingImage": IMAGE,
            "TrainingInputMode": "File",
            "ContainerEntrypoint": ["/bin/sh", "-c", script],
            "MetricDefinitions": [{"Name": "loss", "Regex": r"loss=(\S+)"}],
        },
        "OutputDataConfig": {"S3OutputPath": "s3://live/models"},
        "ResourceConfig": {
            "InstanceType": "ml.m5.xlarge",
            "InstanceCount": 1,
            "VolumeSizeInGB": 10,
        },
        "StoppingCondition": {"MaxRuntimeInSeconds": 600},
    }
    steps: list[dict[str, Any]] = [{"Name": TRAINING, "Type": "Training", "Arguments": training}]
    for number in range(STEPS):
        before = {"DependsOn": [f"Work{number - 1}"]} if number else {}
        steps.append(
            {"Name": f"Work{number}", "Type": "Processing", "Arguments": _processing(), **before}
        )
    return {"Version": "2020-12-01", "Steps": steps}


def _processing() -> dict[str, Any]:
    cluster = {"InstanceType": "ml.m5.xlarge", "InstanceCount": 1, "VolumeSizeInGB": 10}
    return {
        "RoleArn": ROLE,
        "AppSpecification": {"ImageUri": IMAGE, "ContainerEntrypoint": ["/bin/sleep", "2"]},
        "ProcessingResources": {"ClusterConfig": cluster},
    }
