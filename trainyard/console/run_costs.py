"""Cost of an execution's steps, from their jobs' descriptions and the price list."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from trainyard.plan.prices import Prices
from trainyard.runs.execution import Step
from trainyard.runs.job_cost import CHARGED, Spent, spent

Jobs = dict[str, Mapping[str, Any]]
"""Step → Describe…Job's answer for its job; empty without a job."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """Cost of an execution in USD, as far as known."""

    so_far: float = 0.0
    """Sum of the known costs."""

    a_second: float = 0.0
    """USD per second by which it grows while nothing changes."""

    unknown: tuple[str, ...] = ()
    """Steps with unknown costs."""

    estimated: bool = False


def costs(
    steps: Iterable[Step],
    jobs: Mapping[str, Mapping[str, Any]],
    prices: Prices | None,
    at: datetime,
) -> dict[str, Spent | None]:
    """Return step that has begun → its cost until ``at``; None if it is not known."""
    return {step.name: _spent(step, jobs, prices, at) for step in steps}


def _spent(
    step: Step, jobs: Mapping[str, Mapping[str, Any]], prices: Prices | None, at: datetime
) -> Spent | None:
    free = Spent(machines="", seconds=0.0, usd=0.0, usd_a_second=0.0, estimated=False)
    if step.cached or step.reused:
        return free
    if step.job and step.name in jobs and prices:
        return spent(step.job[0], jobs[step.name], prices, at)
    return None if step.job or CHARGED & set(step.metadata) else free


def cost(of_steps: Mapping[str, Spent | None]) -> Cost:
    """Return the sum of the steps' costs."""
    known = [one for one in of_steps.values() if one]
    return Cost(
        so_far=sum(one.usd or 0.0 for one in known),
        a_second=sum(one.usd_a_second or 0.0 for one in known),
        unknown=tuple(n for n, one in of_steps.items() if one is None or one.usd is None),
        estimated=any(one.estimated for one in known),
    )
