"""The metrics of a training job as a table, with the best beside the last, and as curves."""

import re
from collections.abc import Hashable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial

from flask import render_template
from markupsafe import Markup

from trainyard.console.account import Account
from trainyard.console.charts import Series, line_chart
from trainyard.console.curves.reading import Metrics, Samples, read
from trainyard.runs.execution import Step
from trainyard.runs.metric_lines import STEPS
from trainyard.runs.series import Sample
from trainyard.runs.table import duration

MOST = 24
"""Plots that are drawn; of more metrics the table has the values."""

RANKED = 4
"""Plots with a curve of each rank, at most."""

SIZE = (460, 200)

_PHASE = re.compile(
    r"^(train|training|validation|valid|val|eval|test)[:_\-./ ]+(?=.)", re.IGNORECASE
)


def stamp(account: Account, step: Step) -> Hashable:
    """Differs when the step's curves do.

    Raises:
        ServiceError: AWS refuses.
    """
    job = _job(step)
    return read(account, job).version if job else None


def curves(account: Account, step: Step) -> Markup:
    """The metrics of the step's training job; empty where it is no such step, or has none yet.

    Raises:
        ServiceError: AWS refuses.
    """
    job = _job(step)
    if not job:
        return Markup()
    found = read(account, job)
    names = list(found.samples)
    if not names and not found.slow:
        return Markup()
    drawn = groups(names)[:MOST]
    plots = [_plot(found, i, *group) for i, group in enumerate(drawn)]
    by_rank = list(found.by_rank.items())[:RANKED]
    plots += [_ranks(found, i, name, of) for i, (name, of) in enumerate(by_rank)]
    rows = [(name, found.samples[name]) for name in names]
    until = None if found.until is None else datetime.fromtimestamp(found.until / 1000, UTC)
    html = render_template(
        "curves.html.j2",
        **{"plots": Markup("").join(plots), "rows": rows, "metrics": found, "until": until},
        **{"more": max(0, len(groups(names)) - MOST), "where": partial(at, found)},
    )
    return Markup(html)  # made by a template, which has escaped it


def _job(step: Step) -> str:
    """The name of the step's training job; empty where it has none."""
    return step.job[1] if step.job and step.job[0] == "TrainingJob" else ""


def groups(names: Iterable[str]) -> list[tuple[str, list[str]]]:
    """(title, metrics) of each plot, losses first: ``train:loss`` and ``validation:loss`` share
    one, as do ``loss`` and ``eval_loss``."""
    plots: dict[str, list[str]] = {}
    for name in names:
        base = _PHASE.sub("", name)
        if base.lower() not in STEPS:
            plots.setdefault(base.lower(), []).append(name)
    found = [
        (some[0] if len(some) == 1 else _PHASE.sub("", some[0]), some) for some in plots.values()
    ]
    return sorted(found, key=lambda one: "loss" not in one[0].lower())


def _plot(metrics: Metrics, i: int, title: str, names: Sequence[str]) -> Markup:
    x, series = _across(metrics, [(name, metrics.samples[name].all) for name in names])
    return line_chart(f"curve-{i}", title, series, x=x, size=SIZE)


def _across(
    metrics: Metrics, every: Sequence[tuple[str, list[Sample]]]
) -> tuple[str, list[Series]]:
    """The name of what is across, and the curves: what the job counts where every value stands
    beside it, and else the time."""
    samples = [one for _, some in every for one in some]
    if metrics.counter and all(one.step is not None for one in samples):
        return metrics.counter, [
            (name, [(one.step or 0.0, one.value) for one in some]) for name, some in every
        ]
    begin = min((first.at for first in _firsts(metrics)), default=0)
    end = max((one.at for one in samples), default=begin)
    unit, length = _unit((end - begin) / 1000)
    return f"{unit} since the first value", [
        (name, [((one.at - begin) / 1000 / length, one.value) for one in some])
        for name, some in every
    ]


def _unit(seconds: float) -> tuple[str, int]:
    if seconds < 300:
        return "seconds", 1
    return ("minutes", 60) if seconds < 4 * 3600 else ("hours", 3600)


def _ranks(metrics: Metrics, i: int, name: str, ranks: Mapping[int, Samples]) -> Markup:
    every = [(f"rank {rank}", one.all) for rank, one in sorted(ranks.items())]
    x, series = _across(metrics, every)
    return line_chart(f"ranks-{i}", f"{name} of each rank", series, x=x, size=SIZE)


def at(metrics: Metrics, sample: Sample | None) -> str:
    """Where a sample is: at its step, or so long after the job's first value."""
    if sample is None:
        return ""
    if sample.step is not None and metrics.counter:
        return f"at {metrics.counter} {sample.step:g}"
    begin = min(first.at for first in _firsts(metrics))
    return f"after {duration((sample.at - begin) / 1000)}"


def _firsts(metrics: Metrics) -> list[Sample]:
    """List the first value of each metric that has one."""
    return [some.first for some in list(metrics.samples.values()) if some.first]
