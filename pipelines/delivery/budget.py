"""Check the budget of an execution before it starts, with the same sums as a plan's.

The budget of a deployed pipeline is in recipe.json, in the record that its definition
names (pipelines.compile.provenance_asset). To change it, change the recipe and upsert.
"""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from typing import Any

from botocore.exceptions import ClientError

from pipelines.advice.training_setting import FIT, LoopTraining, describe_memory_need, of_request
from pipelines.compile.compilation import CompiledPipeline
from pipelines.compile.training_inputs import starting_models
from pipelines.delivery import upsert_lock
from pipelines.delivery.pipeline_objects import listing, same
from pipelines.delivery.upsert_lock import Lock
from pipelines.recipe.sections import Budget
from pipelines.registry import ledger
from pipelines.registry.champion import champion_parameters
from pipelines.registry.ledger import AUTOMATIC_PARAMETERS, TestLook
from trainyard.aws_clients import client, error_code, service_errors
from trainyard.common.errors import ForesightError
from trainyard.foresight import measured_corrections, memory, model_shapes
from trainyard.foresight.cloud_machines import machines
from trainyard.foresight.interrupted_run import Run
from trainyard.foresight.interrupted_run import foresee as foresee_run
from trainyard.foresight.interval import Spread
from trainyard.foresight.measured_corrections import Calibration
from trainyard.foresight.step_time import Time
from trainyard.plan import deployed_pipeline
from trainyard.plan.cache_prediction import History, Outcome, predict
from trainyard.plan.definition_diff import CODE, compare
from trainyard.plan.deployed_pipeline import DeployedPipeline
from trainyard.plan.pipeline_plan import Drift, Plan, complete, overwritten, started_with
from trainyard.plan.prices import Prices, load
from trainyard.plan.run_cost import (
    Cost,
    Foreseen,
    Foresight,
    NotForeseen,
    Verdict,
    all_of,
    estimate,
)
from trainyard.runs.run_display import duration
from trainyard.validate.outer_form import read
from trainyard.validate.rules.job_view import Job, training


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
    run = started_with(document, parameters)
    history = History(sagemaker, pipeline if exists else None, s3=s3)
    outcomes = predict(run, pipeline, history, datetime.now(UTC))
    return UpcomingRun(run, parameters, history, outcomes, sagemaker.meta.region_name)


def verdict(run: UpcomingRun, budget: Budget) -> Verdict:
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


def budget_in(recipe: Mapping[str, Any]) -> Budget:
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
    # To say nothing would read as "within the budget".
    if missing:
        return Verdict(
            False,
            f"cannot be checked: {prices.region} has no price for {', '.join(missing)}; refresh "
            f"the table (python -m trainyard prices --region {prices.region}), or take "
            "budget.usd_per_run out of the recipe",
        )
    usd = {"uncached": lambda c: c.usd_uncached, "limit": lambda c: c.usd_limit, "seen": _likely}
    bound = all_of(map(usd[budget.bound], costs))
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
    """Return what the total is based on, and which steps' times are only forecasts."""
    grounds = GROUNDS["limit" if budget.bound == "seen" and not use_history else budget.bound]
    foreseen = ", ".join(cost.step for cost in costs if cost.is_foreseen)
    if not foreseen:
        return grounds
    if budget.bound == "seen":
        return f"{grounds}; {foreseen} as long as foreseen in nine of ten cases"
    likely = all_of(map(_likely, costs))
    likely_note = (
        f"; ${likely:,.2f} where {foreseen} takes as long as foreseen in nine of ten cases"
    )
    return grounds + ("" if likely is None else likely_note)


def _likely(cost: Cost) -> float | None:
    """Return the step's cost in USD: that of the longest earlier execution, or of the forecast's
    ninth decile, or of the longest execution allowed.
    """
    highest = cost.usd_expected.high
    return cost.usd_limit if highest is None else highest


# Plan a recipe's pipeline: the general plan, and what only the application knows about it.
#
# This only reads from AWS. It does not need the SDK, because the definition is already compiled.

FILES = 3  # most names of changed files in one line
NEW_DATA = (
    "put new data under a new prefix (data.input, --parameter InputUri=…), or upsert with "
    "cache.enabled=false"
)
"""Advice if input data was overwritten."""


def make(definition: CompiledPipeline) -> Plan:
    """Return the plan that compares ``definition`` with the deployed pipeline.

    Raises:
        ServiceError: AWS refused, or could not be reached.
    """
    with service_errors(f"planning pipeline {definition.name}"):
        sagemaker, s3 = (client(name, definition.region) for name in ("sagemaker", "s3"))
        deployment, target_state = (
            deployed_pipeline.describe(sagemaker, definition.name),
            definition.state,
        )
        parameters = champion_parameters(sagemaker, target_state.document, {}, None)
        next_look = _find_next_look(s3, target_state.document, parameters)
        parameters |= {ledger.PARAMETER: str(next_look.number)} if next_look else {}
        history = History(sagemaker, target_state.name if deployment else None, s3=s3)
        prices = load(definition.region)
        notes = _CodeNotes(s3, definition)
        forecast = partial(foresee, region=definition.region)
        plan = complete(target_state, deployment, history, prices, parameters, notes, forecast)
        document = started_with(target_state.document, parameters)
        overwrites = tuple(overwritten(s3, document, plan.outcomes, NEW_DATA))
        drift = _drift(s3, definition, deployment) if deployment and plan.diff else plan.drift
        remarks = (ledger.describe(next_look),) if next_look else ()
        return with_budget(
            definition, replace(plan, overwritten=overwrites, drift=drift, remarks=remarks)
        )


def with_budget(definition: CompiledPipeline, plan: Plan) -> Plan:
    """Return the plan with what the definition itself says: the recipe's budget, and the models
    that trainings start from.
    """
    budget = check_budget(definition.budget, plan.costs, plan.prices)
    return replace(plan, begins=dict(starting_models(plan.target.document)), budget=budget)


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
        if error_code(error) == "NoSuchBucket":
            return None
        raise


def _drift(s3: Any, definition: CompiledPipeline, deployment: DeployedPipeline) -> Drift:
    """Return whether the deployed pipeline was changed other than by upsert, and by whom."""
    location = upsert_lock.place(definition)
    records = upsert_lock.list_records(s3, location)
    if deployment.state.fingerprint in records.times:
        return Drift(kind="none")
    holder = Lock(s3, location, definition.name, 0).holder() if records.is_locked else None
    if holder:
        return Drift(kind="interrupted", by=holder.owner, since=holder.since)
    if records.last is None:
        return Drift(kind="unknown")
    diff = compare(upsert_lock.read(s3, location, records.last), deployment.state)
    return Drift(kind="edited", diff=diff, by=deployment.by, since=deployment.changed_at)


class _CodeNotes:
    """Describes which files of a code folder changed: compares the checkout's with those in S3."""

    def __init__(self, s3: Any, definition: CompiledPipeline) -> None:
        self._s3 = s3
        self._assets = {asset.uri: asset for asset in definition.assets}
        self._kms_key = definition.kms_key

    def __call__(self, old: str, new: str) -> str:
        """Describe how the code folder ``new`` differs from ``old``; "" if one is not a
        code folder.
        """
        asset, match = self._assets.get(new), CODE.fullmatch(old)
        if asset is None or match is None:
            return ""
        try:
            remote_objects = dict(listing(self._s3, match["bucket"], match["key"]))
        except ClientError as error:  # another account's bucket, or one that was deleted
            return f"the old files cannot be listed ({error_code(error)})"
        return changed_files(remote_objects, asset.files, self._kms_key) if remote_objects else ""


def changed_files(
    remote_objects: Mapping[str, tuple[int, str]], files: Mapping[str, bytes], kms_key: str | None
) -> str:
    """Describe changed files, such as ``2 files: ~ training/loop.py, + training/new.py``.

    ``remote_objects``: name to (bytes, ETag).
    """
    signs = {
        name: "~"
        for name, body in files.items()
        if not same(remote_objects.get(name), body, kms_key)
    }
    signs |= {name: "+" for name in files if name not in remote_objects}
    signs |= {name: "-" for name in remote_objects if name not in files}
    names = [f"{signs[name]} {name}" for name in sorted(signs)]
    more = [f"{len(names) - FILES} more"] if len(names) > FILES else []
    by_size = ", compared by size only: ETags under KMS are not MD5" if kms_key else ""
    count = f"{len(names)} file{'' if len(names) == 1 else 's'}"
    return f"{count}: {', '.join([*names[:FILES], *more])}{by_size}"


# Estimate the training steps that run our loop, for plan and budget.

LONGEST = 28 * 24 * 60
"""Most minutes that a training job may run (service quotas: "longest run time for a
training job").
"""

GIVEN_UP = 50
"""Multiple of its undisturbed duration after which a training that never ends is assumed to be
stopped.
"""


def foresee(document: Mapping[str, Any], region: str) -> Foresight:
    """Return training step name to forecast, with parameters at their defaults.

    Raises:
        ForesightError: the calibration cannot be read.
    """
    calibration = measured_corrections.read()
    readable, _ = read(json.dumps(document))
    jobs = () if readable is None else training(readable)
    trainings = (job for job in jobs if job.step.type == "Training")
    return {job.step.name: _foresee(job, calibration, region) for job in trainings}


def _foresee(job: Job, calibration: Calibration, region: str) -> Foreseen | NotForeseen:
    """Return the forecast of one training job, or why there is none."""
    try:
        training = of_request(job)
    except ForesightError as error:
        return NotForeseen(str(error))
    time = calibration.time(training.setting, training.shapes)
    memory_need = memory.foresee(training.setting, training.shapes)
    mode = "spot" if job.spot else "on demand"
    # Includes start, steps, saves and interruptions. The machines have no price here, because a
    # plan has prices of its own.
    run = foresee_run(
        machines(str(job.instance_type), job.nodes, mode, region=region),
        (training.shapes or model_shapes.from_setting(training.setting)).parameters,
        time.step_seconds,
        training.steps,
        interval_seconds=training.loop.checkpoint_interval * time.step_seconds.p50,
    )
    # A run that never ends is charged until it is given up.
    hours = run.charged_hours
    ends = [value * 3600 for value in (hours.p10, hours.p50, hours.p90)]
    most = max([*filter(math.isfinite, ends), GIVEN_UP * training.steps * time.step_seconds.p90])
    seconds = Spread(*(value if math.isfinite(value) else most for value in ends))
    need = describe_memory_need(training, memory_need)
    warnings = [*_warn(job, run, seconds)]
    if memory_need.fits != "yes":
        prospect = "will run" if memory_need.fits == "no" else "may run"
        warnings.append(f"{prospect} out of memory: {need}; {FIT}")
    return Foreseen(
        seconds=seconds,
        grounds=_estimate_grounds(training, time, calibration.count(training.setting.gpu)),
        parts=time.parts,
        remarks=(
            _describe_end(job, run),
            *([f"fits: {need}"] if memory_need.fits == "yes" else []),
            *(f"assumes {assumption}" for assumption in training.assumptions),
        ),
        warnings=tuple(warnings),
    )


def _warn(job: Job, run: Run, seconds: Spread) -> Iterator[str]:
    """Yield a warning for a training that may never end, or be stopped by its time limit."""
    if math.isinf(run.hours.p90):
        yield (
            "may never end: an interruption undoes more than is saved until the next; lower "
            "train.loop.checkpoint_interval, or take no spot machines"
        )
    limit = job.number("StoppingCondition.MaxRuntimeInSeconds")
    if limit is not None and seconds.p90 > limit:
        sure = "will be" if seconds.p10 > limit else "may be"
        minutes = -(-seconds.p90 // 60)
        longer = f"set train.max_runtime_minutes to {minutes:.0f} at least, or "
        yield (
            f"{sure} stopped by its time limit of {duration(limit)} before its last step: "
            f"{longer if minutes <= LONGEST else ''}take fewer steps or more machines"
        )


def _describe_end(job: Job, run: Run) -> str:
    """Return a sentence on when the training is done, including the waits for machines, with the
    expected interruptions.
    """
    mode, lost = "on spot" if job.spot else "on demand", run.interruptions
    p10, p50, p90 = (
        duration(hours * 3600) if math.isfinite(hours) else "never"
        for hours in (run.hours.p10, run.hours.p50, run.hours.p90)
    )
    return (
        f"{mode} is done after {p50} ({p10} – {p90}) with the waits for machines; "
        f"{lost.p50:,.1f} interruptions expected ({lost.p10:,.1f} – {lost.p90:,.1f})"
    )


def _estimate_grounds(training: LoopTraining, time: Time, trainings: int) -> str:
    """Return the basis of a forecast, such as ``20,000 steps of 1.29 s (1.10 – 1.51), 41% MFU, with
    start, saves …``.
    """
    step = time.step_seconds
    correction = (
        f"; corrected by {trainings} measured on {training.setting.gpu}" if trainings else ""
    )
    return (
        f"{training.steps:,} steps of {step.p50:.3g} s ({step.p10:.3g} – {step.p90:.3g}), "
        f"{time.mfu:.0%} MFU, with start, saves and what interruptions undo{correction}"
    )
