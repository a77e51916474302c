"""Measure the console over a state with ten thousand executions, and how soon pages follow a run.

python -m benchmarks.console [--json FILE] [--only listing,live]

Emulator and console run in processes of their own, as people start them; what is asked for comes
over HTTP.
"""

import json
import re
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

import boto3
import typer

from benchmarks import harness
from benchmarks.console.processes import Started, Visitor, console, emulator
from benchmarks.console.state import IMAGE, ROLE, STEPS, make
from benchmarks.harness import Figure, JsonFile, Section, Target
from trainyard.emulator.client_environment import applied
from trainyard.language.statuses import ENDED

ASKED = {
    "newest": "/runs",
    "page 100": "/runs?page=100",
    "one status": "/runs?status=Failed",
    "a parameter": "/runs?p.LearningRate=%3D0.003&p.Epochs=%3D10",
    "sorted by a parameter": "/runs?sort=-p.Epochs",
    "sorted by duration": "/runs?sort=-duration",
    "searched": "/runs?q=vision+day%3D20",
    "one run by its id": "/runs?q=execution/{id}",
}
FIRST = "first page of a console that has just started, s"
LOADS = 300
"""Pages that are asked for while memory is looked at."""


def listing(folder: Path, executions: int, rounds: int) -> Section:
    """Start everything over a fresh state of so many executions, and ask for pages."""
    state = folder / "many"
    if not state.exists():
        make(state, executions)
    section = Section("listing", f"{executions:,} executions × {STEPS} steps: the list of runs")
    section.columns = ("", "found")
    with emulator(state) as (served, env):
        _row(section, "the emulator starts over that state, s", [served.seconds])
        _row(section, "the emulator's memory, MB", [served.megabytes])
        cold = [_cold(env, served) for _ in range(rounds)]
        first = _row(section, FIRST, [seconds for seconds, _ in cold])
        _row(section, f"{FIRST[:-3]}, processor time of both", [cpu for _, cpu in cold])
        section.targets.append(Target("first page of a console just started, s", first, "≤", 0.5))
        with console(env) as (started, visitor):
            _row(section, "console starts, s", [started.seconds])
            _row(section, "until all are read in the background, s", [_read(visitor)])
            _row(section, "processor time until then, s", [started.cpu])
            for name, path in ASKED.items():
                took = [_get(visitor, path) for _ in range(rounds)]
                figure = _row(section, f"{name}, s", took)
                section.targets.append(Target(f"page, {name}, s", figure, "≤", 0.5))
            _memory(section, started, visitor)
    section.notes.append(
        "First page: from the request to the last byte of the HTML, of a console that has served "
        "nobody yet; the index is empty then, and the page says that it is not complete."
    )
    return section


def _row(section: Section, what: str, found: list[float]) -> Figure:
    figure = Figure(tuple(found))
    section.rows.append((what, figure.text(digits=3) if len(found) > 1 else f"{found[0]:,.2f}"))
    section.data[what] = figure.data()
    return figure


def _cold(env: dict[str, str], emulator: Started) -> tuple[float, float]:
    """Seconds, and processor seconds of console and emulator together."""
    with console(env) as (started, visitor):
        before = started.cpu + emulator.cpu
        seconds, html = visitor.get("/runs")
        used = started.cpu + emulator.cpu - before
    assert html.count('<th scope="row">') == 50, html
    return seconds, used


def _read(visitor: Visitor) -> float:
    """Seconds until the page no longer says that it is read so far."""
    began = time.monotonic()
    while "read so far" in visitor.get("/runs")[1]:
        time.sleep(0.2)
    return time.monotonic() - began


def _get(visitor: Visitor, path: str) -> float:
    if "{id}" in path:
        [id, *_] = re.findall(r'href="/runs/\w+/(\w+)"', visitor.get("/runs?sort=started")[1])
        path = path.format(id=id)
    seconds, html = visitor.get(path)
    assert html.count('<th scope="row">') == (1 if "execution/" in path else 50), path
    return seconds


def _memory(section: Section, started: Started, visitor: Visitor) -> None:
    paths = [path for path in ASKED.values() if "{" not in path]
    paths += [f"/runs?page={page}" for page in range(2, 40)]
    half = 0.0
    for number in range(LOADS):
        visitor.get(paths[number % len(paths)])
        if number == LOADS // 3:
            half = started.megabytes
    whole = started.megabytes
    section.rows.append((f"memory after {LOADS // 3} more pages, MB", f"{half:,.1f}"))
    section.rows.append((f"memory after {LOADS} more pages, MB", f"{whole:,.1f}"))
    section.data["memory"] = {"after a third": half, "after all": whole}
    growth = Figure((whole / half,))
    section.targets.append(Target("memory after all pages ÷ after a third", growth, "≤", 1.05))


PIPELINE, TRAINING = "live", "Train"
FOLLOWED = 16
"""Steps of the run that is followed."""
FLAGS = "--headless --no-sandbox --disable-gpu --no-first-run --disable-background-networking"
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


def live(folder: Path) -> Section:
    """Start a run, look at its page and its training's in two tabs, and compare the times."""
    section = Section(
        "live", f"a run of {FOLLOWED} steps and a training's {POINTS} values, followed"
    )
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
    """Event → seconds until a page showed it, each time."""
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
    """Return when a text was shown, or one that follows it: a step's end, a higher count."""
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
    """Yield (event, text that a page then shows, time) of each step."""
    found = sagemaker.list_pipeline_execution_steps(PipelineExecutionArn=arn, MaxResults=100)
    for step in found["PipelineExecutionSteps"]:
        name = step["StepName"]
        yield "a step starts", f"{name} Executing", step["StartTime"].timestamp()
        yield "a step ends", f"{name} Succeeded", step["EndTime"].timestamp()


def _of_metrics(sagemaker: Any, arn: str) -> Iterator[tuple[str, str, float]]:
    """Yield (event, text that a page then shows, time) of each value that the training logged."""
    group = "/aws/sagemaker/TrainingJobs"
    logs = boto3.session.Session().client("logs")
    lines = logs.filter_log_events(logGroupName=group, filterPattern='"loss="')["events"]
    for number, line in enumerate(lines, 1):
        yield "a metric has a new value", f"loss {number}", line["timestamp"] / 1000


def _definition() -> dict[str, Any]:
    """Definition of steps one after the other, with a training beside them."""
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
    for number in range(FOLLOWED):
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


def main(
    json_file: JsonFile = None,
    only: Annotated[str, typer.Option(help="Sections: a,b; default: all.")] = "",
    executions: Annotated[int, typer.Option(min=100, help="In the list of runs.")] = 10_000,
    rounds: Annotated[int, typer.Option(min=1, help="Each page so often.")] = 7,
    scratch: Annotated[Path | None, typer.Option(help="Work there, and leave it.")] = None,
) -> None:
    """Measure the console; exit 1 when it is too slow or takes too much."""
    with tempfile.TemporaryDirectory(prefix="benchmarks-console-") as temporary:
        folder = scratch or Path(temporary)
        sections: dict[str, Callable[[], Section]] = {
            "listing": lambda: listing(folder, executions, rounds),
            "live": lambda: live(folder),
        }
        measured = [sections[name]() for name in harness.chosen(only, sections)]
    raise typer.Exit(
        harness.report(measured, json_file, {"executions": executions, "rounds": rounds})
    )


if __name__ == "__main__":
    typer.run(main)
