"""The gate's pictures of what the thresholds on metrics do not show: the champion, the budgets."""

from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from trainyard.runs.plots import BAD, GOOD, MODEL, OTHER, picture, picture_of

SLICES = 10
"""Drawn for each metric, the worst first."""
COMPARISONS = ("non_inferiority", "superiority")
LIMITS = {"non_inferiority": "--", "superiority": "-.", "slice_regression": ":"}
BUDGETS = ("latency", "artifact_size", "leakage", "sample_size", "power", "calibration")
FARTHEST = 2.0
"""Times what is demanded; what is farther off is drawn there."""

Row = tuple[str, dict[str, Any], str]
"""Label, what has ``value``, ``low`` and ``high``, colour."""


def champion_picture(gate: dict[str, Any] | None) -> str | None:
    """How much better the challenger is than the champion, in all and on the worst slices.

    A panel for each metric; the champion is the line at 0, better is to the right.
    """
    checks = [check for check in _checks(gate) if check["kind"] in LIMITS]
    panels = {metric: _rows(gate, checks, metric) for metric in _metrics(checks)}
    panels = {metric: rows for metric, rows in panels.items() if rows}
    if not panels:
        return None
    heights = [len(rows) + 2.5 for rows in panels.values()]

    def draw(figure: Figure) -> None:
        plots = figure.subplots(len(panels), height_ratios=heights, squeeze=False)[:, 0]
        for axes, (metric, rows) in zip(plots, panels.items(), strict=True):
            _draw_rows(axes, rows)
            _draw_limits(axes, [check for check in checks if check["metric"] == metric])
            name = metric.replace("_", " ")
            axes.set(xlabel=f"improvement of {name} over the champion's (right is better)")

    return picture_of(draw, (7, 0.34 * sum(heights)))


def budget_picture(gate: dict[str, Any] | None) -> str | None:
    """The checks that are about no metric, each as a multiple of what is demanded of it."""
    checks = [check for check in _checks(gate) if check["kind"] in BUDGETS]
    rows = [
        (_told(check), times, GOOD if check["passed"] else BAD)
        for check in checks
        if (times := _times_demanded(check))
    ]
    if not rows:
        return None

    def draw(axes: Axes) -> None:
        _draw_rows(axes, rows)
        axes.axvline(1, color=OTHER, ls="--")
        axes.set(xlim=(0, FARTHEST * 1.05), xlabel="times what is demanded (left of 1 passes)")

    return picture(draw, (7, 0.9 + 0.3 * len(rows)))


def _checks(gate: dict[str, Any] | None) -> list[dict[str, Any]]:
    """Those that could be made; a gate.json of an earlier version names no kinds."""
    found = gate["checks"] if gate else []
    return [check for check in found if "kind" in check and check["value"] is not None]


def _metrics(checks: Sequence[dict[str, Any]]) -> list[str]:
    return list(dict.fromkeys(check["metric"] for check in checks))


def _rows(gate: dict[str, Any], checks: Sequence[dict[str, Any]], metric: str) -> list[Row]:
    of_metric = [check for check in checks if check["metric"] == metric]
    whole = [check for check in of_metric if check["kind"] in COMPARISONS]
    rows = [("all examples", whole[0], MODEL)] if whole else []
    parts = [part for part in gate.get("slices", ()) if part["metric"] == metric]
    tested = [part for part in parts if part["value"] is not None][:SLICES]
    return rows + [(part["slice"], part, OTHER if part["passed"] else BAD) for part in tested]


def _draw_rows(axes: Axes, rows: Sequence[Row]) -> None:
    for place, (_, found, colour) in enumerate(rows):
        value = found["value"]
        ends = [value if found[end] is None else found[end] for end in ("low", "high")]
        spread = [[value - ends[0]], [ends[1] - value]]
        axes.errorbar(value, place, xerr=spread, fmt="o", color=colour, capsize=3)
    axes.set_yticks(range(len(rows)), [label for label, _, _ in rows])
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.grid(axis="y", visible=False)


def _draw_limits(axes: Axes, checks: Sequence[dict[str, Any]]) -> None:
    axes.axvline(0, color=OTHER, lw=1)
    for check in checks:
        colour, name = GOOD if check["passed"] else BAD, check["kind"].replace("_", " ")
        label = f"{name}: {check['threshold']:+g}"
        axes.axvline(check["threshold"], color=colour, ls=LIMITS[check["kind"]], label=label)
    axes.legend(frameon=False, loc="lower left", bbox_to_anchor=(0, 1), ncols=2, borderaxespad=0.2)


def _told(check: dict[str, Any]) -> str:
    name = check["metric"].replace("_", " ")
    if check["kind"] == "power":
        name = f"detectable {name}"
    sign = "≤" if check["direction"] == "lower" else "≥"
    return f"{name}: {check['value']:.4g} {sign} {check['threshold']:g}"


def _times_demanded(check: dict[str, Any]) -> dict[str, float] | None:
    """Value and limits over the threshold, or under it where more is better; at most FARTHEST."""
    threshold = check["threshold"]
    if threshold is None:
        return None

    def times(value: float | None) -> float | None:
        if value is None:
            return None
        above, below = (value, threshold) if check["direction"] == "lower" else (threshold, value)
        if not below:
            return FARTHEST if above else 0.0
        return min(FARTHEST, above / below)

    ends = sorted(end for end in map(times, (check["low"], check["high"])) if end is not None)
    value = times(check["value"])
    return {
        "value": value,
        "low": min([value, *ends]),
        "high": max([value, *ends]),
    }
