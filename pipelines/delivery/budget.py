"""Check the budget of an execution before it starts, with the same sums as a plan's.

The budget of a deployed pipeline is in recipe.json, in the record that its definition
names (pipelines.compile.provenance_asset). To change it, change the recipe and upsert.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from pipelines.delivery.training_estimate import predict_trainings
from pipelines.recipe.sections import Budget
from pipelines.registry.ledger import AUTOMATIC_PARAMETERS
from trainyard.plan.cache_prediction import History, Outcome, predict_outcomes
from trainyard.plan.pipeline_plan import apply_parameters
from trainyard.plan.prices import Prices, load_prices
from trainyard.plan.run_cost import Cost, Verdict, estimate_costs, sum_known


@dataclass(frozen=True, slots=True)
class UpcomingRun:
    """An execution that is about to start, and the predictions about it."""

    document: Mapping[str, Any]
    """Definition, with the execution's parameters as defaults."""

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
    """Predict an execution of ``document`` with ``parameters``.

    Args:
        exists: whether the pipeline is deployed, so that it may have earlier executions.
        s3: S3 client that checks that cached results still exist.

    Raises:
        ClientError: AWS refused.
    """
    run = apply_parameters(document, parameters)
    history = History(sagemaker, pipeline if exists else None, s3=s3)
    outcomes = predict_outcomes(run, pipeline, history, datetime.now(UTC))
    return UpcomingRun(run, parameters, history, outcomes, sagemaker.meta.region_name)


def judge_upcoming_run(run: UpcomingRun, budget: Budget) -> Verdict:
    """Return a verdict on whether the execution stays within the budget."""
    # With twice the steps, a job takes longer. So the times of earlier executions count only if
    # this one has the recipe's own parameters. Those that ``start`` sets do not change a step's
    # time.
    has_usual_parameters = not run.parameters.keys() - AUTOMATIC_PARAMETERS
    history = run.history if has_usual_parameters else History(None, None)
    prices = load_prices(run.region)
    foresight = predict_trainings(run.document, run.region)
    costs = estimate_costs(run.document, run.outcomes, history, prices, foresight)
    return check_budget(budget, costs, prices, use_history=has_usual_parameters)


def read_budget(recipe: Mapping[str, Any]) -> Budget:
    """Return the budget in a recorded recipe."""
    return Budget.model_validate(recipe.get("budget", {}))


def check_budget(
    budget: Budget, costs: Sequence[Cost], prices: Prices, *, use_history: bool = True
) -> Verdict:
    """Check the total cost against the budget; if it cannot be computed, it counts as exceeded.

    ``use_history``: whether the times of earlier executions count.
    """
    if budget.usd_per_run is None:
        return Verdict(True)
    missing = sorted({cost.unpriced for cost in costs if cost.unpriced})
    # Without a message, users would assume that the run is within the budget.
    if missing:
        return Verdict(
            False,
            f"cannot be checked: {prices.region} has no price for {', '.join(missing)}; refresh "
            f"the table (python -m trainyard prices --region {prices.region}), or remove "
            "budget.usd_per_run from the recipe",
        )
    usd = {
        "uncached": lambda c: c.usd_uncached,
        "limit": lambda c: c.usd_limit,
        "seen": _estimate_likely_cost,
    }
    bound = sum_known(map(usd[budget.bound], costs))
    if bound is None:
        return Verdict(
            False,
            "cannot be checked: a step has no time limit or is of a type without known prices; "
            "give it a MaxRuntimeInSeconds, or remove budget.usd_per_run from the recipe",
        )
    grounds, limit_text = _explain_total(budget, costs, use_history), f"${budget.usd_per_run:,.2f}"
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


def _explain_total(budget: Budget, costs: Sequence[Cost], use_history: bool) -> str:
    """Return what the total is based on, and which steps' times are only forecasts."""
    grounds = GROUNDS["limit" if budget.bound == "seen" and not use_history else budget.bound]
    foreseen = ", ".join(cost.step for cost in costs if cost.is_predicted)
    if not foreseen:
        return grounds
    if budget.bound == "seen":
        return f"{grounds}; {foreseen} as long as predicted (p90)"
    likely = sum_known(map(_estimate_likely_cost, costs))
    likely_note = f"; ${likely:,.2f} if {foreseen} takes as long as predicted (p90)"
    return grounds + ("" if likely is None else likely_note)


def _estimate_likely_cost(cost: Cost) -> float | None:
    """Return the step's cost in USD: of the longest earlier execution, or of the forecast's 90th
    percentile, or else of the longest execution that its time limit allows.
    """
    highest = cost.usd_expected.high
    return cost.usd_limit if highest is None else highest
