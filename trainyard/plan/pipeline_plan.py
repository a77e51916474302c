"""A plan: what an upsert would change, what the next run would do, and what that may cost.

"Run" means an execution of the pipeline. To the plan that ``create_plan`` creates, an application
adds what only it knows about its pipelines: drift from its records, its budget, and what each
training job starts from.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from functools import partial
from types import MappingProxyType
from typing import Any, Literal

from botocore.exceptions import ClientError

from trainyard.aws_clients import read_error_code
from trainyard.language.evaluation import UnstartedScope, evaluate_value
from trainyard.language.expressions import ExpressionError, resolve_parameters
from trainyard.plan.cache_prediction import (
    MOST,
    History,
    Outcome,
    Run,
    list_objects,
    predict_outcomes,
)
from trainyard.plan.definition_diff import CODE, Diff, diff_definitions, index_steps
from trainyard.plan.deployed_pipeline import DeployedPipeline, State
from trainyard.plan.prices import Prices
from trainyard.plan.run_cost import Cost, Foresight, Total, Verdict, compute_total, estimate_costs

# Find data that was written after the run whose result the cache reuses.
#
# The cache compares a step's arguments, which contain only the prefixes of its inputs and outputs.
# The objects under them may have changed since the step read or wrote them. Deleted objects are not
# found, because S3's listing does not show them.

FIX = "put new data under a new prefix, or turn the step's cache off"
FIX_OUTPUT = "put Execution.PipelineExecutionId into its prefix, or turn the step's cache off"


@dataclass(frozen=True, slots=True, kw_only=True)
class Overwritten:
    """An input or output of a cached step that changed after the step had read or written it."""

    step: str
    uri: str
    run: str
    """ID of the run in which the step read or wrote it."""

    is_output: bool

    fix: str
    """Advice on what to do about it."""

    count: int = 0
    """Number of objects that were written since."""

    newest: str = ""
    """Key of the newest object."""

    when: datetime | None = None
    """Time at which the newest object was written."""

    looked_at: int = 0
    """Number of objects that were listed."""

    list_error: str = ""
    """Error code if the objects could not be listed, so that ``count`` is not known; else empty."""

    def __str__(self) -> str:
        verb = "made" if self.is_output else "read"
        if self.list_error:
            return (
                f"{self.step} is cached, and it is not known whether {self.uri} is still what run "
                f"{self.run} {verb}: it cannot be listed ({self.list_error})"
            )
        total = f"{self.looked_at:,}" if self.looked_at < MOST else f"the first {MOST:,}"
        effect = (
            "the next steps read those, because AWS does not check the result that it reuses (the "
            "emulator runs the step again if the bytes differ)"
            if self.is_output
            else "the run will not see them"
        )
        return (
            f"{self.step} is cached, but {self.count:,} of {total} objects under {self.uri} were "
            f"written after run {self.run} {verb} them ({self.newest} at "
            f"{self.when:%Y-%m-%d %H:%M} UTC): {effect}; {self.fix}"
        )


def find_overwritten(
    s3: Any, document: Mapping[str, Any], outcomes: Sequence[Outcome], fix: str = FIX
) -> list[Overwritten]:
    """Return the inputs and outputs of cached steps that changed, or that cannot be listed.

    Parameters have their default values. ``fix`` is the advice on what to do about an input.
    """
    everything, defaults = index_steps(document), resolve_parameters(document, {})
    results = []
    for outcome in outcomes:
        if outcome.answer == "cached" and (run := outcome.source):
            for uri in dict.fromkeys(_iter_inputs(everything[outcome.step], defaults)):
                results.append(_count_newer_objects(s3, outcome.step, run, uri, fix))
            for uri in outcome.uris:
                results.append(
                    _count_newer_objects(s3, outcome.step, run, uri, FIX_OUTPUT, is_output=True)
                )
    return [item for item in results if item.count or item.list_error]


def _iter_inputs(step: Mapping[str, Any], defaults: Mapping[str, Any]) -> Iterator[str]:
    """Iterate over the URIs of a step's inputs that people may overwrite.

    These are not outputs of other steps, and not code in folders that are named by their content.
    """
    arguments = step.get("Arguments") or {}
    sources = [
        processing_input.get("S3Input")
        for processing_input in arguments.get("ProcessingInputs") or ()
    ]
    sources += [
        (channel.get("DataSource") or {}).get("S3DataSource")
        for channel in arguments.get("InputDataConfig") or ()
    ]
    for source in sources:
        try:
            uri = evaluate_value((source or {}).get("S3Uri"), UnstartedScope(defaults))
        except ExpressionError:
            # The definition has a function that is not known here.
            continue
        if isinstance(uri, str) and uri.startswith("s3://") and not CODE.match(uri):
            yield uri


def _count_newer_objects(
    s3: Any, step: str, run: Run, uri: str, fix: str, *, is_output: bool = False
) -> Overwritten:
    """Count the objects under ``uri`` that were written after the step read or wrote them."""
    # Objects of an input count if they were written after the step's start, when it read them;
    # those of an output if they were written after its end, because the step wrote it before.
    then = run.steps[step].end_time if is_output else run.steps[step].start_time
    make = partial(Overwritten, step=step, uri=uri, run=run.id, fix=fix, is_output=is_output)
    try:
        objects = list_objects(s3, uri)
    except ClientError as error:
        return make(list_error=read_error_code(error))
    since = [item for item in objects if item["LastModified"] > then]
    newest = max(since, key=lambda item: item["LastModified"], default=None)
    return make(
        count=len(since),
        newest=newest["Key"] if newest else "",
        when=newest["LastModified"] if newest else None,
        looked_at=len(objects),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Drift:
    """Whether the deployed pipeline differs from the states that upserts recorded."""

    kind: Literal["none", "unknown", "edited", "interrupted"]
    """none: it is the recorded state. unknown: no state was ever recorded. edited: it differs from
    every recorded state. interrupted: it differs, and an upsert has the lock, so it is running or
    was interrupted."""

    diff: Diff = Diff()
    """Differences between the last recorded state and the deployed one."""

    by: str = ""
    """Author of the last change, or holder of the lock."""

    since: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The content of a plan."""

    target: State
    region: str
    current: DeployedPipeline | None
    diff: Diff
    outcomes: tuple[Outcome, ...]
    costs: tuple[Cost, ...]
    total: Total
    prices: Prices
    created_at: datetime
    overwritten: tuple[Overwritten, ...] = ()
    """Data that has changed although the cache considers it unchanged."""

    drift: Drift = Drift(kind="none")
    begins: Mapping[str, str] = field(default_factory=dict)
    """Mapping of a step to what its training job starts from, in words."""

    remarks: tuple[str, ...] = ()
    """Further remarks on the next run, one line each."""

    foresight: Foresight = field(default_factory=dict)
    """Predictions of the time that steps take."""

    budget: Verdict = Verdict(True)

    def as_json(self) -> dict[str, Any]:
        """Return the plan as JSON types."""
        current, drift = self.current, asdict(self.drift)
        members = ("step", "type", "answer", "why", "when")
        steps = [
            {member: getattr(outcome, member) for member in members}
            | {"source": outcome.source.arn if outcome.source else None}
            for outcome in self.outcomes
        ]
        return {
            "pipeline": self.target.name,
            "region": self.region,
            "made": self.created_at.isoformat(),
            "wanted": self.target.as_json() | {"fingerprint": self.target.fingerprint},
            "deployed": current
            and current.state.as_json() | {"fingerprint": current.state.fingerprint},
            "diff": asdict(self.diff),
            "drift": drift | {"since": self.drift.since and self.drift.since.isoformat()},
            "steps": steps,
            "begins": dict(self.begins),
            "foreseen": {name: asdict(prediction) for name, prediction in self.foresight.items()},
            "cost": {"steps": [asdict(cost) for cost in self.costs], "total": asdict(self.total)},
            "prices": {"region": self.prices.region, "date": self.prices.date},
            "budget": asdict(self.budget),
            "overwritten": [str(item) for item in self.overwritten],
        }


def create_plan(
    target: State,
    current: DeployedPipeline | None,
    history: History,
    prices: Prices,
    parameters: Mapping[str, str] = MappingProxyType({}),
    note: Callable[[str, str], str] = lambda old, new: "",
    foresee: Callable[[Mapping[str, Any]], Foresight] = lambda document: {},
) -> Plan:
    """Create the plan of the changes from ``current`` to ``target``, the next run, and its cost.

    Args:
        target: state that an upsert would set.
        current: the deployed pipeline; None if it does not exist.
        history: its earlier executions.
        prices: prices of the region.
        parameters: parameters with which the next run starts; the others have their defaults.
        note: returns a remark on a folder of code that changes from one URI to another.
        foresee: returns predictions for the steps of a definition, in which the parameters of the
            next run are the defaults.
    """
    now, document = datetime.now(UTC), apply_parameters(target.document, parameters)
    outcomes = predict_outcomes(document, target.name, history, now)
    foresight = foresee(document)
    costs = estimate_costs(document, outcomes, history, prices, foresight)
    return Plan(
        target=target,
        region=prices.region,
        current=current,
        diff=diff_definitions(current.state if current else None, target, note),
        outcomes=tuple(outcomes),
        costs=tuple(costs),
        total=compute_total(document, costs),
        prices=prices,
        created_at=now,
        foresight=foresight,
    )


def apply_parameters(document: Mapping[str, Any], parameters: Mapping[str, str]) -> dict[str, Any]:
    """Return the definition with the values in ``parameters`` as defaults of its parameters."""
    parsed_values = resolve_parameters(document, parameters)
    entries = [
        entry | {"DefaultValue": parsed_values[entry["Name"]]}
        if entry["Name"] in parameters
        else entry
        for entry in document.get("Parameters", ())
    ]
    return {**document, "Parameters": entries}
