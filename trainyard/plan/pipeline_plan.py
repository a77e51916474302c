"""A plan: what an upsert would change, what the next run would do, and what that may cost.

An application adds what only it knows about its pipelines (drift from its records, its budget, what
a training begins with) to the plan that ``complete`` creates.
"""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any, Literal

from trainyard.language.expressions import values
from trainyard.plan.cache_prediction import History, Outcome, predict
from trainyard.plan.definition_diff import Diff, compare
from trainyard.plan.deployed_pipeline import DeployedPipeline, State
from trainyard.plan.overwritten_data import Overwritten
from trainyard.plan.prices import Prices
from trainyard.plan.run_cost import Cost, Foresight, Total, Verdict, estimate, total


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
