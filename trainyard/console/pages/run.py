"""The page of one execution, and the reading of its data, each once while it stays the same."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any

from botocore.exceptions import ClientError
from flask import Blueprint, Response, render_template
from markupsafe import Markup

from trainyard.common.errors import ServiceError
from trainyard.console import live_pages
from trainyard.console.account_cache import A_DAY, Account, Snapshot, account
from trainyard.console.app_hooks import Panels, application, of_run, read_panels
from trainyard.console.pages.charts import training_charts
from trainyard.console.run_overview import Known, Overview, overview
from trainyard.plan.prices import Prices, load
from trainyard.runs.execution import Step
from trainyard.runs.why.diagnosis import Cause
from trainyard.runs.why.read_evidence import cause_of

EXPLAINED = 5
"""Number of failed steps whose cause is searched; the others have theirs on their own pages."""


def read_run(account: Account, pipeline: str, execution: str, panels: Panels) -> Overview:
    """Read the page's data; causes and panels may come a moment later.

    Raises:
        ServiceError: the execution does not exist, or AWS cannot be reached.
    """
    snapshot = account.snapshot(pipeline, execution)
    return overview(
        pipeline,
        execution,
        snapshot,
        _Reading(account, pipeline, execution, snapshot).known(panels),
        datetime.now(UTC),
    )


class _Reading:
    """Reads one execution; refusals are recorded as messages, and the rest is read."""

    def __init__(self, account: Account, pipeline: str, execution: str, snapshot: Snapshot) -> None:
        self._account, self._pipeline, self._snapshot = account, pipeline, snapshot
        self._one = account.execution(pipeline, execution)
        self._missing: list[str] = []

    def known(self, panels: Panels) -> Known:
        """Return all data about the execution."""
        document = self._try({}, self._lately, "definition", self._one.definition)
        parameters = self._try({}, self._lately, "parameters", self._one.parameters)
        return Known(
            document=document,
            parameters=parameters,
            jobs=self._try({}, _jobs, self._account, self._snapshot),
            prices=self._prices,
            causes=[
                found
                for step in _failed(self._snapshot)
                if (found := self._try(None, self._cause, step)) is not None
            ],
            panels=self._try((), self._panels, panels),
            missing=tuple(self._missing),
        )

    def _try(self, instead: Any, read: Callable[..., Any], *how: Any) -> Any:
        try:
            return read(*how)
        except (ServiceError, ClientError) as error:
            self._missing.append(str(error))
            return instead

    def _lately(self, what: str, read: Callable[[], Any]) -> Any:
        return self._account.lately((what, self._one.arn), read, A_DAY)

    def _cause(self, step: Step) -> Cause | None:
        key = ("cause", self._one.arn, step.name, step.started, step.attempts)
        return self._account.later(key, lambda: cause_of(self._one, step), None)

    @property
    def _prices(self) -> Prices:
        region = self._one.arn.split(":")[3]
        return self._account.lately(("prices", region), lambda: load(region), A_DAY)

    def _panels(self, panels: Panels) -> tuple[Markup, ...]:
        steps = {step.name: step for step in self._snapshot.steps}

        def find() -> tuple[Markup, ...]:
            return read_panels(panels, self._one, steps)

        version = tuple((step.name, step.status, step.attempts) for step in self._snapshot.steps)
        return self._account.later(("panels", self._one.arn, version), find, ())


def _failed(snapshot: Snapshot) -> list[Step]:
    """Return the failed steps that are explained: the first of them."""
    return [step for step in snapshot.steps if step.status == "Failed"][:EXPLAINED]


def _jobs(account: Account, snapshot: Snapshot) -> dict[str, dict[str, Any]]:
    """Return step → description of what it is charged for; several are requested at a time."""
    found = {step.name: step for step in snapshot.steps if step.charged}
    with ThreadPoolExecutor(8) as threads:
        return dict(zip(found, threads.map(account.charged, found.values()), strict=True))


page = Blueprint("run", __name__)
PARTS = ("head", "why", "panels", "graph", "timeline", "steps", "about")
"""Fragments of the page, each with a template of that name."""

TRAININGS = 4
"""Most trainings whose first plot, the loss, is drawn."""


def _trainings(snapshot: Snapshot) -> list[tuple[str, str]]:
    """Return (title, job) of the first steps that train."""
    jobs = [(step.title, *step.job) for step in snapshot.steps if step.job]
    return [(title, job) for title, kind, job in jobs if kind == "TrainingJob"][:TRAININGS]


@page.get("/runs/<pipeline>/<execution>")
def run(pipeline: str, execution: str) -> Response:
    """Show the execution: why it failed, curves, panels, graph, timeline, steps."""
    here, panels = account(), of_run(application().panels, in_file=False)
    found = read_run(here, pipeline, execution, panels)
    parts = {**fragments(found), "curves": _curves(here, found.snapshot)}
    where = {"pipeline": pipeline, "execution": execution}
    return live_pages.answer("run.html.j2", parts, goes_on=not found.snapshot.is_ended, **where)


def _curves(here: Account, snapshot: Snapshot) -> str:
    """Draw the losses of the run's trainings."""
    try:
        drawn = [(title, training_charts(here, job, 1)[0]) for title, job in _trainings(snapshot)]
    except ServiceError as error:
        return render_template("step/refused.html.j2", part="curves", said=str(error))
    return render_template("run/curves.html.j2", drawn=[one for one in drawn if one[1]])


def fragments(run: Overview) -> live_pages.Fragments:
    """Return the HTML of each of ``PARTS``."""
    return {name: render_template(f"run/{name}.html.j2", run=run) for name in PARTS}
