"""A plan: what an upsert would change, what the next run would do, and what that may cost.

An application adds what only it knows about its pipelines (drift from its records, its budget, what
a training begins with) to the plan that ``complete`` creates.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from functools import partial
from types import MappingProxyType
from typing import Any, Literal

from botocore.exceptions import ClientError

from trainyard.aws_clients import error_code
from trainyard.language.evaluation import Start, evaluate
from trainyard.language.expressions import ExpressionError, values
from trainyard.plan.cache_prediction import MOST, History, Outcome, Run, list_objects, predict
from trainyard.plan.definition_diff import CODE, Diff, compare, steps
from trainyard.plan.deployed_pipeline import DeployedPipeline, State
from trainyard.plan.prices import Prices
from trainyard.plan.run_cost import Cost, Foresight, Total, Verdict, estimate, total

# Data that was written after the run whose result the cache reuses.
#
# The cache compares a step's arguments, and those contain only the prefixes of its data and of its
# result: what lies there may have changed since the step read or made it. S3's listing does not
# show deleted objects.

FIX = "put new data under a new prefix, or turn the step's cache off"
FIX_OUTPUT = "put Execution.PipelineExecutionId into its prefix, or turn the step's cache off"


@dataclass(frozen=True, slots=True, kw_only=True)
class Overwritten:
    """An input of a cached step that changed after the step read it, or its output after it."""

    step: str
    uri: str
    run: str
    """ID of the run that read or made it."""

    is_output: bool

    fix: str
    """Advice on what to do about it."""

    count: int = 0
    """Objects that were written since."""

    newest: str = ""
    """Key of the newest object."""

    when: datetime | None = None
    looked_at: int = 0
    list_error: str = ""
    """Reason why it cannot be known."""

    def __str__(self) -> str:
        verb = "made" if self.is_output else "read"
        if self.list_error:
            return (
                f"{self.step} is cached, and it is not known whether {self.uri} is still what run "
                f"{self.run} {verb}: it cannot be listed ({self.list_error})"
            )
        total = f"{self.looked_at:,}" if self.looked_at < MOST else f"the first {MOST:,}"
        effect = (
            "the next steps read those, as AWS does not look at the result that it reuses (an "
            "emulator runs the step again when the bytes differ)"
            if self.is_output
            else "the run will not see them"
        )
        return (
            f"{self.step} is cached, but {self.count:,} of {total} objects under {self.uri} were "
            f"written after run {self.run} {verb} them ({self.newest} at "
            f"{self.when:%Y-%m-%d %H:%M} UTC): {effect}; {self.fix}"
        )


def overwritten(
    s3: Any, document: Mapping[str, Any], outcomes: Sequence[Outcome], fix: str = FIX
) -> list[Overwritten]:
    """Return the changed inputs and outputs of each cached step; parameters have their defaults.

    ``fix``: what to do about an input, in the caller's words.
    """
    everything, defaults = steps(document), values(document, {})
    results = []
    for outcome in outcomes:
        if outcome.answer == "cached" and (run := outcome.source):
            for uri in dict.fromkeys(_inputs(everything[outcome.step], defaults)):
                results.append(_check_location(s3, outcome.step, run, uri, fix))
            for uri in outcome.places:
                results.append(
                    _check_location(s3, outcome.step, run, uri, FIX_OUTPUT, is_output=True)
                )
    return [item for item in results if item.count or item.list_error]


def _inputs(step: Mapping[str, Any], defaults: Mapping[str, Any]) -> Iterator[str]:
    """Iterate over URIs that people write to: no step's output, and no code named by content."""
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
            uri = evaluate((source or {}).get("S3Uri"), Start(defaults))
        except ExpressionError:
            # A function of the language that is not known here.
            continue
        if isinstance(uri, str) and uri.startswith("s3://") and not CODE.match(uri):
            yield uri


def _check_location(
    s3: Any, step: str, run: Run, uri: str, fix: str, *, is_output: bool = False
) -> Overwritten:
    # An input counts from the start, when the step read it; an output from the end, since the step
    # itself wrote it before.
    then = run.steps[step].end_time if is_output else run.steps[step].start_time
    make = partial(Overwritten, step=step, uri=uri, run=run.id, fix=fix, is_output=is_output)
    try:
        objects = list_objects(s3, uri)
    except ClientError as error:
        return make(list_error=error_code(error))
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
    """The deployed pipeline compared with the state that an upsert recorded."""

    kind: Literal["none", "unknown", "edited", "interrupted"]
    """edited: differs from every recorded state. unknown: nothing was ever recorded. interrupted:
    it differs, but an upsert holds the lock, or died with it."""

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
    """Data that is new and that the cache considers unchanged."""

    drift: Drift = Drift(kind="none")
    begins: Mapping[str, str] = field(default_factory=dict)
    """Step → what its training begins with, in words."""

    remarks: tuple[str, ...] = ()
    """Further remarks on the next run, a line each."""

    foresight: Foresight = field(default_factory=dict)
    """Predictions for steps."""

    budget: Verdict = Verdict(True)

    def as_json(self) -> dict[str, Any]:
        """Return plain JSON types."""
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


def complete(
    target: State,
    current: DeployedPipeline | None,
    history: History,
    prices: Prices,
    parameters: Mapping[str, str] = MappingProxyType({}),
    note: Callable[[str, str], str] = lambda old, new: "",
    foresee: Callable[[Mapping[str, Any]], Foresight] = lambda document: {},
) -> Plan:
    """Plan the changes from ``current`` to ``target``, the next run, and its cost.

    Args:
        parameters: parameters with which that run starts; the others have their defaults.
        note: returns a remark on a folder of code that changes from one URI to another.
        foresee: the definition, with that run's parameters → predictions for its steps.
    """
    now, document = datetime.now(UTC), started_with(target.document, parameters)
    outcomes = predict(document, target.name, history, now)
    foresight = foresee(document)
    costs = estimate(document, outcomes, history, prices, foresight)
    return Plan(
        target=target,
        region=prices.region,
        current=current,
        diff=compare(current.state if current else None, target, note),
        outcomes=tuple(outcomes),
        costs=tuple(costs),
        total=total(document, costs),
        prices=prices,
        created_at=now,
        foresight=foresight,
    )


def started_with(document: Mapping[str, Any], parameters: Mapping[str, str]) -> dict[str, Any]:
    """Return the definition with these values as its parameters' defaults."""
    parsed_values = values(document, parameters)
    entries = [
        entry | {"DefaultValue": parsed_values[entry["Name"]]}
        if entry["Name"] in parameters
        else entry
        for entry in document.get("Parameters", ())
    ]
    return {**document, "Parameters": entries}
