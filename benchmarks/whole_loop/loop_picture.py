"""Draw what happened in the loop: phases, requests by model, drift by feature, log loss."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import matplotlib

matplotlib.use("Agg")  # no display
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from benchmarks.whole_loop.flight_requests import MOVED
from benchmarks.whole_loop.rehearsal import Seen
from pipelines.endpoint.answer_quality import OF_TRUTHS
from pipelines.endpoint.drift import compare_columns
from tests.endpoint_load import Ended
from trainyard.quality.model_quality import Cells, build_table

OLD, NEW, QUIET, ALARM = "#2e4057", "#66a182", "#c9c9c9", "#d1495b"
FEATURES = (ALARM, "#edae49")
MOMENTS = ("two features move", "monitor: moved", "deploy 2")
COMPARED, MEASURED, STEP = 400, 200, 50
"""Requests per point of drift, and of log loss; requests between two points."""


def draw_loop(seen: Seen, path: Path) -> None:
    """Draw what happened in the loop into a PNG file."""
    ended = sorted((one for one in seen.ended if one.answer), key=lambda one: one.at)
    begin, end = ended[0].at, ended[-1].at
    canvas, (strip, rate, drift, loss) = plt.subplots(
        4, 1, figsize=(10, 7), sharex=True, layout="constrained",
        gridspec_kw={"height_ratios": [0.6, 1, 1.3, 1.3]},
    )  # fmt: skip
    at = {name: moment - begin for name, moment in seen.moments.items()}
    canary = next(one.at for one in ended if one.variant == "version-2") - begin
    marks = [0.0, *(at[name] for name in MOMENTS), canary, at["served 2"], end - begin]
    _draw_phases(strip, marks)
    _draw_rate(rate, seen, begin)
    _draw_drift(drift, seen, ended, begin)
    _draw_loss(loss, seen, ended, begin)
    for axis in (rate, drift, loss):
        axis.spines[["top", "right"]].set_visible(False)
        for mark in marks[1:-1]:
            axis.axvline(mark, color="black", linewidth=0.6, alpha=0.5)
    loss.set(xlabel="seconds", xlim=(0, end - begin))
    canvas.savefig(path, dpi=120)


def _draw_phases(axis: Axes, marks: Sequence[float]) -> None:
    phases = (
        ("as in training", "#e8ecef"),
        ("two features\nmove", "#f6dadd"),
        ("monitor names them, starts\nthe pipeline: shard, train,\nevaluate, gate; approved",
         "#fbeed5"),
        ("new fleet\nstarts", "#eef1f5"),
        ("canary,\nthen all", "#d9eade"),
        ("new model\nserves", "#c3dccb"),
    )  # fmt: skip
    for (text, colour), left, right in zip(phases, marks, marks[1:], strict=False):
        axis.barh(0, right - left, left=left, height=1, color=colour, edgecolor="white")
        axis.text((left + right) / 2, 0, text, ha="center", va="center", fontsize=8)
    axis.set_axis_off()


def _draw_rate(axis: Axes, seen: Seen, begin: float) -> None:
    """Draw the requests a second, by the model that answered."""
    times = [
        np.array([one.at - begin for one in seen.ended if one.variant == name])
        for name in ("version-1", "version-2")
    ]
    edges = np.arange(0, max(map(np.max, times)) + 2, 2.0)
    counts = [np.histogram(one, edges)[0] / 2 for one in times]
    axis.stackplot(edges[:-1] + 1, counts, colors=(OLD, NEW), step="mid")
    axis.set(ylabel="requests\na second", ylim=(0, 1.35 * max(sum(counts))))
    lost = sum(not one.answer for one in seen.ended)
    axis.set_title(f"{len(seen.ended):,} requests, {lost} lost", fontsize=10, loc="right")
    _draw_legend(axis, [("model 1", OLD), ("model 2", NEW)])


def _draw_drift(axis: Axes, seen: Seen, ended: Sequence[Ended], begin: float) -> None:
    """Draw the population stability index of each feature, over the last requests."""
    flights, features = seen.flights, seen.flights.features
    before = _make_columns(flights.trained[features])
    rows = flights.look_up_flights([one.number for one in ended])[features]
    quantities = set(rows.select_dtypes("number"))
    curves: dict[str, list[float]] = {name: [] for name in features}
    ends = range(COMPARED, len(ended) + 1, STEP)
    for last in ends:
        now = _make_columns(rows[last - COMPARED : last])
        for one in compare_columns(before, now, quantities, error=0.05, least_psi=0.1):
            if one.respect == "values":
                curves[one.feature].append(one.psi or 0.0)
    x = [ended[last - 1].at - begin for last in ends]
    for name, values in curves.items():
        if len(values) == len(x):
            colour = FEATURES[MOVED.index(name)] if name in MOVED else QUIET
            axis.plot(x, values, color=colour, linewidth=2 if name in MOVED else 0.8,
                      zorder=2 + (name in MOVED))  # fmt: skip
    top = 1.25 * max(value for values in curves.values() for value in values)
    _draw_line(axis, 0.1, "black")
    axis.set(ylabel="drift of a feature\n(PSI)", ylim=(0, top))
    named = [*zip(MOVED, FEATURES, strict=True)]
    _draw_legend(axis, [*named, (f"{len(features) - 2} others", QUIET)], "least PSI of a drift")


def _make_columns(flights: pd.DataFrame) -> Mapping[str, Cells]:
    records = flights.astype(object).where(flights.notna(), None).to_dict("records")
    return build_table(records).columns


def _draw_line(axis: Axes, height: float, colour: str) -> None:
    axis.axhline(height, color=colour, linewidth=0.9, linestyle=":")


def _draw_loss(axis: Axes, seen: Seen, ended: Sequence[Ended], begin: float) -> None:
    """Draw the log loss of each model's last answers."""
    for name, colour in (("version-1", OLD), ("version-2", NEW)):
        own = [one for one in ended if one.variant == name]
        found = [json.loads(one.answer)["probability"] for one in own]
        late = [float(seen.flights.is_late(one.number)) for one in own]
        losses = OF_TRUTHS["log_loss"](np.array(found), np.array(late))
        ends = range(MEASURED, len(own) + 1, STEP)
        axis.plot(
            [own[last - 1].at - begin for last in ends],
            [losses[last - MEASURED : last].mean() for last in ends],
            color=colour, linewidth=2,
        )  # fmt: skip
    low, high = axis.get_ylim()
    axis.set(ylabel="log loss of\nthe answers", ylim=(low, high + 0.25 * (high - low)))
    for value, colour in zip(seen.recorded, (OLD, NEW), strict=True):
        _draw_line(axis, value, colour)
    _draw_legend(axis, [("model 1", OLD), ("model 2", NEW)], "as evaluated")


def _draw_legend(axis: Axes, entries: Sequence[tuple[str, str]], dotted: str = "") -> None:
    lines = [plt.Line2D([], [], color=colour, linewidth=3, label=name) for name, colour in entries]
    if dotted:
        lines.append(plt.Line2D([], [], color="black", linestyle=":", label=dotted))
    box = {"framealpha": 1, "edgecolor": "white", "borderpad": 0.2}
    axis.legend(handles=lines, loc="upper left", ncols=4, fontsize=9, **box)
