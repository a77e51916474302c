"""The page of one execution."""

from collections.abc import Hashable

from flask import Blueprint, render_template

from trainyard.common.errors import ServiceError
from trainyard.console import live_pages, run_reading
from trainyard.console.account_cache import Account, account
from trainyard.console.app_hooks import application
from trainyard.console.metric_curves import read
from trainyard.console.pages.charts import training_charts
from trainyard.console.panels import of_run
from trainyard.console.run_overview import Overview

page = Blueprint("run", __name__)
PARTS = ("head", "why", "panels", "graph", "timeline", "steps", "about")
"""Fragments of the page, each with a template of that name."""

TRAININGS = 4
"""Most trainings whose first plot, the loss, is drawn."""


def _stamp(pipeline: str, execution: str) -> Hashable:
    here = account()
    try:
        grown = [read(here, job).version for _, job in _trainings(here, pipeline, execution)]
    except ServiceError:  # the other parts stand without curves
        grown = []
    return run_reading.stamp(here, pipeline, execution), tuple(grown)


def _trainings(here: Account, pipeline: str, execution: str) -> list[tuple[str, str]]:
    """Return (title, job) of the first steps that train."""
    steps = here.snapshot(pipeline, execution).steps
    jobs = [(step.title, *step.job) for step in steps if step.job]
    return [(title, job) for title, kind, job in jobs if kind == "TrainingJob"][:TRAININGS]


@live_pages.page(page, "/runs/<pipeline>/<execution>", template="run.html.j2", stamp=_stamp)
def run(pipeline: str, execution: str) -> live_pages.Fragments:
    """Show the execution: why it failed, curves, panels, graph, timeline, steps."""
    here, panels = account(), of_run(application().panels, in_file=False)

    def make() -> live_pages.Fragments:
        found = fragments(run_reading.read(here, pipeline, execution, panels))
        return {**found, "curves": _curves(here, pipeline, execution)}

    key = ("run's page", pipeline, execution)
    return here.shared(key, _stamp(pipeline, execution), make, here.seconds)


def _curves(here: Account, pipeline: str, execution: str) -> str:
    """Draw the losses of the run's trainings."""
    try:
        drawn = [
            (title, training_charts(here, job, 1)[0])
            for title, job in _trainings(here, pipeline, execution)
        ]
    except ServiceError as error:
        return render_template("step/refused.html.j2", part="curves", said=str(error))
    return render_template("run/curves.html.j2", drawn=[one for one in drawn if one[1]])


def fragments(run: Overview) -> live_pages.Fragments:
    """Return the HTML of each of ``PARTS``."""
    return {name: render_template(f"run/{name}.html.j2", run=run) for name in PARTS}
