"""Plan a recipe's pipeline: the general plan, and what only the application knows about it.

This only reads from AWS. It does not need the SDK, because the definition is already compiled.
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from botocore.exceptions import ClientError

from pipelines.compile.compilation import CompiledPipeline
from pipelines.compile.training_inputs import iter_starting_models
from pipelines.delivery import upsert_lock
from pipelines.delivery.budget import check_budget
from pipelines.delivery.pipeline_objects import has_same_content, iter_objects
from pipelines.delivery.training_estimate import predict_trainings
from pipelines.delivery.upsert_lock import Lock
from pipelines.registry import ledger
from pipelines.registry.champion import build_champion_parameters
from pipelines.registry.ledger import TestLook
from trainyard.aws_clients import create_client, read_error_code, service_errors
from trainyard.plan import deployed_pipeline
from trainyard.plan.cache_prediction import History
from trainyard.plan.definition_diff import CODE, diff_definitions
from trainyard.plan.deployed_pipeline import DeployedPipeline
from trainyard.plan.pipeline_plan import (
    Drift,
    Plan,
    apply_parameters,
    create_plan,
    find_overwritten,
)
from trainyard.plan.prices import load_prices

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
            deployed_pipeline.describe_deployed_pipeline(sagemaker, definition.name),
            definition.state,
        )
        parameters = build_champion_parameters(sagemaker, target_state.document, {}, None)
        next_look = _find_next_look(s3, target_state.document, parameters)
        parameters |= {ledger.PARAMETER: str(next_look.number)} if next_look else {}
        history = History(sagemaker, target_state.name if deployment else None, s3=s3)
        prices = load_prices(definition.region)
        notes = _CodeNotes(s3, definition)
        forecast = partial(predict_trainings, region=definition.region)
        plan = create_plan(target_state, deployment, history, prices, parameters, notes, forecast)
        document = apply_parameters(target_state.document, parameters)
        overwrites = tuple(find_overwritten(s3, document, plan.outcomes, NEW_DATA))
        drift = _find_drift(s3, definition, deployment) if deployment and plan.diff else plan.drift
        remarks = (ledger.describe_look(next_look),) if next_look else ()
        return add_budget_check(
            definition, replace(plan, overwritten=overwrites, drift=drift, remarks=remarks)
        )


def add_budget_check(definition: CompiledPipeline, plan: Plan) -> Plan:
    """Return the plan with the check of the recipe's budget, and with the models that training
    steps start from.
    """
    budget = check_budget(definition.budget, plan.costs, plan.prices)
    return replace(plan, begins=dict(iter_starting_models(plan.target.document)), budget=budget)


def _find_next_look(
    s3: Any, document: Mapping[str, Any], champion: Mapping[str, str]
) -> TestLook | None:
    """Return the next execution's number in the ledger of looks; None without a bucket.

    A look is a numbered comparison with the champion on a test split: see
    ``pipelines.registry.ledger``.
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
    diff = diff_definitions(upsert_lock.read_record(s3, location, records.last), deployment.state)
    return Drift(kind="edited", diff=diff, by=deployment.by, since=deployment.changed_at)


class _CodeNotes:
    """Describes which files of a code folder differ between the checkout and S3."""

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
