"""Check a run's budget before it starts: the same sums as a plan's, with that run's parameters.

The budget of a deployed pipeline is in recipe.json, in the record that its definition
names (pipelines.compile.provenance_asset). To change it, change the recipe and upsert.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from pipelines.deploy.training_estimate import foresee
from pipelines.recipe.budget_section import Budget
from pipelines.registry.ledger import AUTOMATIC_PARAMETERS
from trainyard.plan.cache_prediction import Outcome, predict
from trainyard.plan.execution_history import History
from trainyard.plan.pipeline_plan import started_with
from trainyard.plan.prices import Prices, load
from trainyard.plan.run_cost import Cost, Verdict, all_of, estimate


@dataclass(frozen=True, slots=True)
class UpcomingRun:
    """A run that is about to start, and the predictions about it."""

    document: Mapping[str, Any]
    """Definition, with the run's parameters as defaults."""

    parameters: Mapping[str, str]
    history: History
    outcomes: Sequence[Outcome]
    region: str


def predict_run(
    sagemaker: Any,
    document: Mapping[str, Any],
    pipeline: str,
    parameters: Mapping[str, str],
    *,
    exists: bool = True,
    s3: Any = None,
) -> UpcomingRun:
    """Predict a run of ``document`` with the parameters ``parameters``.

    Args:
        s3: S3 client that checks that cached results still exist.

    Raises:
        ClientError: AWS refused.
    """
    run = started_with(document, parameters)
    history = History(sagemaker, pipeline if exists else None, s3=s3)
    outcomes = predict(run, pipeline, history, datetime.now(UTC))
    return UpcomingRun(run, parameters, history, outcomes, sagemaker.meta.region_name)


def verdict(run: UpcomingRun, budget: Budget) -> Verdict:
    """Return whether the run keeps the budget.

    For a run with other parameters than the recipe's, the times of earlier runs do not count: twice
    the steps take longer. The parameters that ``start`` finds out do not change a step's time.
    """
    has_usual_parameters = not run.parameters.keys() - AUTOMATIC_PARAMETERS
    history = run.history if has_usual_parameters else History(None, None)
    prices = load(run.region)
    foresight = foresee(run.document, run.region)
    costs = estimate(run.document, run.outcomes, history, prices, foresight)
    return check_budget(budget, costs, prices, use_history=has_usual_parameters)


def budget_in(recipe: Mapping[str, Any]) -> Budget:
    """Return the budget of a recorded recipe."""
    return Budget.model_validate(recipe.get("budget", {}))


def check_budget(
    budget: Budget, costs: Sequence[Cost], prices: Prices, *, use_history: bool = True
) -> Verdict:
    """Check the sum against the budget. A budget that cannot be checked counts as exceeded: silence
    would read as consent.

    ``use_history``: whether the times of earlier runs count.
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
    grounds, limit_text = _grounds(budget, costs, use_history), f"${budget.usd_per_run:,.2f}"
    if bound <= budget.usd_per_run:
        return Verdict(True, f"{limit_text} a run; at most ${bound:,.2f} ({grounds})")
    return Verdict(
        False,
        f"a run may cost ${bound:,.2f} ({grounds}), and the recipe allows {limit_text}; lower "
        "max_runtime_minutes or the machines, raise budget.usd_per_run, or choose another "
        "budget.bound",
    )


GROUNDS = {
    "limit": "every step that runs as long as it may, on demand",
    "seen": "every step as long as its longest earlier run, or its limit where there is none",
    "uncached": "every step as long as it may, on demand, without the cache",
}


def _grounds(budget: Budget, costs: Sequence[Cost], use_history: bool) -> str:
    """Return what the sum is based on, and which part of it is only foreseen."""
    grounds = GROUNDS["limit" if budget.bound == "seen" and not use_history else budget.bound]
    foreseen = ", ".join(cost.step for cost in costs if cost.is_foreseen)
    if not foreseen:
        return grounds
    if budget.bound == "seen":
        return f"{grounds}; {foreseen} as long as foreseen in nine of ten cases"
    likely = all_of(map(_likely, costs))
    with_it = f"; ${likely:,.2f} where {foreseen} takes as long as foreseen in nine of ten cases"
    return grounds + ("" if likely is None else with_it)


def _bound(budget: Budget, costs: Sequence[Cost]) -> float | None:
    if budget.bound == "uncached":
        return all_of(cost.usd_uncached for cost in costs)
    if budget.bound == "limit":
        return all_of(cost.usd_limit for cost in costs)
    return all_of(map(_likely, costs))


def _likely(cost: Cost) -> float | None:
    """Return the USD of the longest run seen, else of the ninth decile of the forecast, else of the
    longest run allowed.
    """
    highest = cost.usd_expected.high
    return cost.usd_limit if highest is None else highest
