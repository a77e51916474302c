"""The report's pictures, each a function from data to SVG text; None where there is no data."""

from collections.abc import Sequence
from io import StringIO
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from pipelines.execution import Step

MODEL, OTHER, GOOD, BAD = "#2563eb", "#94a3b8", "#16a34a", "#dc2626"
STATUS = {"Succeeded": GOOD, "Failed": BAD, "Stopped": "#d97706"}
STYLE = {
    "svg.fonttype": "none",  # text stays text: small, sharp, searchable
    "svg.hashsalt": "trainyard",  # else ids are random and the page never the same twice
    "font.family": "sans-serif",
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#64748b",
    "axes.grid": True,
    "grid.color": "#e2e8f0",
    "axes.axisbelow": True,
}


def loss_curve(history: Sequence[dict[str, float]]) -> str | None:
    """Training and validation loss against the optimizer step."""
    train = _series(history, "loss")
    validation = _series(history, "validation_loss")
    if not train:
        return None

    def draw(axes: Axes) -> None:
        axes.plot(*zip(*train, strict=True), color=MODEL, label="train")
        if validation:
            axes.plot(*zip(*validation, strict=True), "o-", color=BAD, label="validation", ms=4)
        axes.set(xlabel="optimizer step", ylabel="loss (nats per unit)")
        axes.legend(frameon=False)

    return _picture(draw, (7, 3.4))


def throughput(history: Sequence[dict[str, float]]) -> str | None:
    """Samples per second of all ranks together against the optimizer step."""
    points = _series(history, "samples_per_second")
    if not points:
        return None

    def draw(axes: Axes) -> None:
        axes.plot(*zip(*points, strict=True), color=MODEL)
        axes.set(xlabel="optimizer step", ylabel="samples per second, all ranks")
        axes.set_ylim(bottom=0)

    return _picture(draw, (7, 2.6))


def timeline(steps: Sequence[Step]) -> str | None:
    """When each step ran, in seconds since the first began."""
    ran = [step for step in steps if step.started and step.seconds is not None]
    if not ran:
        return None
    begin = min(step.started for step in ran)

    def draw(axes: Axes) -> None:
        for row, step in enumerate(ran):
            left = (step.started - begin).total_seconds()
            axes.barh(row, max(step.seconds, 0.2), left=left, color=STATUS.get(step.status, OTHER))
        axes.set_yticks(range(len(ran)), [step.name for step in ran])
        axes.invert_yaxis()
        axes.grid(axis="y", visible=False)
        axes.set(xlabel="seconds since the start")

    return _picture(draw, (7, 0.7 + 0.32 * len(ran)))


def gate_picture(gate: dict[str, Any] | None, evaluation: dict[str, Any] | None) -> str | None:
    """Per metric that the gate checks: the model, the baselines, and the thresholds."""
    if not gate or not evaluation:
        return None
    checks = [check for check in gate["checks"] if check["value"] is not None]
    metrics = list(dict.fromkeys(check["metric"] for check in checks))
    if not metrics:
        return None
    names = ["model", *evaluation["baselines"]]

    def draw(axes: Axes) -> None:
        metric = metrics[0]
        for row, name in enumerate(names):
            value = _value(evaluation, name, metric)
            if value is None:
                continue
            axes.barh(row, value, color=MODEL if name == "model" else OTHER, height=0.6)
            axes.text(value, row, f" {value:.3f}", va="center")
        for check in checks:
            if check["metric"] == metric and check["threshold"] is not None:
                colour = GOOD if check["passed"] else BAD
                axes.axvline(check["threshold"], color=colour, ls="--", label=check["name"])
        axes.set_yticks(range(len(names)), names)
        axes.invert_yaxis()
        axes.grid(axis="y", visible=False)
        axes.set(xlabel=metric.replace("_", " "))
        axes.margins(x=0.12)
        axes.legend(frameon=False, loc="upper center", bbox_to_anchor=(0.5, -0.28), ncols=2)

    return _picture(draw, (7, 1.5 + 0.4 * len(names)))


def _value(evaluation: dict[str, Any], name: str, metric: str) -> float | None:
    if name == "model":
        return evaluation["metrics"].get(metric, {}).get("value")
    return evaluation["baselines"][name].get(metric)


def _series(history: Sequence[dict[str, float]], metric: str) -> list[tuple[float, float]]:
    return [(line["step"], line[metric]) for line in history if metric in line]


def _picture(draw, size: tuple[float, float]) -> str:
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=size, layout="constrained")
        draw(figure.add_subplot())
        text = StringIO()
        figure.savefig(text, format="svg", metadata={"Date": None})
    svg = text.getvalue()
    return svg[svg.index("<svg") :]  # without the XML prologue, which has no place inside HTML
