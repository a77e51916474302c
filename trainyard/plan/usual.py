"""What the steps of an execution usually take and cost: as in the executions before it.

The machines of a step are those of its definition with the execution's parameters; the prices those
of ``trainyard.plan.prices``, on demand.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from trainyard.language.step_types import step_type
from trainyard.plan.cost import same_machines, usd_of, work_of
from trainyard.plan.history import Run
from trainyard.plan.prices import Prices


@dataclass(frozen=True, slots=True, kw_only=True)
class Usual:
    """One step."""

    before: tuple[float, ...] = ()
    """Seconds that it took in earlier executions on the same machines, the waiting included."""

    usd_an_hour: float | None = None
    """None where there is no price, or nobody knows the machines; 0 for what costs nothing."""

    @property
    def median(self) -> float | None:
        """Seconds; None where no earlier execution ran it on the same machines."""
        return median(self.before) if self.before else None

    @property
    def usd(self) -> float | None:
        """USD of that; None where nobody can tell."""
        if self.usd_an_hour == 0:
            return 0.0
        if self.median is None or self.usd_an_hour is None:
            return None
        return self.usd_an_hour * self.median / 3600


def usual(
    steps: Mapping[str, Mapping[str, Any]],
    parameters: Mapping[str, Any],
    prices: Prices,
    earlier: Sequence[Run] = (),
) -> dict[str, Usual]:
    """Of each step of a definition, by name; ``parameters`` are the execution's values."""
    return {name: _usual(name, step, parameters, prices, earlier) for name, step in steps.items()}


def _usual(
    name: str,
    step: Mapping[str, Any],
    parameters: Mapping[str, Any],
    prices: Prices,
    earlier: Sequence[Run],
) -> Usual:
    work = work_of(step, parameters)
    ran = [(run, done) for run in earlier if (done := run.steps.get(name)) and not done.source]
    if work is None:
        free = None if step_type(step["Type"]).charged else 0.0
        return Usual(before=tuple(done.seconds for _, done in ran), usd_an_hour=free)
    before = tuple(done.seconds for run, done in ran if same_machines(run, name, work))
    hourly, storage = prices.hourly(work.kind, work.instance_type), prices.storage(work.kind)
    usd = usd_of(work, 3600, hourly, storage, 1.0) * work.jobs.parallel if hourly else None
    return Usual(before=before, usd_an_hour=usd)
