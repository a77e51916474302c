"""Plan a recipe's pipeline: the general plan, and what only the application knows about it.

Only reads. The SDK is not needed here, since the definition is already compiled.
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from botocore.exceptions import ClientError

from pipelines.advice import capacity_fallback, early_stopping
from pipelines.compile.compilation import CompiledPipeline
from pipelines.compile.training_inputs import starting_models
from pipelines.deploy import shard_volume, upsert_records
from pipelines.deploy.budget import check_budget
from pipelines.deploy.pipeline_objects import listing, same
from pipelines.deploy.training_estimate import foresee
from pipelines.deploy.upsert_lock import Lock
from pipelines.registry import ledger
from pipelines.registry.champion import champion_parameters
from pipelines.registry.ledger import TestLook
from pipelines.serving import endpoint_cost
from trainyard.aws_clients import client, error_code, service_errors
from trainyard.plan import deployed_pipeline
from trainyard.plan.definition_diff import compare
from trainyard.plan.deployed_pipeline import DeployedPipeline
from trainyard.plan.execution_history import History
from trainyard.plan.overwritten_data import overwritten
from trainyard.plan.pipeline_plan import Drift, Plan, complete, started_with
from trainyard.plan.prices import load
from trainyard.plan.step_fields import CODE

FILES = 3  # most names of changed files in one line
NEW_DATA = (
    "put new data under a new prefix (data.input, --parameter InputUri=…), or upsert with "
    "cache.enabled=false"
)
"""Advice on input data that was overwritten."""


def make(definition: CompiledPipeline) -> Plan:
    """Compare ``definition`` with what is deployed.

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
        types = definition.fallback_instance_types
        others = capacity_fallback.remarks(
            document, parameters, types, plan.outcomes, history, prices
        )
        small = shard_volume.remarks(s3, document)
        cost_remarks = (
            *early_stopping.remarks(sagemaker, history, prices),
            *endpoint_cost.remarks(definition.deploy, prices),
        )
        remarks = (
            *((ledger.describe(next_look),) if next_look else ()),
            *others,
            *small,
            *cost_remarks,
        )
        return with_budget(
            definition, replace(plan, overwritten=overwrites, drift=drift, remarks=remarks)
        )


def with_budget(definition: CompiledPipeline, plan: Plan) -> Plan:
    """Return the plan with what the definition itself says: the recipe's budget, and
    how it begins.
    """
    budget = check_budget(definition.budget, plan.costs, plan.prices)
    return replace(plan, begins=dict(starting_models(plan.target.document)), budget=budget)


def _find_next_look(
    s3: Any, document: Mapping[str, Any], champion: Mapping[str, str]
) -> TestLook | None:
    """Return the look at the test split that the next run would be; the first where there is no
    bucket yet.
    """
    try:
        return ledger.find_look(s3, document, champion)
    except ClientError as error:
        if error_code(error) == "NoSuchBucket":
            return None
        raise


def _drift(s3: Any, definition: CompiledPipeline, deployment: DeployedPipeline) -> Drift:
    location = upsert_records.place(definition)
    records = upsert_records.list_records(s3, location)
    if deployment.state.fingerprint in records.times:
        return Drift(kind="none")
    holder = Lock(s3, location, definition.name, 0).holder() if records.is_locked else None
    if holder:
        return Drift(kind="interrupted", by=holder.owner, since=holder.since)
    if records.last is None:
        return Drift(kind="unknown")
    diff = compare(upsert_records.read(s3, location, records.last), deployment.state)
    return Drift(kind="edited", diff=diff, by=deployment.by, since=deployment.changed_at)


class _CodeNotes:
    """Notes on which files of a code folder changed: the checkout's compared with those in S3."""

    def __init__(self, s3: Any, definition: CompiledPipeline) -> None:
        self._s3 = s3
        self._assets = {asset.uri: asset for asset in definition.assets}
        self._kms_key = definition.kms_key

    def __call__(self, old: str, new: str) -> str:
        asset, match = self._assets.get(new), CODE.fullmatch(old)
        if asset is None or match is None:
            return ""
        try:
            remote_objects = dict(listing(self._s3, match["bucket"], match["key"]))
        except ClientError as error:  # another account's, or a bucket that is gone
            return f"the old files cannot be listed ({error_code(error)})"
        return changed_files(remote_objects, asset.files, self._kms_key) if remote_objects else ""


def changed_files(
    remote_objects: Mapping[str, tuple[int, str]], files: Mapping[str, bytes], kms_key: str | None
) -> str:
    """Describe changed files, as ``2 files: ~ training/loop.py, + training/new.py``;
    ``remote_objects``: name → (bytes, ETag).
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
