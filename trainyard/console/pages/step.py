"""The page of one step of an execution: its result, the reason for a failure, and its arguments."""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from flask import Blueprint, Response, render_template
from markupsafe import Markup
from werkzeug.exceptions import NotFound

from trainyard.common.errors import ServiceError
from trainyard.console import account_cache
from trainyard.console.account_cache import Account, get_account
from trainyard.console.app_hooks import get_application, render_panels
from trainyard.console.log_lines import list_step_streams
from trainyard.console.metric_curves import read_metrics
from trainyard.console.outcomes import split_package_arn
from trainyard.console.pages.charts import Curve, render_training_charts
from trainyard.console.pages.log import render_last_lines
from trainyard.console.shown_step import (
    StepView,
    list_attempts,
    list_trials,
    list_used_uris,
    make_run_values,
    redact_value,
    resolve_entry,
)
from trainyard.language.evaluation import parse_arn_variables
from trainyard.plan.prices import load_prices
from trainyard.plan.run_cost import sum_known
from trainyard.runs.execution import TUNING, Step
from trainyard.runs.job_cost import JOBS, compute_job_cost

page = Blueprint("step", __name__)

PACKAGE = "RegisterModel"  # key in the Metadata of a step that registered a model package
MOST = 24  # maximum plots drawn; the values of other metrics are in the table


@page.get("/runs/<pipeline>/<execution>/<step>")
def show_step(pipeline: str, execution: str, step: str) -> Response:
    """Show the parts of the step's page; a part that AWS refuses shows the error in its place."""
    view = StepView(get_account(), pipeline, execution, step)
    if view.step is None and view.step_definition is None:
        raise NotFound(f"There is no step {step} in {pipeline}/{execution}.")
    parts = {name: _render_part(view, name, read) for name, read in PARTS.items()}
    goes_on = not (view.snapshot.is_ended or (view.step and view.step.ended))
    return account_cache.make_page_response("step.html.j2", parts, goes_on=goes_on, **view.address)


def _render_part(view: StepView, name: str, read: Callable[[StepView], Mapping[str, Any]]) -> str:
    """Return the HTML of one part; if AWS refuses the data, the HTML of the error."""
    try:
        content = read(view)
    except ServiceError as error:
        return render_template("step/refused.html.j2", part=name, said=str(error))
    return render_template(f"step/{name}.html.j2", **view.address, shown=view, **content)


def _read_head(view: StepView) -> Mapping[str, Any]:
    """Return the source of a reused result, the description of the step, and its package."""
    definition, step = view.step_definition, view.step
    return {
        "source": parse_arn_variables(step.source) if step and step.source else None,
        "about": definition.document.get("Description") if definition else None,
        "package": split_package_arn(view.resource.arn)
        if view.resource and view.resource.kind == PACKAGE
        else None,
    }


def _read_panels(view: StepView) -> Mapping[str, Any]:
    """Return the application's panels about this step.

    They are read in the background, because that may take long; there are none until it is done.
    """
    nothing: tuple[Markup, ...] = ()
    step_panels = [
        panel for panel in get_application().panels if view.step and view.name in panel.steps
    ]
    steps = {step.name: step for step in view.snapshot.steps}

    def read() -> tuple[Markup, ...]:
        return render_panels(step_panels, view.execution, steps)

    key = ("step's panels", view.arn, view.name, repr(view.step))
    return {
        "panels": view.account.read_in_background(key, read, nothing) if step_panels else nothing
    }


def _read_attempts(view: StepView) -> Mapping[str, Any]:
    if view.step is None:
        return {"attempts": None}
    logged_jobs = {stream.job for stream in list_step_streams(view.account, view.step)}
    return {
        "attempts": list_attempts(view.account, view.snapshot, view.step),
        "logged": logged_jobs,
    }


def _read_trials(view: StepView) -> Mapping[str, Any]:
    is_tuning = view.resource is not None and view.resource.kind == "TuningJob"
    job_trials = (
        list_trials(view.account, view.resource.name) if view.resource and is_tuning else None
    )
    return {"trials": job_trials}


def _read_time(view: StepView) -> Mapping[str, Any]:
    """Return the duration and the cost of the step, including its earlier attempts."""
    kind = view.resource.kind if view.resource else ""
    ran = view.step is not None and not view.step.source
    job = view.description if ran and kind in JOBS else {}
    if ran and view.step and view.step.tuning_job:
        kind, job = TUNING, view.account.describe_charged(view.step)
    now = datetime.now(UTC)
    prices = load_prices(view.account.sagemaker.meta.region_name)
    last = compute_job_cost(kind, job, prices, now) if job else None
    of_all = (
        list_attempts(view.account, view.snapshot, view.step).found
        if kind in JOBS and job and view.step
        else ()
    )
    before = [compute_job_cost(kind, attempt.description, prices, now) for attempt in of_all[:-1]]
    return {
        "spent": last,
        "before": before,
        "usd": sum_known(spending.usd for spending in (*before, last)) if last else None,
    }


def _read_places(view: StepView) -> Mapping[str, Any]:
    source = view.description or _resolve_step(view) or {}
    job = view.resource.name if view.resource and view.resource.kind in JOBS else ""
    metadata = view.step.metadata if view.step else {}
    return {"places": list_used_uris({**source, "Metadata": metadata}, job)}


def _read_arguments(view: StepView) -> Mapping[str, Any]:
    arguments, description = _resolve_step(view), redact_value(view.description)
    return {
        "asked": arguments,
        "described": description,
        "metadata": redact_value(dict(view.step.metadata)) if view.step else {},
    }


def _resolve_step(view: StepView) -> dict[str, Any] | None:
    """Return the step's entry in the definition with values filled in; None if it is not known."""
    definition = view.step_definition
    if definition is None:
        return None
    return resolve_entry(definition, make_run_values(view))


PARTS: Mapping[str, Callable[[StepView], Mapping[str, Any]]] = {
    "head": _read_head,
    "why": lambda view: {"cause": view.find_cause()},
    "time": _read_time,
    "attempts": _read_attempts,
    "trials": _read_trials,
    "places": _read_places,
    "arguments": _read_arguments,
    "panels": _read_panels,
    "curves": lambda view: {"curves": render_curves(view.account, view.step) if view.step else ""},
    "log": lambda view: {
        "lines": render_last_lines(view.account, view.address, view.step)
        if view.step and view.step.job
        else ""
    },
}
"""Mapping of a part of the page to the function that returns its template's values."""


def render_curves(account: Account, step: Step) -> Markup:
    """Return the plots and the table of the training job's metrics; empty if it has none."""
    if step.job is None or step.job[0] != "TrainingJob":
        return Markup()
    job = step.job[1]
    metrics = read_metrics(account, job)
    if not metrics.samples and not metrics.slow:
        return Markup()
    plots, more = render_training_charts(account, job, MOST)
    rows = [Curve(name, job, name, metrics) for name in list(metrics.samples)]
    until = None if metrics.until is None else datetime.fromtimestamp(metrics.until / 1000, UTC)
    html = render_template(
        "curves.html.j2",
        **{"plots": Markup("").join(plots), "rows": rows, "metrics": metrics},
        **{"until": until, "more": more},
    )
    # Not an injection: a template rendered this HTML, and escaped its values.
    return Markup(html)
