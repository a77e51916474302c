"""The page of one step of an execution: its result, the reason of a failure, and its arguments."""

from collections.abc import Callable, Hashable, Mapping
from datetime import UTC, datetime
from typing import Any

from flask import Blueprint, render_template
from markupsafe import Markup
from werkzeug.exceptions import NotFound

from trainyard.common.errors import ServiceError
from trainyard.console import live_pages
from trainyard.console.account_cache import Account, account
from trainyard.console.app_hooks import application, of_step, read_panels
from trainyard.console.log_lines import polled
from trainyard.console.log_streams import chosen, streams
from trainyard.console.metric_curves import read
from trainyard.console.model_groups import place_of
from trainyard.console.pages.charts import Curve, Line, chart, training_charts
from trainyard.console.pages.log import last_lines
from trainyard.console.shown_step import Shown, public, resolved, run_values, tables
from trainyard.console.step_attempts import Trials, attempts, places, trials
from trainyard.language.evaluation import arn_variables
from trainyard.plan.prices import load
from trainyard.plan.run_cost import all_of
from trainyard.runs.execution import TUNING, Step
from trainyard.runs.job_cost import JOBS, spent

page = Blueprint("step", __name__)

PACKAGE = "RegisterModel"
"""Key in the Metadata of a step that registered a model package."""

MOST = 24
"""Most plots drawn; other metrics have their values in the table."""

RANKED = 4
"""Most plots with a curve per rank."""

GOOD = 10.0
"""Seconds for which a fragment is reused if the step has not changed; objects in S3 may change."""


def _stamp(pipeline: str, execution: str, step: str) -> Hashable:
    shown = Shown(account(), pipeline, execution, step)
    return shown.version(), _grown(shown), shown.here.beside.stamp(_panels_key(shown))


def _grown(shown: Shown) -> Hashable:
    """Return a value that changes when the job's log or its metrics grow."""
    here, step = shown.here, shown.step
    if step is None:
        return None
    try:
        stream = chosen(streams(here, step), "", "") if step.ended is None else None
        return stamp(here, step), polled(here, stream) if stream else 0
    except ServiceError:  # their parts of the page say so
        return None


@live_pages.page(page, "/runs/<pipeline>/<execution>/<step>", template="step.html.j2", stamp=_stamp)
def step(pipeline: str, execution: str, step: str) -> live_pages.Fragments:
    """Show the step's parts; each part reports by itself what AWS does not let it read."""
    shown = Shown(account(), pipeline, execution, step)
    if shown.step is None and shown.declared is None:
        raise NotFound(f"There is no step {step} in {pipeline}/{execution}.")
    version = shown.version()
    parts = {name: _part(shown, name, version) for name in PARTS}
    growing = {name: _made(shown, name, read) for name, read in GROWING.items()}
    return parts | growing


def _part(shown: Shown, name: str, version: str) -> str:
    """Return a fragment that changes with the step but not with its constantly growing log."""
    key = ("step's part", name, shown.arn, shown.name, version)
    return shown.here.lately(key, lambda: _made(shown, name, PARTS[name]), GOOD)


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
        "offered": _offered(shown),
        "package": place_of(shown.resource.arn)
        if shown.resource and shown.resource.kind == PACKAGE
        else None,
    }


def _offered(shown: Shown) -> list[tuple[str, str, Mapping[str, str]]]:
    """Return (label, action, variables) of the actions possible on the step now."""
    step = shown.step
    over = step is not None and shown.snapshot.is_ended
    return [("Start again from here", "again", shown.address)] if over else []


def _curves(shown: Shown) -> Mapping[str, Any]:
    found = curves(shown.here, shown.step) if shown.step else ""
    return {"curves": Markup(found)}  # made by templates, which have escaped it


def _panels(shown: Shown) -> Mapping[str, Any]:
    """Return the application's panels about this step; read in the background, as it may take
    long.
    """
    nothing: tuple[Markup, ...] = ()
    mine = of_step(application().panels, shown.name) if shown.step else []
    steps = {one.name: one for one in shown.snapshot.steps}

    def read() -> tuple[Markup, ...]:
        return read_panels(mine, shown.execution, steps)

    key = _panels_key(shown)
    return {
        "panels": shown.here.beside.get(key, shown.version(), read, nothing) if mine else nothing
    }


def _panels_key(shown: Shown) -> Hashable:
    return "step's panels", shown.arn, shown.name


def _log(shown: Shown) -> Mapping[str, Any]:
    found = (
        last_lines(shown.here, shown.address, shown.step) if shown.step and shown.step.job else ""
    )
    return {"lines": found}


def _why(shown: Shown) -> Mapping[str, Any]:
    return {"cause": shown.cause()}


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
        "tables": tuple(tables(described or asked)),
    }


def _resolved(shown: Shown) -> dict[str, Any] | None:
    declared = shown.declared
    if declared is None:
        return None
    return resolved(declared, run_values(shown))


PARTS: Mapping[str, Callable[[Shown], Mapping[str, Any]]] = {
    "head": _head,
    "why": _why,
    "time": _time,
    "attempts": _attempts,
    "trials": _trials,
    "places": _places,
    "arguments": _arguments,
}
"""Fragment → function that returns its template's values."""

GROWING: Mapping[str, Callable[[Shown], Mapping[str, Any]]] = {
    "panels": _panels,
    "curves": _curves,
    "log": _log,
}
"""Fragments that also change with the job's log."""


def stamp(account: Account, step: Step) -> Hashable:
    """Return a value that changes with the step's curves.

    Raises:
        ServiceError: AWS refuses.
    """
    job = _job(step)
    return read(account, job).version if job else None


def curves(account: Account, step: Step) -> Markup:
    """Draw the metrics of the step's training job; empty if it has no such job, or no metrics yet.

    Raises:
        ServiceError: AWS refuses.
    """
    job = _job(step)
    if not job:
        return Markup()
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


def _job(step: Step) -> str:
    """Return the name of the step's training job; empty if it has none."""
    return step.job[1] if step.job and step.job[0] == "TrainingJob" else ""
