"""The page of one execution of a pipeline: the data that it reads, and the values it computes."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any, ClassVar

from botocore.exceptions import ClientError
from flask import Blueprint, Response, render_template
from markupsafe import Markup

from trainyard.common.errors import ServiceError
from trainyard.console import account_cache
from trainyard.console.account_cache import A_DAY, Account, Snapshot, get_account, read_concurrently
from trainyard.console.app_hooks import Panels, get_application, render_panels
from trainyard.console.graph import (
    WORDS,
    Flow,
    Graph,
    Timeline,
    build_flow,
    build_timeline,
    draw_graph,
)
from trainyard.console.outcomes import EXECUTION, Cost, compute_step_costs, sum_costs
from trainyard.console.pages.charts import render_training_charts
from trainyard.plan.prices import Prices, load_prices
from trainyard.runs.execution import Step
from trainyard.runs.job_cost import Spent, find_machine_start
from trainyard.runs.run_display import find_model_package
from trainyard.runs.why.diagnosis import Cause
from trainyard.runs.why.read_evidence import find_cause


def execution_url_variables(arn: str) -> dict[str, str] | None:
    """Return the URL variables of an execution's page; None if ``arn`` names no execution."""
    match = EXECUTION.fullmatch(arn)
    return match.groupdict() if match else None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunData:
    """Data about an execution in addition to its snapshot; a part that is unavailable is empty."""

    document: Mapping[str, Any] = field(default_factory=dict)
    parameters: Mapping[str, str] = field(default_factory=dict)
    jobs: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Mapping of step to what ``Account.describe_charged`` returns for it."""

    prices: Prices | None = None
    causes: Sequence[Cause] = ()
    panels: Sequence[Markup] = ()
    missing: Sequence[str] = ()  # messages about data that could not be read


@dataclass(frozen=True, kw_only=True)
class Overview:
    """Values that the templates of the page fill in."""

    pipeline: str
    execution: str
    snapshot: Snapshot
    known: RunData
    flow: Flow
    timeline: Timeline | None
    graph: Graph | None
    spent: Mapping[str, Spent | None]  # started step to its cost; None if the cost is not known
    cost: Cost
    at: datetime

    words: ClassVar[Mapping[str, str]] = WORDS
    execution_url_variables: ClassVar = staticmethod(execution_url_variables)

    @property
    def title(self) -> str:
        """Name that the user gave the execution; without one, the pipeline's name and the time."""
        return self.snapshot.format_title(self.pipeline, self.execution)

    @property
    def started_by(self) -> str:
        """User who started the execution; empty if the service does not report one."""
        user = self.snapshot.described.get("CreatedBy", {})
        identity = user.get("IamIdentity", {})
        return str(user.get("UserProfileName") or identity.get("Arn", "").rpartition("/")[2])

    @property
    def offered_actions(self) -> list[tuple[str, str, dict[str, str]]]:
        """Actions that the page offers: (label, name of the action, URL variables)."""
        about = {"pipeline": self.pipeline, "execution": self.execution}
        actions = [("Start another", "start", {"pipeline": self.pipeline})]
        if self.snapshot.status in ("Failed", "Stopped"):
            actions.append(("Retry", "retry", about))
        return (
            [*actions, ("Stop", "stop", about)] if self.snapshot.status == "Executing" else actions
        )

    @property
    def critical_titles(self) -> list[str]:
        """Titles of the steps on the critical path."""
        path = self.timeline.critical if self.timeline else ()
        return [self.flow.nodes[name].title for name in path]

    def get_wait_seconds(self, name: str) -> float | None:
        """Return the seconds that a step waited for machines.

        Return None if it did not wait, or if the time is not known.
        """
        for bar in self.timeline.bars if self.timeline else ():
            if bar.node.name == name and bar.machines is not None:
                return bar.machines - bar.start
        return None

    @property
    def package_arn(self) -> str | None:
        """ARN of the model package that the execution registered; None if it registered none."""
        return find_model_package(list(self.snapshot.steps))


def build_overview(
    pipeline: str, execution: str, snapshot: Snapshot, run_data: RunData, now: datetime
) -> Overview:
    """Compute the values of the page from what was read; ``now`` is the current time."""
    bound = build_flow(run_data.document, snapshot.status, snapshot.steps)
    machine_times = {name: find_machine_start(job) for name, job in run_data.jobs.items()}
    start_time = snapshot.described.get("CreationTime") or now
    run_timeline = build_timeline(bound, start_time, now, machine_times)
    path = run_timeline.critical if run_timeline else ()
    of_steps = compute_step_costs(snapshot.steps, run_data.jobs, run_data.prices, now)
    return Overview(
        pipeline=pipeline,
        execution=execution,
        snapshot=snapshot,
        known=run_data,
        flow=bound,
        timeline=run_timeline,
        graph=draw_graph(bound, set(pairwise(path)), path),
        spent=of_steps,
        cost=sum_costs(of_steps),
        at=now,
    )


EXPLAINED_STEPS = 5
"""Maximum number of failed steps whose cause this page shows; a step's own page shows its cause."""


def read_run(aws: Account, pipeline: str, execution: str, panels: Panels) -> Overview:
    """Read the data of the page, and compute its values.

    Causes and panels are read in the background, so a later reload may show them first. A part that
    AWS refuses is left empty, and the error is added to ``RunData.missing``, which the page shows.
    """
    snapshot, run_execution = (
        aws.read_snapshot(pipeline, execution),
        aws.find_execution(pipeline, execution),
    )
    steps, region, missing = snapshot.steps, run_execution.arn.split(":")[3], []

    def read_part(instead: Any, read: Callable[[], Any]) -> Any:
        """Return ``read()``, or ``instead`` if AWS refuses, whose error is added to ``missing``."""
        try:
            return read()
        except (ServiceError, ClientError) as error:
            missing.append(str(error))
            return instead

    def read_unchanging(kind: str, read: Callable[[], Any]) -> Any:
        """Return what ``read`` returns, cached for a day; {} if AWS refuses."""
        return read_part({}, lambda: aws.read_cached((kind, run_execution.arn), read, A_DAY))

    def read_cause(step: Step) -> Cause | None:
        """Return why the step failed; None if that is not known yet, or if AWS refuses."""
        key = ("cause", run_execution.arn, step.name, step.started, step.attempts)
        return read_part(
            None, lambda: aws.read_in_background(key, lambda: find_cause(run_execution, step), None)
        )

    def read_shown_panels() -> tuple[Markup, ...]:
        version = tuple((step.name, step.status, step.attempts) for step in steps)
        steps_by_name = {step.name: step for step in steps}
        read = lambda: render_panels(panels, run_execution, steps_by_name)  # noqa: E731
        return aws.read_in_background(("panels", run_execution.arn, version), read, ())

    charged_steps = [step for step in steps if step.charged_job]
    jobs = read_part([], lambda: read_concurrently(aws.describe_charged, charged_steps))
    failed_steps = [step for step in steps if step.status == "Failed"][:EXPLAINED_STEPS]
    run_data = RunData(
        document=read_unchanging("definition", run_execution.read_definition),
        parameters=read_unchanging("parameters", run_execution.read_parameters),
        # Not strict: if AWS refuses the descriptions, ``jobs`` is empty.
        jobs={step.name: job for step, job in zip(charged_steps, jobs, strict=False)},
        prices=aws.read_cached(("prices", region), lambda: load_prices(region), A_DAY),
        causes=[
            step_cause for step in failed_steps if (step_cause := read_cause(step)) is not None
        ],
        panels=read_part((), read_shown_panels),
        missing=missing,
    )
    return build_overview(pipeline, execution, snapshot, run_data, datetime.now(UTC))


page = Blueprint("run", __name__)
PARTS = ("head", "why", "panels", "graph", "timeline", "steps", "about")
"""Fragments of the page; each is rendered from the template of the same name."""

TRAININGS = 4  # maximum training jobs whose first plot, the loss, is drawn


@page.get("/runs/<pipeline>/<execution>")
def show_run(pipeline: str, execution: str) -> Response:
    """Show the execution: why it failed, loss curves, panels, graph, timeline and steps."""
    aws, panels = (
        get_account(),
        [panel for panel in get_application().panels if not panel.in_file],
    )
    run_overview = read_run(aws, pipeline, execution, panels)
    parts = {**render_fragments(run_overview), "curves": _render_curves(aws, run_overview.snapshot)}
    address = {"pipeline": pipeline, "execution": execution}
    return account_cache.make_page_response(
        "run.html.j2", parts, goes_on=not run_overview.snapshot.is_ended, **address
    )


def _render_curves(aws: Account, snapshot: Snapshot) -> str:
    """Return the HTML of the loss curves of the execution's first ``TRAININGS`` training jobs."""
    trainings = [(step.title, step.job[1]) for step in snapshot.steps
               if step.job and step.job[0] == "TrainingJob"]  # fmt: skip
    try:
        charts = [
            (title, render_training_charts(aws, job, 1)[0]) for title, job in trainings[:TRAININGS]
        ]
    except ServiceError as error:
        return render_template("step/refused.html.j2", part="curves", said=str(error))
    return render_template("run/curves.html.j2", drawn=[chart for chart in charts if chart[1]])


def render_fragments(run: Overview) -> account_cache.Fragments:
    """Return a mapping of each name in ``PARTS`` to its HTML."""
    return {name: render_template(f"run/{name}.html.j2", run=run) for name in PARTS}
