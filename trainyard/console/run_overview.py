"""Everything on the page of a run, computed from what was read about it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, ClassVar

from markupsafe import Markup

from trainyard.console.account_cache import Snapshot
from trainyard.console.graph import Graph, Timeline, graph, timeline
from trainyard.console.model_groups import EXECUTION, place_of
from trainyard.console.outcomes import Cost, cost, costs
from trainyard.console.step_flow import WORDS, Flow, Node, flow, links
from trainyard.plan.prices import Prices
from trainyard.runs.execution import CHECKS, Step
from trainyard.runs.job_cost import Spent, had_machines
from trainyard.runs.run_summary import model_package
from trainyard.runs.why.diagnosis import Cause


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
    missing: Sequence[str] = ()
    """Messages about data that could not be read."""


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
    spent: Mapping[str, Spent | None]
    """Step that has begun → its cost; None if not known."""

    cost: Cost
    at: datetime

    words: ClassVar[Mapping[str, str]] = WORDS

    @property
    def arn(self) -> str:
        """ARN of the execution."""
        return str(self.snapshot.described.get("PipelineExecutionArn", ""))

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
    def failed(self) -> int:
        """Number of failed steps."""
        return self.flow.counts.get("Failed", 0)

    @property
    def selected(self) -> list[str]:
        """Steps that a selective execution runs; empty for other executions."""
        chosen = self.snapshot.described.get("SelectiveExecutionConfig", {})
        return [step.get("StepName", "") for step in chosen.get("SelectedSteps", ())]

    def is_left_out(self, node: Node) -> bool:
        """Return whether a selective execution does not run this step."""
        return node.step is None and bool(self.selected) and node.name not in self.selected

    @staticmethod
    def found_violations(step: Step) -> bool:
        """Return whether a check found violations; AWS names a report only then."""
        found = (step.metadata.get(check) or {} for check in CHECKS)
        return any(one.get("ViolationReport") for one in found)

    @property
    def source(self) -> dict[str, str] | None:
        """Execution whose results a selective execution reuses."""
        chosen = self.snapshot.described.get("SelectiveExecutionConfig", {})
        return place(chosen.get("SourcePipelineExecutionArn", ""))

    @property
    def critical_titles(self) -> list[str]:
        """Titles of the steps of the critical path."""
        path = self.timeline.critical if self.timeline else ()
        return [self.flow.nodes[name].title for name in path]

    @property
    def has_waits(self) -> bool:
        """True if the timeline shows waiting."""
        bars = self.timeline.bars if self.timeline else ()
        return any(bar.waits or bar.machines is not None for bar in bars)

    def waited(self, name: str) -> float | None:
        """Return the seconds that a step waited for machines; None if it did not, or it is not
        known.
        """
        for bar in self.timeline.bars if self.timeline else ():
            if bar.node.name == name and bar.machines is not None:
                return bar.machines - bar.start
        return None

    @staticmethod
    def place(arn: str) -> dict[str, str] | None:
        """Return the variables of that execution's page."""
        return place(arn)

    @property
    def package(self) -> str | None:
        """ARN of the model package that the run registered."""
        return model_package(list(self.snapshot.steps))

    @property
    def package_place(self) -> tuple[str, str]:
        """Variables of that package's page: its group and its version."""
        return place_of(self.package or "")


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
        graph=graph(bound, links(path), path),
        spent=of_steps,
        cost=cost(of_steps),
        at=at,
    )
