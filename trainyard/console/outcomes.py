"""Outcomes of runs: the metric that each is about, its change, verdict and cost."""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from trainyard.common.errors import ServiceError
from trainyard.console.account_cache import A_DAY, Account
from trainyard.console.model_groups import champion, described, metrics, place_of
from trainyard.plan.prices import Prices, load
from trainyard.runs.execution import Execution, Step
from trainyard.runs.job_cost import CHARGED, Spent, spent
from trainyard.runs.run_display import latest
from trainyard.runs.run_summary import model_package

Jobs = dict[str, Mapping[str, Any]]
"""Step → description of what it is charged for (``Account.charged``); empty without a job."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """Cost of an execution in USD, as far as known."""

    so_far: float = 0.0  # sum of the known costs
    a_second: float = 0.0  # USD per second by which it grows while nothing changes
    unknown: tuple[str, ...] = ()  # steps with unknown costs
    estimated: bool = False


def costs(
    steps: Iterable[Step],
    jobs: Mapping[str, Mapping[str, Any]],
    prices: Prices | None,
    at: datetime,
) -> dict[str, Spent | None]:
    """Return step that has begun → its cost until ``at``; None if it is not known."""
    free = Spent(machines="", seconds=0.0, usd=0.0, usd_a_second=0.0, estimated=False)
    found: dict[str, Spent | None] = {}
    for step in steps:
        if step.charged and jobs.get(step.name) and prices and not (step.cached or step.reused):
            found[step.name] = spent(step.charged[0], jobs[step.name], prices, at)
        else:
            is_free = step.cached or step.reused or not CHARGED & set(step.metadata)
            found[step.name] = free if is_free else None
    return found


def cost(of_steps: Mapping[str, Spent | None]) -> Cost:
    """Return the sum of the steps' costs."""
    known = [one for one in of_steps.values() if one]
    return Cost(
        so_far=sum(one.usd or 0.0 for one in known),
        a_second=sum(one.usd_a_second or 0.0 for one in known),
        unknown=tuple(n for n, one in of_steps.items() if one is None or one.usd is None),
        estimated=any(one.estimated for one in known),
    )


_QUALITY = re.compile(
    r"loss|perplexity|bits_per|accuracy|auc|f1|precision|recall|error|rmse|mse|mae|r2|bleu|rouge"
    r"|score|likelihood|reward|iou|map(?![a-z])|ndcg|logloss|objective",
    re.IGNORECASE,
)
_SETTING = re.compile(
    r"seed|steps?$|epoch|rate|second|time|count|samples|examples|tokens|bytes|memory|threshold"
    r"|confidence|version|size|limit|low$|high$|standard_(?:error|deviation)|\.\d+(?:\.|$)|look",
    re.IGNORECASE,
)
_HELD_OUT = re.compile(r"eval|valid|test|report", re.IGNORECASE)


def importance(name: str) -> tuple[int, bool, int]:
    """Return a sort key of a metric's name: quality first, held out before training; settings,
    counts and members of lists last; of equals the shorter path first.
    """
    rank = 2 if _SETTING.search(name) else 0 if _QUALITY.search(name) else 1
    return rank, not _HELD_OUT.search(name), name.count(".")


def by_importance(names: Iterable[str]) -> list[str]:
    """Sort names of metrics, the most important first; equals keep their order."""
    return sorted(names, key=importance)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a run achieved, as far as it is known."""

    metric: str = ""  # name of the metric that it is about
    value: float | None = None
    champion: float | None = None  # the champion's value of that metric, at that time
    verdict: str = ""  # ``pass`` or ``reject`` of a gate, or ``registered``
    cost: Cost | None = None

    @property
    def change(self) -> float | None:
        """Difference from the champion's value; None if one of them is not known."""
        if self.value is None or self.champion is None:
            return None
        return self.value - self.champion


Judge = Callable[[Execution, Mapping[str, Step]], Outcome | None]
"""(execution, its steps by name) → its outcome by an application's own rules; None: not its run."""


def no_judge(execution: Execution, steps: Mapping[str, Step]) -> Outcome | None:
    """Judge nothing: the outcome is read from the model package or the training jobs."""
    return None


def outcome(here: Account, pipeline: str, execution: str, judge: Judge) -> Outcome:
    """Read the outcome of an ended run; parts that AWS refuses are left out."""
    try:
        steps = {step.name: step for step in here.snapshot(pipeline, execution).steps}
    except ServiceError:
        return Outcome()
    jobs: Jobs = {}
    for name, step in steps.items():
        try:
            jobs[name] = here.charged(step)
        except ServiceError:  # jobs may have been deleted
            continue
    region = str(here.sagemaker.meta.region_name)
    prices = here.lately(("prices", region), lambda: load(region), A_DAY)
    paid = cost(costs(steps.values(), jobs, prices, datetime.now(UTC)))
    try:
        found = judge(here.execution(pipeline, execution), steps)
        found = found or _registered(here, model_package(list(steps.values()))) or _trained(jobs)
    except ServiceError:
        found = _trained(jobs)
    return replace(found, cost=paid)


def _registered(here: Account, package: str | None) -> Outcome | None:
    """Return the outcome by the metrics of the registered package, beside its group's champion."""
    if package is None:
        return None
    known = metrics(here, described(here, package))
    name = next(iter(by_importance(known)), "")
    found = Outcome(metric=name, value=known.get(name), verdict="registered")
    group = place_of(package)[0]
    best = champion(here, group).arn if group != "-" else None
    if best and best != package:
        found = replace(found, champion=metrics(here, described(here, best)).get(name))
    return found


def _trained(jobs: Jobs) -> Outcome:
    values = {name: value for job in jobs.values() for name, value in latest(job).items()}
    name = next(iter(by_importance(values)), "")
    return Outcome(metric=name, value=values.get(name))
