"""One step of one execution, as it goes: what became of it and why, and everything it was told."""

from collections.abc import Callable, Hashable, Mapping
from datetime import UTC, datetime
from typing import Any

from flask import Blueprint, render_template
from markupsafe import Markup
from werkzeug.exceptions import NotFound

from trainyard.common.errors import ServiceError
from trainyard.console import live
from trainyard.console.account import account
from trainyard.console.application import application
from trainyard.console.curves import html as curves
from trainyard.console.logs.html import last_lines
from trainyard.console.logs.streams import chosen, streams
from trainyard.console.logs.tail import polled
from trainyard.console.panels import of_step, read_panels
from trainyard.console.registry import place_of
from trainyard.console.step.arguments import Told, public, resolved, tables
from trainyard.console.step.attempts import attempts, places, trials
from trainyard.console.step.shown import Shown
from trainyard.language.evaluation import told_by
from trainyard.plan.cost import all_of
from trainyard.plan.prices import load
from trainyard.runs.spent import JOBS, spent

page = Blueprint("step", __name__)

PACKAGE = "RegisterModel"
"""Member of the Metadata of a step that made a model package."""

GOOD = 10.0
"""Seconds for which a fragment is good while nothing is heard of the step: what lies in S3 may
change all the same."""


def _stamp(pipeline: str, execution: str, step: str) -> Hashable:
    shown = Shown(account(), pipeline, execution, step)
    return shown.version(), _grown(shown), shown.here.beside.stamp(_panels_key(shown))


def _grown(shown: Shown) -> Hashable:
    """Differs when the log of its job has grown, or what was read of the metrics in it."""
    here, step = shown.here, shown.step
    if step is None:
        return None
    try:
        stream = chosen(streams(here, step), "", "") if step.ended is None else None
        return curves.stamp(here, step), polled(here, stream) if stream else 0
    except ServiceError:  # their parts of the page say so
        return None


@live.page(page, "/runs/<pipeline>/<execution>/<step>", template="step.html.j2", stamp=_stamp)
def step(pipeline: str, execution: str, step: str) -> live.Fragments:
    """The step's parts, of which each says for itself what AWS does not let it read."""
    shown = Shown(account(), pipeline, execution, step)
    if shown.step is None and shown.declared is None:
        raise NotFound(f"There is no step {step} in {pipeline}/{execution}.")
    version = shown.version()
    parts = {name: _part(shown, name, version) for name in PARTS}
    growing = {name: _made(shown, name, read) for name, read in GROWING.items()}
    return parts | growing


def _part(shown: Shown, name: str, version: str) -> str:
    """A fragment that changes with the step and not with its log, which a job always writes."""
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
        "source": told_by(step.source) if step and step.source else None,
        "about": declared.document.get("Description") if declared else None,
        "offered": _offered(shown),
        "package": place_of(shown.made.arn) if shown.made and shown.made.kind == PACKAGE else None,
    }


def _offered(shown: Shown) -> list[tuple[str, str, Mapping[str, str]]]:
    """(words, action, what it is about) of what can be done with the step now."""
    step = shown.step
    over = step is not None and shown.snapshot.is_ended
    return [("Start again from here", "again", shown.address)] if over else []


def _curves(shown: Shown) -> Mapping[str, Any]:
    found = curves.curves(shown.here, shown.step) if shown.step else ""
    return {"curves": Markup(found)}  # made by templates, which have escaped it


def _panels(shown: Shown) -> Mapping[str, Any]:
    """What the application shows of this step; read beside the page, since it may take long."""
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
    is_tuning = shown.made is not None and shown.made.kind == "TuningJob"
    return {"trials": trials(shown.here, shown.made.name) if shown.made and is_tuning else None}


def _time(shown: Shown) -> Mapping[str, Any]:
    """What it took and cost, its earlier attempts included."""
    kind = shown.made.kind if shown.made else ""
    ran = shown.step is not None and not shown.step.source
    job = shown.description if ran and kind in JOBS else {}
    now = datetime.now(UTC)
    prices = load(shown.here.sagemaker.meta.region_name)
    last = spent(kind, job, prices, now) if job else None
    of_all = attempts(shown.here, shown.snapshot, shown.step).found if job and shown.step else ()
    before = [spent(kind, one.description, prices, now) for one in of_all[:-1]]
    return {
        "spent": last,
        "before": before,
        "usd": all_of(one.usd for one in (*before, last)) if last else None,
    }


def _places(shown: Shown) -> Mapping[str, Any]:
    told = shown.description or _resolved(shown) or {}
    job = shown.made.name if shown.made and shown.made.kind in JOBS else ""
    metadata = shown.step.metadata if shown.step else {}
    return {"places": places(shown.here, {**told, "Metadata": metadata}, job)}


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
    return resolved(declared, Told(shown.here, shown.snapshot, shown.defined, shown.arn))


PARTS: Mapping[str, Callable[[Shown], Mapping[str, Any]]] = {
    "head": _head,
    "why": _why,
    "time": _time,
    "attempts": _attempts,
    "trials": _trials,
    "places": _places,
    "arguments": _arguments,
}
"""Fragment → what its template needs."""

GROWING: Mapping[str, Callable[[Shown], Mapping[str, Any]]] = {
    "panels": _panels,
    "curves": _curves,
    "log": _log,
}
"""The fragments that change with the job's log, too."""
