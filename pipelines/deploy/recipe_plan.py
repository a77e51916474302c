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
from pipelines.registry.ledger import Look
from pipelines.serving import endpoint_cost
from trainyard.aws_clients import client, error_code, service_errors
from trainyard.plan import deployed_pipeline
from trainyard.plan.definition_diff import compare
from trainyard.plan.deployed_pipeline import Deployed
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
        there, wanted = deployed_pipeline.describe(sagemaker, definition.name), definition.state
        given = champion_parameters(sagemaker, wanted.document, {}, None)
        look = _look(s3, wanted.document, given)
        given |= {ledger.PARAMETER: str(look.number)} if look else {}
        history = History(sagemaker, wanted.name if there else None, s3=s3)
        prices = load(definition.region)
        notes = _CodeNotes(s3, definition)
        ahead = partial(foresee, region=definition.region)
        plan = complete(wanted, there, history, prices, given, notes, ahead)
        document = started_with(wanted.document, given)
        found = tuple(overwritten(s3, document, plan.outcomes, NEW_DATA))
        drift = _drift(s3, definition, there) if there and plan.diff else plan.drift
        types = definition.fallback_instance_types
        others = capacity_fallback.remarks(document, given, types, plan.outcomes, history, prices)
        small = shard_volume.remarks(s3, document)
        beside = (
            *early_stopping.remarks(sagemaker, history, prices),
            *endpoint_cost.remarks(definition.deploy, prices),
        )
        remarks = (*((ledger.describe(look),) if look else ()), *others, *small, *beside)
        return with_budget(
            definition, replace(plan, overwritten=found, drift=drift, remarks=remarks)
        )


def with_budget(definition: CompiledPipeline, plan: Plan) -> Plan:
    """Return the plan with what the definition itself says: the recipe's budget, and
    how it begins.
    """
    budget = check_budget(definition.budget, plan.costs, plan.prices)
    return replace(plan, begins=dict(starting_models(plan.wanted.document)), budget=budget)


def _look(s3: Any, document: Mapping[str, Any], champion: Mapping[str, str]) -> Look | None:
    """Return the look at the test split that the next run would be; the first where there is no
    bucket yet.
    """
    try:
        return ledger.look(s3, document, champion)
    except ClientError as error:
        if error_code(error) == "NoSuchBucket":
            return None
        raise


def _drift(s3: Any, definition: CompiledPipeline, there: Deployed) -> Drift:
    where = upsert_records.place(definition)
    found = upsert_records.listed(s3, where)
    if there.state.fingerprint in found.recorded:
        return Drift(kind="none")
    holder = Lock(s3, where, definition.name, 0).holder() if found.locked else None
    if holder:
        return Drift(kind="interrupted", by=holder.who, since=holder.since)
    if found.last is None:
        return Drift(kind="unknown")
    diff = compare(upsert_records.read(s3, where, found.last), there.state)
    return Drift(kind="edited", diff=diff, by=there.by, since=there.changed)


class _CodeNotes:
    """Notes on which files of a code folder changed: the checkout's compared with those in S3."""

    def __init__(self, s3: Any, definition: CompiledPipeline) -> None:
        self._s3 = s3
        self._assets = {asset.uri: asset for asset in definition.assets}
        self._kms_key = definition.kms_key

    def __call__(self, old: str, new: str) -> str:
        asset, where = self._assets.get(new), CODE.fullmatch(old)
        if asset is None or where is None:
            return ""
        try:
            there = dict(listing(self._s3, where["bucket"], where["key"]))
        except ClientError as error:  # another account's, or a bucket that is gone
            return f"the old files cannot be listed ({error_code(error)})"
        return changed_files(there, asset.files, self._kms_key) if there else ""


def changed_files(
    there: Mapping[str, tuple[int, str]], files: Mapping[str, bytes], kms_key: str | None
) -> str:
    """Describe changed files, as ``2 files: ~ training/loop.py, + training/new.py``; ``there``:
    name → (bytes, ETag).
    """
    signs = {name: "~" for name, body in files.items() if not same(there.get(name), body, kms_key)}
    signs |= {name: "+" for name in files if name not in there}
    signs |= {name: "-" for name in there if name not in files}
    names = [f"{signs[name]} {name}" for name in sorted(signs)]
    more = [f"{len(names) - FILES} more"] if len(names) > FILES else []
    by_size = ", compared by size only: ETags under KMS are not MD5" if kms_key else ""
    count = f"{len(names)} file{'' if len(names) == 1 else 's'}"
    return f"{count}: {', '.join([*names[:FILES], *more])}{by_size}"
