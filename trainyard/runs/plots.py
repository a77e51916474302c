"""The report's pictures, each a function from data to SVG text; None where there is no data."""

from collections.abc import Callable, Sequence
from io import StringIO
from itertools import cycle
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from trainyard.runs.execution import Step

MODEL, OTHER, GOOD, BAD = "#2563eb", "#94a3b8", "#16a34a", "#dc2626"
INTERVAL = 1.96  # standard errors on each side that hold 95 % of a normal distribution
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

    return picture(draw, (7, 3.4))


def throughput(history: Sequence[dict[str, float]]) -> str | None:
    """Samples per second of all ranks together against the optimizer step."""
    points = _series(history, "samples_per_second")
    if not points:
        return None

    def draw(axes: Axes) -> None:
        axes.plot(*zip(*points, strict=True), color=MODEL)
        axes.set(xlabel="optimizer step", ylabel="samples per second, all ranks")
        axes.set_ylim(bottom=0)

    return picture(draw, (7, 2.6))


def timeline(steps: Sequence[Step]) -> str | None:
    """When each step ran, in seconds since the first began."""
    ran = [step for step in steps if step.started and step.seconds is not None]
    if not ran:
        return None
    begin = min(step.started for step in ran)

    def draw(axes: Axes) -> None:
        starts = [(step.started - begin).total_seconds() for step in ran]
        visible = max(s + step.seconds for s, step in zip(starts, ran, strict=True)) / 200
        for row, (start, step) in enumerate(zip(starts, ran, strict=True)):
            colour = STATUS.get(step.status, OTHER)
            axes.barh(row, max(step.seconds, visible), left=start, color=colour)
        axes.set_yticks(range(len(ran)), [step.name for step in ran])
        axes.invert_yaxis()
        axes.grid(axis="y", visible=False)
        axes.set(xlabel="seconds since the start")

    return picture(draw, (7, 0.7 + 0.32 * len(ran)))


def gate_picture(gate: dict[str, Any] | None, evaluation: dict[str, Any] | None) -> str | None:
    """For each metric with a threshold: the model, champion, baselines, and what was demanded."""
    if not gate or not evaluation:
        return None
    kinds = ("threshold", "baseline")
    demanded = [check for check in gate["checks"] if check.get("kind", "threshold") in kinds]
    checks = [c for c in demanded if c["value"] is not None and c["threshold"] is not None]
    metrics = list(dict.fromkeys(check["metric"] for check in checks))
    if not metrics:
        return None
    champion = gate.get("champion_metrics") or {}
    names = ["model", *(["champion"] if champion else []), *evaluation["baselines"]]

    def draw(figure: Figure) -> None:
        rows = figure.subplots(len(metrics), squeeze=False)[:, 0]
        for axes, metric in zip(rows, metrics, strict=True):
            values = {name: _value(evaluation, name, metric) for name in names}
            values |= {"champion": champion.get(metric)} if champion else {}
            error = evaluation["metrics"].get(metric, {}).get("standard_error")
            _draw_values(axes, {n: v for n, v in values.items() if v is not None}, error)
            _draw_demands(axes, [check for check in checks if check["metric"] == metric])
            axes.set(xlabel=f"{metric.replace('_', ' ')} (line: the model's 95 % interval)")

    return picture_of(draw, (7, len(metrics) * (1.1 + 0.4 * len(names))))


def _draw_values(axes: Axes, values: dict[str, float], error: float | None) -> None:
    """Points, not bars: a bar has to begin at 0, where one cannot see 0.489 from 0.500."""
    for row, (name, value) in enumerate(values.items()):
        colour = MODEL if name == "model" else OTHER
        interval = INTERVAL * error if name == "model" and error is not None else None
        axes.errorbar(value, row, xerr=interval, fmt="o", color=colour, capsize=3)
        axes.annotate(
            f"{value:.4f}",
            (value, row),
            (0, 7),
            textcoords="offset points",
            ha="center",
            bbox={"facecolor": "white", "linewidth": 0, "pad": 0.5},  # readable across a line
        )
    axes.set_yticks(range(len(values)), list(values))
    axes.set_ylim(len(values) - 0.5, -0.7)
    axes.grid(axis="y", visible=False)
    axes.margins(x=0.12)


def _draw_demands(axes: Axes, checks: list[dict[str, Any]]) -> None:
    for check, style in zip(checks, cycle(("--", ":", "-.")), strict=False):
        bound = "at most" if check["direction"] == "lower" else "at least"
        label = f"{check['name']}: {bound} {check['threshold']:.3f}"
        axes.axvline(
            check["threshold"], color=GOOD if check["passed"] else BAD, ls=style, label=label
        )
    axes.legend(frameon=False, loc="lower left", bbox_to_anchor=(0, 1), ncols=2, borderaxespad=0.2)


def _value(evaluation: dict[str, Any], name: str, metric: str) -> float | None:
    if name == "model":
        return evaluation["metrics"].get(metric, {}).get("value")
    return evaluation["baselines"].get(name, {}).get(metric)


def _series(history: Sequence[dict[str, float]], metric: str) -> list[tuple[float, float]]:
    return [(line["step"], line[metric]) for line in history if metric in line]


def picture(draw: Callable[[Axes], None], size: tuple[float, float]) -> str:
    """SVG of a figure of ``size`` inches with one plot."""
    return picture_of(lambda figure: draw(figure.add_subplot()), size)


def picture_of(draw: Callable[[Figure], None], size: tuple[float, float]) -> str:
    """SVG of a figure of ``size`` inches, without the XML prologue, which HTML has no place for."""
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=size, layout="constrained")
        draw(figure)
        text = StringIO()
        figure.savefig(text, format="svg", metadata={"Date": None})
    svg = text.getvalue()
    return svg[svg.index("<svg") :]
