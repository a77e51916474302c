"""Check the budget of an execution before it starts, with the same sums as a plan's.

The budget of a deployed pipeline is in recipe.json, in the record that its definition
names (pipelines.compile.provenance_asset). To change it, change the recipe and upsert.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from typing import Any

from botocore.exceptions import ClientError

from pipelines.compile.compilation import CompiledPipeline
from pipelines.compile.training_inputs import iter_starting_models
from pipelines.delivery import upsert_lock
from pipelines.delivery.pipeline_objects import has_same_content, iter_objects
from pipelines.delivery.training_estimate import foresee
from pipelines.delivery.upsert_lock import Lock
from pipelines.recipe.sections import Budget
from pipelines.registry import ledger
from pipelines.registry.champion import build_champion_parameters
from pipelines.registry.ledger import AUTOMATIC_PARAMETERS, TestLook
from trainyard.aws_clients import create_client, read_error_code, service_errors
from trainyard.plan import deployed_pipeline
from trainyard.plan.cache_prediction import History, Outcome, predict
from trainyard.plan.definition_diff import CODE, compare
from trainyard.plan.deployed_pipeline import DeployedPipeline
from trainyard.plan.pipeline_plan import (
    Drift,
    Plan,
    apply_parameters,
    create_plan,
    find_overwritten,
)
from trainyard.plan.prices import Prices, load
from trainyard.plan.run_cost import (
    Cost,
    Verdict,
    estimate,
    sum_known,
)


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
    outcomes = predict(run, pipeline, history, datetime.now(UTC))
    return UpcomingRun(run, parameters, history, outcomes, sagemaker.meta.region_name)


def judge_upcoming_run(run: UpcomingRun, budget: Budget) -> Verdict:
    """Return whether the execution stays within the budget."""
    # With twice the steps, a job takes longer. So the times of earlier executions count only if
    # this one has the recipe's own parameters. Those that ``start`` sets do not change a step's
    # time.
    has_usual_parameters = not run.parameters.keys() - AUTOMATIC_PARAMETERS
    history = run.history if has_usual_parameters else History(None, None)
    prices = load(run.region)
    foresight = foresee(run.document, run.region)
    costs = estimate(run.document, run.outcomes, history, prices, foresight)
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
    foreseen = ", ".join(cost.step for cost in costs if cost.is_foreseen)
    if not foreseen:
        return grounds
    if budget.bound == "seen":
        return f"{grounds}; {foreseen} as long as predicted (p90)"
    likely = sum_known(map(_estimate_likely_cost, costs))
    likely_note = f"; ${likely:,.2f} if {foreseen} takes as long as predicted (p90)"
    return grounds + ("" if likely is None else likely_note)


def _estimate_likely_cost(cost: Cost) -> float | None:
    """Return the step's cost in USD: that of the longest earlier execution, or of the forecast's
    ninth decile, or of the longest execution allowed.
    """
    highest = cost.usd_expected.high
    return cost.usd_limit if highest is None else highest


# Plan a recipe's pipeline: the general plan, and what only the application knows about it.
#
# This only reads from AWS. It does not need the SDK, because the definition is already compiled.

FILES = 3  # maximum number of changed files named in one line
NEW_DATA = (
    "put new data under a new prefix (data.input, --parameter InputUri=…), or upsert with "
    "cache.enabled=false"
)
"""Advice if input data was overwritten."""


def plan_pipeline(definition: CompiledPipeline) -> Plan:
    """Return the plan that compares ``definition`` with the deployed pipeline.

    Raises:
        ServiceError: AWS refused, or could not be reached.
    """
    with service_errors(f"planning pipeline {definition.name}"):
        sagemaker, s3 = (create_client(name, definition.region) for name in ("sagemaker", "s3"))
        deployment, target_state = (
            deployed_pipeline.describe(sagemaker, definition.name),
            definition.state,
        )
        parameters = build_champion_parameters(sagemaker, target_state.document, {}, None)
        next_look = _find_next_look(s3, target_state.document, parameters)
        parameters |= {ledger.PARAMETER: str(next_look.number)} if next_look else {}
        history = History(sagemaker, target_state.name if deployment else None, s3=s3)
        prices = load(definition.region)
        notes = _CodeNotes(s3, definition)
        forecast = partial(foresee, region=definition.region)
        plan = create_plan(target_state, deployment, history, prices, parameters, notes, forecast)
        document = apply_parameters(target_state.document, parameters)
        overwrites = tuple(find_overwritten(s3, document, plan.outcomes, NEW_DATA))
        drift = _find_drift(s3, definition, deployment) if deployment and plan.diff else plan.drift
        remarks = (ledger.describe(next_look),) if next_look else ()
        return with_budget(
            definition, replace(plan, overwritten=overwrites, drift=drift, remarks=remarks)
        )


def with_budget(definition: CompiledPipeline, plan: Plan) -> Plan:
    """Return the plan with the check of the recipe's budget, and with the models that training
    steps start from.
    """
    budget = check_budget(definition.budget, plan.costs, plan.prices)
    return replace(plan, begins=dict(iter_starting_models(plan.target.document)), budget=budget)


def _find_next_look(
    s3: Any, document: Mapping[str, Any], champion: Mapping[str, str]
) -> TestLook | None:
    """Return the look that the next execution would be; None if there is no bucket yet.

    A look is one evaluation of a model on the test split; ``pipelines.registry.ledger`` counts
    them.
    """
    try:
        return ledger.find_look(s3, document, champion)
    except ClientError as error:
        if read_error_code(error) == "NoSuchBucket":
            return None
        raise


def _find_drift(s3: Any, definition: CompiledPipeline, deployment: DeployedPipeline) -> Drift:
    """Return whether the deployed pipeline was changed other than by upsert, and by whom."""
    location = upsert_lock.locate_records(definition)
    records = upsert_lock.list_records(s3, location)
    if deployment.state.fingerprint in records.times:
        return Drift(kind="none")
    holder = Lock(s3, location, definition.name, 0).read_holder() if records.is_locked else None
    if holder:
        return Drift(kind="interrupted", by=holder.owner, since=holder.since)
    if records.last is None:
        return Drift(kind="unknown")
    diff = compare(upsert_lock.read_record(s3, location, records.last), deployment.state)
    return Drift(kind="edited", diff=diff, by=deployment.by, since=deployment.changed_at)


class _CodeNotes:
    """Describes which files of a code folder changed: compares the checkout's with those in S3."""

    def __init__(self, s3: Any, definition: CompiledPipeline) -> None:
        self._s3 = s3
        self._assets = {asset.uri: asset for asset in definition.assets}
        self._kms_key = definition.kms_key

    def __call__(self, old: str, new: str) -> str:
        """Describe how the code folder ``new`` differs from ``old``, both as S3 URIs; return "" if
        one of them is not a code folder.
        """
        asset, match = self._assets.get(new), CODE.fullmatch(old)
        if asset is None or match is None:
            return ""
        try:
            remote_objects = dict(iter_objects(self._s3, match["bucket"], match["key"]))
        except ClientError as error:  # another account's bucket, or one that was deleted
            return f"the old files cannot be listed ({read_error_code(error)})"
        return (
            describe_changed_files(remote_objects, asset.files, self._kms_key)
            if remote_objects
            else ""
        )


def describe_changed_files(
    remote_objects: Mapping[str, tuple[int, str]], files: Mapping[str, bytes], kms_key: str | None
) -> str:
    """Describe changed files, such as ``2 files: ~ training/loop.py, + training/new.py``.

    ``remote_objects``: (size in bytes, ETag) of each object, by name.
    """
    signs = {
        name: "~"
        for name, body in files.items()
        if not has_same_content(remote_objects.get(name), body, kms_key)
    }
    signs |= {name: "+" for name in files if name not in remote_objects}
    signs |= {name: "-" for name in remote_objects if name not in files}
    names = [f"{signs[name]} {name}" for name in sorted(signs)]
    more = [f"{len(names) - FILES} more"] if len(names) > FILES else []
    by_size = ", compared by size only: ETags under KMS are not MD5" if kms_key else ""
    count = f"{len(names)} file{'' if len(names) == 1 else 's'}"
    return f"{count}: {', '.join([*names[:FILES], *more])}{by_size}"
