"""Two runs side by side, with their differences."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from urllib.parse import urlencode

from flask import Blueprint, Response, render_template, request, url_for
from markupsafe import Markup
from werkzeug.exceptions import BadRequest

from trainyard.common.errors import ServiceError
from trainyard.console import live_pages
from trainyard.console.account_cache import Account, account
from trainyard.console.metric_curves import Metrics, read
from trainyard.console.outcomes import by_importance, importance
from trainyard.console.pages.charts import Curve, curve_chart
from trainyard.console.two_runs import Side, content, rows, side
from trainyard.runs.run_differences import diff

page = Blueprint("compare", __name__)

TABLES = ("Metrics", "Parameters and arguments", "Code", "Data", "Times")
MOST = 4
"""Most metrics whose curves are drawn."""

FIRST = 12
"""Metrics that are shown at once; the others are folded."""


def _chosen() -> tuple[str, ...]:
    """Return the runs that the address names.

    Raises:
        BadRequest: more than two, or one that is not ``<pipeline>/<execution>``.
    """
    runs = tuple(dict.fromkeys(run for run in request.args.getlist("run") if run.strip()))
    if len(runs) > 2:
        raise BadRequest(f"{len(runs)} runs: only two can be compared; choose two")
    for run in runs:
        if not all(run.partition("/")[::2]) or run.count("/") > 1:
            raise BadRequest(f"run={run}: expected <pipeline>/<execution id>")
    return runs


def _sides(here: Account, runs: Sequence[str]) -> list[Side]:
    with ThreadPoolExecutor(2) as threads:
        return list(threads.map(partial(side, here), runs))


@page.get("/compare")
def compare() -> Response:
    """Show the runs in the address, each as ``run=<pipeline>/<execution>``."""
    here, runs = account(), _chosen()
    sides = _sides(here, runs)
    everything = "all" in request.args
    common = {"sides": sides, "everything": everything, "address": _address}
    tables = {}
    if len(sides) == 2:
        tables = {name: rows(sides, name, everything=everything) for name in TABLES}
        tables["Metrics"].sort(key=lambda row: importance(row.name))
    wanted = request.args.get("file", "")
    parts = {
        "runs": render_template("compare/runs.html.j2", **common),
        "changes": _changes(here, sides, wanted) if wanted and len(sides) == 2 else "",
        "curves": render_template("compare/curves.html.j2", plots=_curves(here, sides)),
        "tables": render_template("compare/tables.html.j2", **common, tables=tables, first=FIRST),
    }
    goes_on = any(one.snapshot and not one.snapshot.is_ended for one in sides)
    return live_pages.answer("compare.html.j2", parts, goes_on=goes_on)


def _address(**changed: str | None) -> str:
    """Return the page's address with other choices; None removes a choice."""
    args = request.args.to_dict(flat=False) | {
        name: [value] if value else [] for name, value in changed.items()
    }
    return f"{url_for('compare.compare')}?{urlencode(args, doseq=True)}"


def _changes(here: Account, sides: Sequence[Side], wanted: str) -> str:
    """Show the differences of the file ``<step>/<place>/<path>``."""
    step, _, name = wanted.partition("/")
    place, _, path = name.partition("/")
    found = [content(here, one.works.get(step), place, path) for one in sides]
    return render_template(
        "compare/changes.html.j2", file=wanted, found=diff(*found), address=_address
    )


def _curves(here: Account, sides: Sequence[Side]) -> list[Markup]:
    """Draw the curves of both runs in one plot each, by their steps' counters."""
    if len(sides) < 2:
        return []
    measured = [_of_side(here, one) for one in sides]
    names = list(dict.fromkeys(name for one in measured for name in one))
    names = by_importance(names)
    titles = [f"{n} {one.title}" for n, one in enumerate(sides, 1)]
    drawn = []
    for i, name in enumerate(names[:MOST]):
        found = [(n, *one[name]) for n, one in enumerate(measured, 1) if name in one]
        metric = name.partition(".")[2]
        curves = [Curve(titles[n - 1], job, metric, metrics) for n, job, metrics in found]
        drawn.append(curve_chart(f"curve-{i}", name, curves))
    return drawn


def _of_side(here: Account, one: Side) -> dict[str, tuple[str, Metrics]]:
    """Return ``<step>.<metric>`` → its training job, and the job's metrics."""
    found: dict[str, tuple[str, Metrics]] = {}
    for step, work in one.works.items():
        job = work.step.job if work.step else None
        if not job or job[0] != "TrainingJob" or not work.job:
            continue
        try:
            metrics = read(here, job[1])
        except ServiceError:  # the tables stand without curves
            continue
        found |= {f"{step}.{name}": (job[1], metrics) for name in list(metrics.samples)}
    return found
