"""The budget of a run before it may start: the same sums as a plan's, with that run's parameters.

The budget of a pipeline that is deployed stands in recipe.json, in the record that its definition
names (pipelines.compile.provenance_asset). So it is changed by changing the recipe, and an upsert.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from pipelines.deploy.training_estimate import foresee
from pipelines.recipe.config import Budget
from pipelines.registry.ledger import FOUND
from trainyard.plan.cache_prediction import Outcome, predict
from trainyard.plan.execution_history import History
from trainyard.plan.pipeline_plan import started_with
from trainyard.plan.prices import Prices, load
from trainyard.plan.run_cost import Cost, Verdict, all_of, estimate


@dataclass(frozen=True, slots=True)
class Ahead:
    """A run that is about to start, as far as it can be known."""

    document: Mapping[str, Any]
    """The definition, with the run's parameters as defaults."""

    given: Mapping[str, str]
    history: History
    outcomes: Sequence[Outcome]
    region: str


def ahead(
    sagemaker: Any,
    document: Mapping[str, Any],
    pipeline: str,
    given: Mapping[str, str],
    *,
    exists: bool = True,
    s3: Any = None,
) -> Ahead:
    """What a run of ``document`` with the parameters ``given`` would do.

    Args:
        s3: looks whether the results that the cache would answer with are still there.

    Raises:
        ClientError: AWS refused.
    """
    run = started_with(document, given)
    history = History(sagemaker, pipeline if exists else None, s3=s3)
    outcomes = predict(run, pipeline, history, datetime.now(UTC))
    return Ahead(run, given, history, outcomes, sagemaker.meta.region_name)


def verdict(run: Ahead, budget: Budget) -> Verdict:
    """Return whether the run keeps the budget.

    Of a run with other parameters than the recipe's, what earlier runs took does not count: twice
    the steps take longer. What ``start`` finds out changes no step's time.
    """
    alike = not run.given.keys() - FOUND
    history = run.history if alike else History(None, None)
    prices = load(run.region)
    foresight = foresee(run.document, run.region)
    costs = estimate(run.document, run.outcomes, history, prices, foresight)
    return check_budget(budget, costs, prices, seen=alike)


def budget_in(recipe: Mapping[str, Any]) -> Budget:
    """The budget of a recorded recipe."""
    return Budget.model_validate(recipe.get("budget", {}))


def check_budget(
    budget: Budget, costs: Sequence[Cost], prices: Prices, *, seen: bool = True
) -> Verdict:
    """A budget that cannot be checked does not hold: silence would read as consent.

    ``seen``: whether earlier runs are a ground.
    """
    if budget.usd_per_run is None:
        return Verdict(True)
    missing = sorted({cost.unpriced for cost in costs if cost.unpriced})
    if missing:
        return Verdict(
            False,
            f"cannot be checked: {prices.region} has no price for {', '.join(missing)}; refresh "
            f"the table (python -m trainyard prices --region {prices.region}), or take "
            "budget.usd_per_run out of the recipe",
        )
    bound = _bound(budget, costs)
    if bound is None:
        return Verdict(
            False,
            "cannot be checked: a step has no time limit or is of a type without known prices; "
            "give it a MaxRuntimeInSeconds, or take budget.usd_per_run out of the recipe",
        )
    grounds, allowed = _grounds(budget, costs, seen), f"${budget.usd_per_run:,.2f}"
    if bound <= budget.usd_per_run:
        return Verdict(True, f"{allowed} a run; at most ${bound:,.2f} ({grounds})")
    return Verdict(
        False,
        f"a run may cost ${bound:,.2f} ({grounds}), and the recipe allows {allowed}; lower "
        "max_runtime_minutes or the machines, raise budget.usd_per_run, or choose another "
        "budget.bound",
    )


GROUNDS = {
    "limit": "every step that runs as long as it may, on demand",
    "seen": "every step as long as its longest earlier run, or as it may where there is none",
    "uncached": "every step as long as it may, on demand, without the cache",
}


def _grounds(budget: Budget, costs: Sequence[Cost], seen: bool) -> str:
    """What the sum counts, and what of it is only foreseen."""
    grounds = GROUNDS["limit" if budget.bound == "seen" and not seen else budget.bound]
    foreseen = ", ".join(cost.step for cost in costs if cost.is_foreseen)
    if not foreseen:
        return grounds
    if budget.bound == "seen":
        return f"{grounds}; {foreseen} as long as is foreseen nine times of ten"
    likely = all_of(map(_likely, costs))
    with_it = f"; ${likely:,.2f} where {foreseen} takes as long as is foreseen nine times of ten"
    return grounds + ("" if likely is None else with_it)


def _bound(budget: Budget, costs: Sequence[Cost]) -> float | None:
    if budget.bound == "uncached":
        return all_of(cost.usd_uncached for cost in costs)
    if budget.bound == "limit":
        return all_of(cost.usd_limit for cost in costs)
    return all_of(map(_likely, costs))


def _likely(cost: Cost) -> float | None:
    """USD for the longest run that was seen, else the ninth decile of what is foreseen, else for
    the longest that there may be.
    """
    highest = cost.usd_expected.high
    return cost.usd_limit if highest is None else highest
