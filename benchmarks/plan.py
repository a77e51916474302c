"""Measure the processor time of validate and plan beside the import of the SDK.

python -m benchmarks.plan [--json FILE] [--rounds N]

In each round every command runs once, in a process of its own, and who begins changes. A figure is
the processor time of the whole process, beginning to end, over that of a process that imports the
SDK and nothing else, in the same round.
"""

import copy
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from benchmarks.harness import (
    CHECKOUT,
    Figure,
    JsonFile,
    Section,
    Target,
    progress,
    report,
    screen,
    turns,
)
from benchmarks.measured_process import Used


def repeated(body: str, times: int) -> str:
    """``body`` with its steps so many times over; each copy refers to its own steps only.

    The first step of a copy waits for the last one of the copy before it.
    """
    document = json.loads(body)
    steps: list[dict[str, Any]] = []
    for number in range(times):
        names = {name: f"{name}{number or ''}" for name in _names(document["Steps"])}
        fresh = [_renamed(step, names) for step in copy.deepcopy(document["Steps"])]
        if steps:
            fresh[0]["DependsOn"] = [steps[-1]["Name"]]
        steps += fresh
    return json.dumps(document | {"Steps": steps}, indent=1)


def _names(steps: list[dict[str, Any]]) -> list[str]:
    nested = [
        step["Arguments"].get(key) or [] for step in steps for key in ("IfSteps", "ElseSteps")
    ]
    return [step["Name"] for step in steps] + [name for inner in nested for name in _names(inner)]


def _renamed(value: Any, names: dict[str, str]) -> Any:
    """Names of steps in ``Name`` of a step, ``DependsOn`` and every ``Get``."""
    if isinstance(value, list):
        return [_renamed(item, names) for item in value]
    if not isinstance(value, dict):
        return value
    found = {key: _renamed(item, names) for key, item in value.items()}
    if "Type" in value and value.get("Name") in names:
        found["Name"] = names[value["Name"]]
    if "DependsOn" in value:
        found["DependsOn"] = [names.get(name, name) for name in value["DependsOn"]]
    if isinstance(get := value.get("Get"), str) and get.startswith("Steps."):
        step, dot, path = get.removeprefix("Steps.").partition(".")
        found["Get"] = f"Steps.{names.get(step, step)}{dot}{path}"
    return found


RECIPE = "recipes/laptop.yaml"
# What a definition with a processing, a training and a register step is authored with.
SDK = "import sagemaker.mlops.workflow.pipeline, sagemaker.train, sagemaker.serve.model_builder"
SDK += "; sagemaker.train.ModelTrainer"
COPIES = 10  # of the five steps of the main job


@dataclass(frozen=True, slots=True)
class Command:
    """What is measured. ``statuses``: the exit statuses that are no failure."""

    label: str
    arguments: tuple[str, ...]
    statuses: tuple[int, ...] = (0,)


def main(
    json_file: JsonFile = None,
    rounds: Annotated[int, typer.Option(min=1, help="Each command so often.")] = 7,
) -> None:
    """Compare validate and plan with the import of the SDK; exit 1 when one is too slow."""
    with (
        tempfile.TemporaryDirectory(prefix="benchmarks-plan-") as folder,
        emulator(Path(folder)) as environment,
    ):
        section = measure(commands(Path(folder)), environment, rounds)
    raise typer.Exit(report([section], json_file, {"rounds": rounds}))


@contextmanager
def emulator(folder: Path) -> Iterator[dict[str, str]]:
    """An AWS with the recipe's pipeline deployed; the environment that leads there."""
    from trainyard.emulator.server import serve

    with serve(state=folder / "aws") as endpoint:
        environment = {**os.environ, **endpoint.env}
        upsert = [sys.executable, "-m", "pipelines.upsert", "--recipe", RECIPE]
        subprocess.run(upsert, cwd=CHECKOUT, env=environment, check=True, capture_output=True)
        yield environment


def commands(folder: Path) -> dict[str, Command]:
    """Everything that takes part, by name."""
    definition = [sys.executable, "-m", "pipelines.definition", "--recipe", RECIPE]
    done = subprocess.run(definition, cwd=CHECKOUT, check=True, capture_output=True, text=True)
    for name, times in (("5", 1), ("50", COPIES)):
        (folder / f"{name}.json").write_text(repeated(done.stdout, times))
    return {
        "sdk": Command("import the SDK, nothing else", ("-c", SDK)),
        "file_5": Command("validate 5 steps, a file", _verb("validate", f"{folder}/5.json")),
        "file_50": Command("validate 50 steps, a file", _verb("validate", f"{folder}/50.json")),
        "recipe": Command("validate a recipe", _verb("validate", "--recipe", RECIPE)),
        "plan": Command("plan, no change", _verb("plan", "--recipe", RECIPE)),
        "changed": Command(
            "plan, a change",
            _verb("plan", "--recipe", RECIPE, "--set", "train.loop.learning_rate=0.004"),
            (2,),
        ),
    }


def _verb(name: str, *arguments: str) -> tuple[str, ...]:
    return ("-m", f"pipelines.{name}", *arguments)


def measure(chosen: Mapping[str, Command], environment: Mapping[str, str], rounds: int) -> Section:
    """All rounds, after one that counts for nothing: it fills the page cache."""
    seconds: dict[str, list[float]] = {name: [] for name in chosen}
    with progress(screen()) as bar:
        task = bar.add_task("", total=(rounds + 1) * len(chosen))
        for number, name in turns(list(chosen), rounds + 1):
            bar.update(task, description=chosen[name].label)
            took = processor_seconds(chosen[name], environment)
            if number:
                seconds[name].append(took)
            bar.advance(task)
    return _section(chosen, {name: Figure(tuple(found)) for name, found in seconds.items()})


def processor_seconds(command: Command, environment: Mapping[str, str]) -> float:
    """User and system time of the process and of those that it waited for.

    Raises:
        SystemExit: the command failed; with what it said.
    """
    with tempfile.TemporaryFile("w+") as output:
        arguments = [sys.executable, *command.arguments]
        process = subprocess.Popen(
            arguments, cwd=CHECKOUT, env=environment, stdout=output, stderr=subprocess.STDOUT
        )
        used = Used.of(process.pid)
        process.returncode = used.status
        if used.status not in command.statuses:
            output.seek(0)
            raise SystemExit(f"{' '.join(arguments)}: exit {used.status}\n{output.read()}")
    return used.cpu_seconds


def _section(chosen: Mapping[str, Command], found: Mapping[str, Figure]) -> Section:
    section = Section("plan", "processor time of a whole process")
    section.columns = ("", "÷ import of the SDK", "ms")
    for name, command in chosen.items():
        ratio = found[name].over(found["sdk"])
        section.rows.append((command.label, ratio.text(), found[name].text(1e-3, 0)))
        section.data[name] = {"over_sdk": ratio.data(), "seconds": found[name].data()}
    for name, demanded in (("file_5", 1), ("file_50", 1), ("recipe", 1), ("plan", 1.3)):
        what = f"{chosen[name].label} ÷ import of the SDK"
        section.targets.append(Target(what, found[name].over(found["sdk"]), "≤", demanded))
    growth = found["file_50"].over(found["file_5"])
    section.targets.append(Target("validate 50 steps ÷ 5 steps", growth, "≤", 2))
    return section


if __name__ == "__main__":
    typer.run(main)
