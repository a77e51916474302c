"""The budget of a run before it may start: the same sums as a plan's, with that run's parameters.

The budget of a pipeline that is deployed stands in recipe.json, in the record that its definition
names (pipelines.provenance). So it is changed by changing the recipe, and an upsert.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from pipelines.config import Budget
from pipelines.plan.caching import predict
from pipelines.plan.cost import Verdict, check_budget, estimate
from pipelines.plan.history import History
from pipelines.plan.plan import started_with
from pipelines.plan.prices import load
from pipelines.provenance import recorded_recipe

KNOWN = ("ChampionArn", "ChampionModelUri")
"""Parameters that start sets itself, and that change no step's time."""


def verdict(
    sagemaker: Any,
    document: Mapping[str, Any],
    pipeline: str,
    budget: Budget,
    given: Mapping[str, str],
    *,
    exists: bool = True,
) -> Verdict:
    """Whether a run of ``document`` with the parameters ``given`` keeps the budget.

    Of a run with other parameters than the recipe's, the limit counts and not what earlier runs
    took: twice the steps take longer.

    Raises:
        ClientError: AWS refused.
    """
    if budget.usd_per_run is None:
        return Verdict(True)
    if budget.bound == "seen" and given.keys() - KNOWN:
        budget = budget.model_copy(update={"bound": "limit"})
    run = started_with(document, given)
    history = History(sagemaker, pipeline if exists else None)
    prices = load(sagemaker.meta.region_name)
    outcomes = predict(run, pipeline, history, datetime.now(UTC))
    return check_budget(budget, estimate(run, outcomes, history, prices), prices)


def deployed_budget(s3: Any, document: Mapping[str, Any]) -> Budget:
    """The budget of the recipe that ``document`` was compiled from; none for others' pipelines.

    Raises:
        ServiceError: the record is not there, or cannot be read.
    """
    recipe = recorded_recipe(s3, document)
    return Budget.model_validate(recipe.get("budget", {})) if recipe else Budget()
