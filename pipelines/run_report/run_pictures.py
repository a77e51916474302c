"""Draw the pictures on an execution's page as SVG: gate, test split and training."""

from collections.abc import Callable, Mapping, Sequence
from io import StringIO
from itertools import cycle
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from conditions.check_table import Picture, load_checks
from conditions.gate_documents import Gate
from pipelines.run_report.step_documents import find_check
from steps.evaluate.evaluation_document import Evaluation

MODEL, OTHER, GOOD, BAD = "#2563eb", "#7c8ba1", "#16a34a", "#dc2626"
INK, EDGE, GRID, PAPER = "#0f172b", "#64748c", "#e2e8f1", "#fffffe"
"""Colours of texts, axes, grid lines, and the background; on a dark page, DARK replaces them."""
DARK = {INK: "#e6ebf3", EDGE: "#a3b0c4", GRID: "#33415a", PAPER: "#0f172a", MODEL: "#7aa9ff"}


def render_plot(draw: Callable[[Axes], None], size: tuple[float, float]) -> str:
    """Return the SVG of a figure of ``size`` inches with one plot."""
    return render_figure(lambda figure: draw(figure.add_subplot()), size)


def render_figure(draw: Callable[[Figure], None], size: tuple[float, float]) -> str:
    """Return the SVG of a figure of ``size`` inches whose colours adapt to a dark page."""
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=size, layout="constrained")
        draw(figure)
        text = StringIO()
        figure.savefig(text, format="svg", metadata={"Date": None})
    svg = text.getvalue()
    # Cut off the XML prologue, which HTML does not allow.
    svg = svg[svg.index("<svg") :]
    rules = []
    for number, (light, dark) in enumerate(DARK.items()):
        # Colours in the SVG become variables, so that a dark page can set others.
        svg = svg.replace(light, f"var(--c{number})")
        rules.append((f"--c{number}:{light};", f"--c{number}:{dark};"))
    lights, darks = map("".join, zip(*rules, strict=True))
    style = f":root{{{lights}}}@media(prefers-color-scheme:dark){{:root{{{darks}}}}}"
    return svg.replace("<defs>", f"<style>{style}</style><defs>", 1)


INTERVAL = 1.96  # standard errors to each side of the mean: 95 % of a normal distribution
SLICES = 10
"""Maximum number of slices drawn for each metric, worst first."""
LINES = ("--", "-.", ":")
"""Line styles of the required improvement, by the kind of check."""
FARTHEST = 2.0
"""Right end of the axis, in multiples of the threshold; larger values are drawn there."""

Row = tuple[str, dict[str, Any], str]
"""(Label on the y-axis, entry with ``value``, ``low`` and ``high``, colour)."""


def draw_metrics(gate: Gate, evaluation: Evaluation | None) -> str | None:
    """Draw, for each metric with a threshold, the threshold and the values of model, champion and
    baselines.

    Return None if there is no such metric.
    """
    gate_checks = [
        check for check in _select_checks(gate, "metrics") if check["threshold"] is not None
    ]
    metrics = _list_metrics(gate_checks)
    if not metrics or not evaluation:
        return None
    champion = gate.get("champion_metrics") or {}
    names = ["model", *(["champion"] if champion else []), *evaluation["baselines"]]

    def draw(figure: Figure) -> None:
        rows = figure.subplots(len(metrics), squeeze=False)[:, 0]
        for axes, metric in zip(rows, metrics, strict=True):
            values = {name: _find_value(evaluation, name, metric) for name in names}
            values |= {"champion": champion.get(metric)} if champion else {}
            error = evaluation["metrics"].get(metric, {}).get("standard_error")
            _draw_values(axes, {n: v for n, v in values.items() if v is not None}, error)
            _draw_thresholds(axes, [check for check in gate_checks if check["metric"] == metric])
            axes.set(xlabel=f"{metric.replace('_', ' ')} (line: the model's 95 % interval)")

    return render_figure(draw, (7, len(metrics) * (1.1 + 0.4 * len(names))))


def draw_champion_margins(gate: Gate, evaluation: Evaluation | None = None) -> str | None:
    """Draw by how much the challenger is better than the champion, overall and on the worst slices.

    There is one panel per metric; the champion is the line at 0, better is to the right. Return
    None if nothing was compared.
    """
    gate_checks = _select_checks(gate, "champion")
    panels = {
        metric: _build_rows(gate, gate_checks, metric) for metric in _list_metrics(gate_checks)
    }
    panels = {metric: rows for metric, rows in panels.items() if rows}
    if not panels:
        return None
    heights = [len(rows) + 2.5 for rows in panels.values()]

    def draw(figure: Figure) -> None:
        plots = figure.subplots(len(panels), height_ratios=heights, squeeze=False)[:, 0]
        for axes, (metric, rows) in zip(plots, panels.items(), strict=True):
            _draw_rows(axes, rows)
            _draw_required_improvements(
                axes, [check for check in gate_checks if check["metric"] == metric]
            )
            name = metric.replace("_", " ")
            axes.set(xlabel=f"improvement of {name} over the champion's (right is better)")

    return render_figure(draw, (7, 0.34 * sum(heights)))


def draw_budgets(gate: Gate, evaluation: Evaluation | None = None) -> str | None:
    """Draw the checks that are not about a metric, each as a multiple of its threshold; return None
    if there are none.
    """
    rows = [
        (_format_check(check), times, GOOD if check["passed"] else BAD)
        for check in _select_checks(gate, "budgets")
        if (times := _divide_by_threshold(check))
    ]
    if not rows:
        return None

    def draw(axes: Axes) -> None:
        _draw_rows(axes, rows)
        axes.axvline(1, color=OTHER, ls="--")
        axes.set(xlim=(0, FARTHEST * 1.05), xlabel="multiple of the threshold (left of 1 passes)")

    return render_plot(draw, (7, 0.9 + 0.3 * len(rows)))


def _draw_values(axes: Axes, values: dict[str, float], error: float | None) -> None:
    """Draw points, not bars: a bar has to start at 0, which makes 0.489 and 0.500 look the same."""
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
            bbox={"facecolor": PAPER, "linewidth": 0, "pad": 0.5},  # readable across a line
        )
    axes.set_yticks(range(len(values)), list(values))
    axes.set_ylim(len(values) - 0.5, -0.7)
    axes.grid(axis="y", visible=False)
    axes.margins(x=0.12)


def _draw_thresholds(axes: Axes, gate_checks: Sequence[dict[str, Any]]) -> None:
    """Draw each check's threshold as a vertical line, labelled in a legend."""
    for check, style in zip(gate_checks, cycle(("--", ":", "-.")), strict=False):
        bound = "at most" if check["direction"] == "lower" else "at least"
        label = f"{check['name']}: {bound} {check['threshold']:.3f}"
        axes.axvline(
            check["threshold"], color=GOOD if check["passed"] else BAD, ls=style, label=label
        )
    axes.legend(frameon=False, loc="lower left", bbox_to_anchor=(0, 1), ncols=2, borderaxespad=0.2)


def _find_value(evaluation: Evaluation, name: str, metric: str) -> float | None:
    """Return the metric of the model or of a baseline; None if it has none."""
    if name == "model":
        return evaluation["metrics"].get(metric, {}).get("value")
    return evaluation["baselines"].get(name, {}).get(metric)


def _select_checks(gate: Gate, name: Picture) -> list[dict[str, Any]]:
    """Return the checks that a picture shows, as far as they could be computed."""
    kinds = _list_kinds(name)
    return [c for c in gate["checks"] if c["value"] is not None and c["kind"] in kinds]


def _list_kinds(name: Picture) -> list[str]:
    """Return the kinds of the checks that the picture shows."""
    return list(dict.fromkeys(check.kind for check in load_checks() if check.picture == name))


def _list_metrics(gate_checks: Sequence[dict[str, Any]]) -> list[str]:
    """Return the metrics of the checks, each once."""
    return list(dict.fromkeys(check["metric"] for check in gate_checks))


def _build_rows(gate: Gate, gate_checks: Sequence[dict[str, Any]], metric: str) -> list[Row]:
    """Return a metric's rows: all examples, and the worst tested slices."""
    of_metric = [check for check in gate_checks if check["metric"] == metric]
    by_slice = {check.kind for check in load_checks() if "slices" in check.needs}
    overall_checks = [check for check in of_metric if check["kind"] not in by_slice]
    rows = [("all examples", overall_checks[0], MODEL)] if overall_checks else []
    parts = [part for part in gate.get("slices", ()) if part["metric"] == metric]
    tested_slices = [part for part in parts if part["value"] is not None][:SLICES]
    return rows + [
        (part["slice"], part, OTHER if part["passed"] else BAD) for part in tested_slices
    ]


def _draw_rows(axes: Axes, rows: Sequence[Row]) -> None:
    """Draw each row as a point with its interval; its label is on the y-axis."""
    for index, (_, interval, colour) in enumerate(rows):
        value = interval["value"]
        ends = [value if interval[end] is None else interval[end] for end in ("low", "high")]
        spread = [[value - ends[0]], [ends[1] - value]]
        axes.errorbar(value, index, xerr=spread, fmt="o", color=colour, capsize=3)
    axes.set_yticks(range(len(rows)), [label for label, _, _ in rows])
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.grid(axis="y", visible=False)


def _draw_required_improvements(axes: Axes, gate_checks: Sequence[dict[str, Any]]) -> None:
    """Draw the champion as a line at 0, and each required improvement as a line with a label."""
    axes.axvline(0, color=OTHER, lw=1)
    lines = dict(zip(_list_kinds("champion"), cycle(LINES), strict=False))
    for check in gate_checks:
        colour, name = GOOD if check["passed"] else BAD, check["kind"].replace("_", " ")
        label = f"{name}: {check['threshold']:+g}"
        axes.axvline(check["threshold"], color=colour, ls=lines[check["kind"]], label=label)
    axes.legend(frameon=False, loc="lower left", bbox_to_anchor=(0, 1), ncols=2, borderaxespad=0.2)


def _format_check(check: dict[str, Any]) -> str:
    """Return a check's label in the picture: its name, value, relation and threshold."""
    check_entry = find_check(check["kind"])
    label = check_entry.label if check_entry else "{metric}"
    name = label.format(metric=check["metric"].replace("_", " "))
    sign = "≤" if check["direction"] == "lower" else "≥"
    return f"{name}: {check['value']:.4g} {sign} {check['threshold']:g}"


def _divide_by_threshold(check: dict[str, Any]) -> dict[str, float] | None:
    """Return value and limits divided by the threshold, or the inverse if more is better; at most
    FARTHEST. Return None if the check has no threshold or no value.
    """
    threshold = check["threshold"]
    if threshold is None:
        return None

    def divide(value: float | None) -> float | None:
        """Return ``value`` as a multiple of the threshold, at most FARTHEST."""
        if value is None:
            return None
        numerator, denominator = (
            (value, threshold) if check["direction"] == "lower" else (threshold, value)
        )
        if not denominator:
            return FARTHEST if numerator else 0.0
        return min(FARTHEST, numerator / denominator)

    ends = sorted(end for end in map(divide, (check["low"], check["high"])) if end is not None)
    value = divide(check["value"])
    if value is None:
        return None
    return {"value": value, "low": min([value, *ends]), "high": max([value, *ends])}


GATE_PICTURES: dict[Picture, Callable[[Gate, Evaluation | None], str | None]] = {
    "metrics": draw_metrics,
    "champion": draw_champion_margins,
    "budgets": draw_budgets,
}


History = Sequence[dict[str, float]]
"""Metric lines of the training job: each maps metric names to values, including ``step``."""


def draw_loss_curve(history: History) -> str | None:
    """Draw training and validation loss against the optimizer step; return None without a loss."""
    train = _select_series(history, "loss")
    validation = _select_series(history, "validation_loss")
    if not train:
        return None

    def draw(axes: Axes) -> None:
        axes.plot(*zip(*train, strict=True), color=MODEL, label="train")
        if validation:
            axes.plot(*zip(*validation, strict=True), "o-", color=BAD, label="validation", ms=4)
        axes.set(xlabel="optimizer step", ylabel="loss (nats per unit)")
        axes.legend(frameon=False)

    return render_plot(draw, (7, 3.4))


def draw_throughput(history: History) -> str | None:
    """Draw samples per second of all ranks together against the optimizer step; return None without
    data.
    """
    points = _select_series(history, "samples_per_second")
    if not points:
        return None

    def draw(axes: Axes) -> None:
        axes.plot(*zip(*points, strict=True), color=MODEL)
        axes.set(xlabel="optimizer step", ylabel="samples per second, all ranks")
        axes.set_ylim(bottom=0)

    return render_plot(draw, (7, 2.6))


def draw_script_metrics(metrics: Mapping[str, Sequence[float]]) -> str | None:
    """Draw each metric of a script against the number of its line, one plot below the other; return
    None without metrics.
    """
    if not metrics:
        return None

    def draw(figure: Figure) -> None:
        plots = figure.subplots(len(metrics), squeeze=False)[:, 0]
        for axes, (name, values) in zip(plots, metrics.items(), strict=True):
            axes.plot(range(1, len(values) + 1), values, ".-", color=MODEL, ms=4)
            axes.set_ylabel(name)
        plots[-1].set_xlabel("times that the script printed it")

    return render_figure(draw, (7, 0.6 + 1.8 * len(metrics)))


def _select_series(history: History, metric: str) -> list[tuple[float, float]]:
    """Return (step, value) of the metric, for the lines that have it."""
    return [(line["step"], line[metric]) for line in history if metric in line]


TRAINING_PICTURES: Mapping[str, Callable[[History], str | None]] = {
    "loss of training and validation against the optimizer step": draw_loss_curve,
    "samples per second against the optimizer step": draw_throughput,
}
"""Pictures by description, in the order in which the page shows them."""


STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",  # keep text as text: small, sharp, searchable
    "svg.hashsalt": "trainyard",  # otherwise ids are random, and the page differs each time
    "font.family": "sans-serif",
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "savefig.facecolor": "none",
    "text.color": INK,
    "axes.labelcolor": INK,
    "xtick.color": EDGE,
    "ytick.color": EDGE,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "axes.edgecolor": EDGE,
    "axes.grid": True,
    "grid.color": GRID,
    "axes.axisbelow": True,
}
