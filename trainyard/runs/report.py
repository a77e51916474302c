"""One self-contained page about a run: steps, loss curve, throughput, the gate's picture."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, select_autoescape

from trainyard.common import whole_file
from trainyard.runs import gate_plots, plots
from trainyard.runs.execution import Execution, Step
from trainyard.runs.summary import demanded, measured, model_package
from trainyard.runs.table import duration

PAIR = re.compile(r"(\w+)=([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """All that the page shows."""

    described: dict[str, Any]
    steps: list[Step]
    history: list[dict[str, float]]
    """Metric lines of the training job: name → value, each with its ``step``."""

    evaluation: dict[str, Any] | None
    gate: dict[str, Any] | None
    package: str | None


def read_run(execution: Execution) -> Run:
    """Ask the service for everything; parts that the run never reached are None or empty.

    Raises:
        ServiceError: there is no such execution, or AWS cannot be reached.
    """
    steps = execution.steps()
    by_name = {step.name: step for step in steps}

    def output(step: str, folder: str, file: str) -> dict[str, Any] | None:
        return execution.output_json(by_name[step], folder, file) if step in by_name else None

    lines = execution.all_lines(by_name["Train"]) if "Train" in by_name else ()
    return Run(
        described=execution.describe(),
        steps=steps,
        history=read_history(lines),
        evaluation=output("Evaluate", "evaluation", "evaluation.json"),
        gate=output("Gate", "gate", "gate.json"),
        package=model_package(steps),
    )


def read_history(lines: Iterable[str]) -> list[dict[str, float]]:
    """The metric lines among a training job's log lines: those that begin with ``step=``.

    A step that a resumed job logged twice counts once, as it was logged last.
    """
    history: dict[tuple[float, frozenset[str]], dict[str, float]] = {}
    for line in lines:
        if line.startswith("step="):
            metrics = {name: float(value) for name, value in PAIR.findall(line)}
            history[metrics["step"], frozenset(metrics)] = metrics
    return sorted(history.values(), key=lambda metrics: metrics["step"])


def render(run: Run) -> str:
    """The page, as one HTML document that needs nothing else."""
    templates = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=select_autoescape(default=True, default_for_string=True),
        trim_blocks=True,
        lstrip_blocks=True,
    )
    templates.filters |= {"duration": duration, "demanded": demanded, "measured": measured}
    pictures = {
        "timeline": plots.timeline(run.steps),
        "loss": plots.loss_curve(run.history),
        "throughput": plots.throughput(run.history),
        "gate": plots.gate_picture(run.gate, run.evaluation),
        "champion": gate_plots.champion_picture(run.gate),
        "budgets": gate_plots.budget_picture(run.gate),
    }
    return templates.get_template("report.html.j2").render(
        run=run, pictures={name: picture for name, picture in pictures.items() if picture}
    )


def write(run: Run, out: Path) -> None:
    """Write the page to ``out``; never half of it."""
    whole_file.write(out, render(run))
