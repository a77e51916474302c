"""The page of one execution: what is read of it, and what is computed from that."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any, ClassVar

from botocore.exceptions import ClientError
from flask import Blueprint, Response, render_template
from markupsafe import Markup

from trainyard.common.errors import ServiceError
from trainyard.console import live_pages
from trainyard.console.account_cache import A_DAY, Account, Snapshot, account, each
from trainyard.console.app_hooks import Panels, application, read_panels
from trainyard.console.graph import WORDS, Flow, Graph, Timeline, flow, graph, timeline
from trainyard.console.model_groups import EXECUTION
from trainyard.console.outcomes import Cost, cost, costs
from trainyard.console.pages.charts import training_charts
from trainyard.plan.prices import Prices, load
from trainyard.runs.execution import Step
from trainyard.runs.job_cost import Spent, had_machines
from trainyard.runs.run_summary import model_package
from trainyard.runs.why.diagnosis import Cause
from trainyard.runs.why.read_evidence import cause_of


def place(arn: str) -> dict[str, str] | None:
    """Return the variables of an execution's page; None if ``arn`` is not an execution's."""
    found = EXECUTION.fullmatch(arn)
    return found.groupdict() if found else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """Data about an execution beside its snapshot; unavailable ones are empty."""

    document: Mapping[str, Any] = field(default_factory=dict)
    parameters: Mapping[str, str] = field(default_factory=dict)
    jobs: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Step → description of what it is charged for (``Account.charged``)."""

    prices: Prices | None = None
    causes: Sequence[Cause] = ()
    panels: Sequence[Markup] = ()
    missing: Sequence[str] = ()  # messages about data that could not be read


@dataclass(frozen=True, kw_only=True)
class Overview:
    """Values that the templates fill in."""

    pipeline: str
    execution: str
    snapshot: Snapshot
    known: Known
    flow: Flow
    timeline: Timeline | None
    graph: Graph | None
    spent: Mapping[str, Spent | None]  # step that has begun → its cost; None if not known
    cost: Cost
    at: datetime

    words: ClassVar[Mapping[str, str]] = WORDS
    place: ClassVar = staticmethod(place)

    @property
    def title(self) -> str:
        """Name that people gave it, or pipeline and time."""
        return self.snapshot.title(self.pipeline, self.execution)

    @property
    def by(self) -> str:
        """User who started it, as far as the service reports it."""
        who = self.snapshot.described.get("CreatedBy", {})
        identity = who.get("IamIdentity", {})
        return str(who.get("UserProfileName") or identity.get("Arn", "").rpartition("/")[2])

    @property
    def offered(self) -> list[tuple[str, str, dict[str, str]]]:
        """Possible actions: (label, action, variables)."""
        about = {"pipeline": self.pipeline, "execution": self.execution}
        like = {"pipeline": self.pipeline, "like": self.execution}
        found = [("Start one like this", "start", like)]
        if self.snapshot.status in ("Failed", "Stopped"):
            found.append(("Retry", "retry", about))
        return [*found, ("Stop", "stop", about)] if self.snapshot.status == "Executing" else found

    @property
    def critical_titles(self) -> list[str]:
        """Titles of the steps of the critical path."""
        path = self.timeline.critical if self.timeline else ()
        return [self.flow.nodes[name].title for name in path]

    def waited(self, name: str) -> float | None:
        """Return the seconds that a step waited for machines; None if it did not, or it is not
        known.
        """
        for bar in self.timeline.bars if self.timeline else ():
            if bar.node.name == name and bar.machines is not None:
                return bar.machines - bar.start
        return None

    @property
    def package(self) -> str | None:
        """ARN of the model package that the run registered."""
        return model_package(list(self.snapshot.steps))


def overview(
    pipeline: str, execution: str, snapshot: Snapshot, known: Known, at: datetime
) -> Overview:
    """Compute the overview; ``at`` is the present time."""
    bound = flow(known.document, snapshot.status, snapshot.steps)
    there = {name: had_machines(job) for name, job in known.jobs.items()}
    started = snapshot.described.get("CreationTime") or at
    shown = timeline(bound, started, at, there)
    path = shown.critical if shown else ()
    of_steps = costs(snapshot.steps, known.jobs, known.prices, at)
    return Overview(
        pipeline=pipeline,
        execution=execution,
        snapshot=snapshot,
        known=known,
        flow=bound,
        timeline=shown,
        graph=graph(bound, set(pairwise(path)), path),
        spent=of_steps,
        cost=cost(of_steps),
        at=at,
    )


EXPLAINED = 5
"""Number of failed steps whose cause is searched; the others have theirs on their own pages."""


def read_run(here: Account, pipeline: str, execution: str, panels: Panels) -> Overview:
    """Read the page's data; causes and panels may come a moment later. Where AWS refuses a part,
    the page says so.
    """
    snapshot, one = here.snapshot(pipeline, execution), here.execution(pipeline, execution)
    steps, region, missing = snapshot.steps, one.arn.split(":")[3], []

    def part(instead: Any, read: Callable[[], Any]) -> Any:
        try:
            return read()
        except (ServiceError, ClientError) as error:
            missing.append(str(error))
            return instead

    def unchanging(what: str, read: Callable[[], Any]) -> Any:
        return part({}, lambda: here.lately((what, one.arn), read, A_DAY))

    def cause(step: Step) -> Cause | None:
        key = ("cause", one.arn, step.name, step.started, step.attempts)
        return part(None, lambda: here.later(key, lambda: cause_of(one, step), None))

    def shown_panels() -> tuple[Markup, ...]:
        version = tuple((step.name, step.status, step.attempts) for step in steps)
        found = {step.name: step for step in steps}
        read = lambda: read_panels(panels, one, found)  # noqa: E731
        return here.later(("panels", one.arn, version), read, ())

    charged = [step for step in steps if step.charged]
    jobs = part([], lambda: each(here.charged, charged))
    failed = [step for step in steps if step.status == "Failed"][:EXPLAINED]
    known = Known(
        document=unchanging("definition", one.definition),
        parameters=unchanging("parameters", one.parameters),
        jobs={step.name: job for step, job in zip(charged, jobs, strict=False)},
        prices=here.lately(("prices", region), lambda: load(region), A_DAY),
        causes=[found for step in failed if (found := cause(step)) is not None],
        panels=part((), shown_panels),
        missing=missing,
    )
    return overview(pipeline, execution, snapshot, known, datetime.now(UTC))


page = Blueprint("run", __name__)
PARTS = ("head", "why", "panels", "graph", "timeline", "steps", "about")
"""Fragments of the page, each with a template of that name."""

TRAININGS = 4  # most trainings whose first plot, the loss, is drawn


@page.get("/runs/<pipeline>/<execution>")
def run(pipeline: str, execution: str) -> Response:
    """Show the execution: why it failed, curves, panels, graph, timeline, steps."""
    here, panels = account(), [one for one in application().panels if not one.in_file]
    found = read_run(here, pipeline, execution, panels)
    parts = {**fragments(found), "curves": _curves(here, found.snapshot)}
    where = {"pipeline": pipeline, "execution": execution}
    return live_pages.answer("run.html.j2", parts, goes_on=not found.snapshot.is_ended, **where)


def _curves(here: Account, snapshot: Snapshot) -> str:
    """Draw the losses of the run's trainings."""
    trained = [(one.title, one.job[1]) for one in snapshot.steps
               if one.job and one.job[0] == "TrainingJob"]  # fmt: skip
    try:
        drawn = [(title, training_charts(here, job, 1)[0]) for title, job in trained[:TRAININGS]]
    except ServiceError as error:
        return render_template("step/refused.html.j2", part="curves", said=str(error))
    return render_template("run/curves.html.j2", drawn=[one for one in drawn if one[1]])


def fragments(run: Overview) -> live_pages.Fragments:
    """Return the HTML of each of ``PARTS``."""
    return {name: render_template(f"run/{name}.html.j2", run=run) for name in PARTS}
