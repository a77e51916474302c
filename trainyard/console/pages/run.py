"""The page of one execution."""

from collections.abc import Hashable

from flask import Blueprint, render_template

from trainyard.console import live_pages, run_reading
from trainyard.console.account_cache import account
from trainyard.console.app_hooks import application
from trainyard.console.run_overview import Overview

page = Blueprint("run", __name__)
PARTS = ("head", "why", "graph", "timeline", "steps", "panels", "about")
"""Fragments of the page, each with a template of that name."""


def _stamp(pipeline: str, execution: str) -> Hashable:
    return run_reading.stamp(account(), pipeline, execution)


@live_pages.page(page, "/runs/<pipeline>/<execution>", template="run.html.j2", stamp=_stamp)
def run(pipeline: str, execution: str) -> live_pages.Fragments:
    """Show the execution: its head, why it failed, graph, timeline, steps, panels."""
    here, panels = account(), application().panels

    def make() -> live_pages.Fragments:
        return fragments(run_reading.read(here, pipeline, execution, panels))

    key = ("run's page", pipeline, execution)
    return here.shared(key, _stamp(pipeline, execution), make, here.seconds)


def fragments(run: Overview) -> live_pages.Fragments:
    """Return the HTML of each of ``PARTS``."""
    return {name: render_template(f"run/{name}.html.j2", run=run) for name in PARTS}
