"""The page of one step of an execution: its result, the reason of a failure, and its arguments."""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from flask import Blueprint, Response, render_template
from markupsafe import Markup
from werkzeug.exceptions import NotFound

from trainyard.common.errors import ServiceError
from trainyard.console import live_pages
from trainyard.console.account_cache import Account, account
from trainyard.console.app_hooks import application, read_panels
from trainyard.console.log_lines import streams
from trainyard.console.metric_curves import read
from trainyard.console.model_groups import place_of
from trainyard.console.pages.charts import Curve, Line, chart, training_charts
from trainyard.console.pages.log import last_lines
from trainyard.console.shown_step import (
    Shown,
    Trials,
    attempts,
    places,
    public,
    resolved,
    run_values,
    trials,
)
from trainyard.language.evaluation import arn_variables
from trainyard.plan.prices import load
from trainyard.plan.run_cost import all_of
from trainyard.runs.execution import TUNING, Step
from trainyard.runs.job_cost import JOBS, spent

page = Blueprint("step", __name__)

PACKAGE = "RegisterModel"  # key in the Metadata of a step that registered a model package
MOST = 24  # most plots drawn; other metrics have their values in the table
RANKED = 4  # most plots with a curve per rank


@page.get("/runs/<pipeline>/<execution>/<step>")
def step(pipeline: str, execution: str, step: str) -> Response:
    """Show the step's parts; each part reports by itself what AWS does not let it read."""
    shown = Shown(account(), pipeline, execution, step)
    if shown.step is None and shown.declared is None:
        raise NotFound(f"There is no step {step} in {pipeline}/{execution}.")
    parts = {name: _made(shown, name, read) for name, read in PARTS.items()}
    goes_on = not (shown.snapshot.is_ended or (shown.step and shown.step.ended))
    return live_pages.answer("step.html.j2", parts, goes_on=goes_on, **shown.address)


def _made(shown: Shown, name: str, read: Callable[[Shown], Mapping[str, Any]]) -> str:
    try:
        found = read(shown)
    except ServiceError as error:
        return render_template("step/refused.html.j2", part=name, said=str(error))
    return render_template(f"step/{name}.html.j2", **shown.address, shown=shown, **found)


def _head(shown: Shown) -> Mapping[str, Any]:
    declared, step = shown.declared, shown.step
    return {
        "source": arn_variables(step.source) if step and step.source else None,
        "about": declared.document.get("Description") if declared else None,
        "package": place_of(shown.resource.arn)
        if shown.resource and shown.resource.kind == PACKAGE
        else None,
    }


def _panels(shown: Shown) -> Mapping[str, Any]:
    """Return the application's panels about this step; read in the background, as it may take
    long.
    """
    nothing: tuple[Markup, ...] = ()
    mine = [one for one in application().panels if shown.step and shown.name in one.steps]
    steps = {one.name: one for one in shown.snapshot.steps}

    def read() -> tuple[Markup, ...]:
        return read_panels(mine, shown.execution, steps)

    key = ("step's panels", shown.arn, shown.name, repr(shown.step))
    return {"panels": shown.here.later(key, read, nothing) if mine else nothing}


def _attempts(shown: Shown) -> Mapping[str, Any]:
    if shown.step is None:
        return {"attempts": None}
    logged = {stream.job for stream in streams(shown.here, shown.step)}
    return {"attempts": attempts(shown.here, shown.snapshot, shown.step), "logged": logged}


def _trials(shown: Shown) -> Mapping[str, Any]:
    is_tuning = shown.resource is not None and shown.resource.kind == "TuningJob"
    found = trials(shown.here, shown.resource.name) if shown.resource and is_tuning else None
    return {"trials": found, "plot": _plot(found) if found else ""}


def _plot(found: Trials) -> Markup | str:
    """Draw the objective of every trial in the order of their start, with the best one marked."""
    known = [
        (job["CreationTime"], metric["Value"], metric.get("MetricName", "objective"))
        for job in found.jobs
        if (metric := job.get("FinalHyperParameterTuningJobObjectiveMetric") or {}).get("Value")
        is not None
        and "CreationTime" in job
    ]
    if len(known) < 2:
        return ""
    best, name = known[0][1], known[0][2]
    values = [value for _, value, _ in sorted(known)]
    numbers = range(1, len(values) + 1)
    at = values.index(best) + 1
    lines = [
        Line(name, numbers, values, marks=True),
        Line(f"best: trial {at}", [at], [best], marks=True),
    ]
    return chart("trials-chart", f"{name} of each trial", lines, x="trial")


def _time(shown: Shown) -> Mapping[str, Any]:
    """Return duration and cost, including earlier attempts."""
    kind = shown.resource.kind if shown.resource else ""
    ran = shown.step is not None and not shown.step.source
    job = shown.description if ran and kind in JOBS else {}
    if ran and shown.step and shown.step.tuning_job:
        kind, job = TUNING, shown.here.charged(shown.step)
    now = datetime.now(UTC)
    prices = load(shown.here.sagemaker.meta.region_name)
    last = spent(kind, job, prices, now) if job else None
    of_all = (
        attempts(shown.here, shown.snapshot, shown.step).found
        if kind in JOBS and job and shown.step
        else ()
    )
    before = [spent(kind, one.description, prices, now) for one in of_all[:-1]]
    return {
        "spent": last,
        "before": before,
        "usd": all_of(one.usd for one in (*before, last)) if last else None,
    }


def _places(shown: Shown) -> Mapping[str, Any]:
    source = shown.description or _resolved(shown) or {}
    job = shown.resource.name if shown.resource and shown.resource.kind in JOBS else ""
    metadata = shown.step.metadata if shown.step else {}
    return {"places": places(shown.here, {**source, "Metadata": metadata}, job)}


def _arguments(shown: Shown) -> Mapping[str, Any]:
    asked, described = _resolved(shown), public(shown.description)
    return {
        "asked": asked,
        "described": described,
        "metadata": public(dict(shown.step.metadata)) if shown.step else {},
    }


def _resolved(shown: Shown) -> dict[str, Any] | None:
    declared = shown.declared
    if declared is None:
        return None
    return resolved(declared, run_values(shown))


PARTS: Mapping[str, Callable[[Shown], Mapping[str, Any]]] = {
    "head": _head,
    "why": lambda shown: {"cause": shown.cause()},
    "time": _time,
    "attempts": _attempts,
    "trials": _trials,
    "places": _places,
    "arguments": _arguments,
    "panels": _panels,
    "curves": lambda shown: {"curves": curves(shown.here, shown.step) if shown.step else ""},
    "log": lambda shown: {
        "lines": last_lines(shown.here, shown.address, shown.step)
        if shown.step and shown.step.job
        else ""
    },
}
"""Fragment → function that returns its template's values."""


def curves(account: Account, step: Step) -> Markup:
    """Draw the metrics of the step's training job; empty without any."""
    if step.job is None or step.job[0] != "TrainingJob":
        return Markup()
    job = step.job[1]
    found = read(account, job)
    if not found.samples and not found.slow:
        return Markup()
    plots, more = training_charts(account, job, MOST, RANKED)
    rows = [Curve(name, job, name, found) for name in list(found.samples)]
    until = None if found.until is None else datetime.fromtimestamp(found.until / 1000, UTC)
    html = render_template(
        "curves.html.j2",
        **{"plots": Markup("").join(plots), "rows": rows, "metrics": found},
        **{"until": until, "more": more},
    )
    return Markup(html)  # made by a template, which has escaped it
