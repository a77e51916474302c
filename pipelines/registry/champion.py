"""Find the champion: the model package with which an execution's model is compared.

It is set when an execution is started. An execution that is started without one (from AWS's
console, or by an EventBridge rule) has ``unresolved`` in its parameter ChampionArn, and the gate
rejects its model.
"""

import json
import re
from collections.abc import Mapping
from functools import cached_property
from typing import Any, Literal

from botocore.exceptions import ClientError
from pydantic import BaseModel, ConfigDict, ValidationError

from conditions.no_champion import NONE, UNRESOLVED_ARN
from pipelines.endpoint.rollout import find_served_package
from pipelines.recipe.sections import parse_account
from pipelines.registry.package_evidence import (
    DESCRIBE,
    Absent,
    Evidence,
    find_model_uri,
    split_s3_uri,
)
from steps.register.config import ENDPOINT
from training.weights.starting_weights import parse_start
from trainyard.aws_clients import create_client, read_error_code, service_errors
from trainyard.common.errors import GateError, RecipeError, ServiceError
from trainyard.language.definition_document import iter_steps
from trainyard.runs.execution import Step

_SHA256 = re.compile("[0-9a-f]{64}")

NO_CHAMPION = {"no-champion.json": json.dumps({"champion": None}).encode()}
"""Folder that ChampionModelUri names if there is no champion, because a ProcessingInput
must exist.
"""


def build_champion_parameters(
    sagemaker: Any,
    definition: Mapping[str, Any],
    parameters: Mapping[str, str],
    champion: str | None,
) -> dict[str, str]:
    """Return the parameters ChampionArn and, if there is a champion, ChampionModelUri.

    Return {} for a pipeline without these parameters, or if ``parameters``, those of this
    execution, name the champion.

    Args:
        champion: ARN of a model package, or ``none``; None for the latest Approved package, or if
            there is none yet, for the package that the training starts from.

    Raises:
        RecipeError: a champion was named, but the pipeline has no parameter for one.
        ServiceError: the package has no model.tar.gz, or AWS refused.
    """
    parameter_names = {parameter["Name"] for parameter in definition.get("Parameters", ())}
    if "ChampionArn" not in parameter_names:
        if champion is not None:
            raise RecipeError(
                f"--champion {champion}: this pipeline has no parameter ChampionArn; upsert it "
                "with this version of Trainyard"
            )
        return {}
    if "ChampionArn" in parameters:
        return {}
    arn = champion
    if not arn:
        group, endpoint = _find_group_and_endpoint(definition)
        arn = (find_champion(sagemaker, group, endpoint) if group else None) or NONE
    if arn == NONE and champion is None:
        arn = _find_starting_package(definition) or NONE
    if arn == NONE:
        return {"ChampionArn": NONE}
    fix = "name another with --champion ARN, or none"
    uri, _ = locate_model(sagemaker, arn, "champion", f"reject the package, or {fix}")
    return {"ChampionArn": arn, "ChampionModelUri": uri}


def list_approved(sagemaker: Any, group: str) -> list[str]:
    """Return the ARNs of the group's Approved packages, newest first; [] if the group does not
    exist.

    The first one is the champion if no endpoint serves another.

    Raises:
        ServiceError: AWS refused.
    """
    pages = sagemaker.get_paginator("list_model_packages").paginate(
        ModelPackageGroupName=group,
        ModelApprovalStatus="Approved",
        # Sorted by registration, not approval: ListModelPackages has no other time.
        SortBy="CreationTime",
        SortOrder="Descending",
    )
    with service_errors(f"listing the Approved packages of {group}"):
        try:
            return [
                summary["ModelPackageArn"]
                for page in pages
                for summary in page["ModelPackageSummaryList"]
            ]
        except ClientError as error:
            # AWS's page on ListModelPackages names no error for a missing group. The message is
            # known from experience, and from our emulator.
            missing = read_error_code(error) in ("ValidationException", "ResourceNotFound")
            if missing and "does not exist" in str(error):
                return []  # the first registration creates it
            raise


def get_package_group(package: Mapping[str, Any]) -> str:
    """Return the group of a described package, in the form that the API takes.

    This is its name, or its ARN if it is in another account than the execution that registered the
    package.
    """
    arn, group = package["ModelPackageArn"], package["ModelPackageGroupName"]
    run = (package.get("CustomerMetadataProperties") or {}).get("execution", "")
    if parse_account(run) in (None, parse_account(arn)):
        return group
    return f"{arn.partition(':model-package/')[0]}:model-package-group/{group}"


def find_champion(sagemaker: Any, group: str, endpoint: str | None) -> str | None:
    """Return the champion: the group's package that the endpoint serves, or else the newest
    Approved package; None if there is neither.

    Raises:
        ServiceError: AWS refused.
    """
    served_package = find_served_package(sagemaker, endpoint) if endpoint else None
    if (
        served_package
        and served_package.rpartition(":model-package/")[2].split("/")[0]
        == group.rpartition("/")[2]
    ):
        return served_package
    return next(iter(list_approved(sagemaker, group)), None)


def _find_starting_package(definition: Mapping[str, Any]) -> str | None:
    """Return the ARN of the package that the training starts from; None if there is none."""
    for step in iter_steps(definition["Steps"]):
        start_text = step.arguments.get("HyperParameters", {}).get("start_from")
        if isinstance(start_text, str) and (start := parse_start(start_text)):
            return start.model_package
    return None


def _find_group_and_endpoint(definition: Mapping[str, Any]) -> tuple[str | None, str | None]:
    """Return (model package group in which the pipeline registers, endpoint to which its recipe
    deploys); None for what the pipeline does not have.
    """
    for step in iter_steps(definition["Steps"]):
        group = step.arguments.get("ModelPackageGroupName")
        if step.type == "RegisterModel" and isinstance(group, str):
            return group, step.arguments.get("CustomerMetadataProperties", {}).get(ENDPOINT)
    return None, None


def locate_model(sagemaker: Any, arn: str, label: str, fix: str) -> tuple[str, str | None]:
    """Return (S3 URI of a package's model, its SHA-256 or None if the package was not registered by
    us).

    Args:
        label, fix: for error messages: what the package is used for, and how to fix the problem.

    Raises:
        ServiceError: the package or its model does not exist, or it does not name exactly one
            model.
    """
    with service_errors(f"looking at {label} {arn}"):
        package = sagemaker.describe_model_package(ModelPackageName=arn)
    containers = package.get("InferenceSpecification", {}).get("Containers", [])
    uris = [uri for container in containers if (uri := find_model_uri(container))]
    if len(uris) != 1:
        raise ServiceError(
            f"{label} {arn}: names {len(uris)} models (InferenceSpecification.Containers"
            f"[].ModelDataUrl or ModelDataSource), expected one; {fix}"
        )
    _check_model_exists(sagemaker, uris[0], f"{label} {arn}: its model", fix)
    recorded_sha256 = package.get("CustomerMetadataProperties", {}).get("artifact_sha256", "")
    return uris[0], recorded_sha256 if _SHA256.fullmatch(recorded_sha256) else None


def _check_model_exists(sagemaker: Any, uri: str, label: str, fix: str) -> None:
    """Check before the training starts that the model's object exists."""
    bucket, _, key = uri.removeprefix("s3://").partition("/")
    try:
        s3 = create_client("s3", sagemaker.meta.region_name)
        if not key.endswith("/"):
            s3.head_object(Bucket=bucket, Key=key)
            return
        if s3.list_objects_v2(Bucket=bucket, Prefix=key, MaxKeys=1).get("KeyCount"):
            return
    except ClientError as error:
        # Without permission to look it up, assume that it exists.
        if read_error_code(error) not in ("404", "NoSuchKey", "NoSuchBucket"):
            return
    raise ServiceError(f"{label} {uri} does not exist; restore it, or {fix}")


NOBODY = (NONE, UNRESOLVED_ARN, None)


def read_compared_champion(evidence: Evidence) -> str | None:
    """Return the champion on which the verdict is based: an ARN or ``none``; None if there was no
    comparison.

    Raises:
        GateError: the package's evidence is missing.
    """
    try:
        gate = evidence.read_json(evidence.find_source("Constraints")["S3Uri"])
        evaluation = evidence.read_json(evidence.find_source("Statistics")["S3Uri"])
    except Absent as error:
        raise GateError(f"{evidence.arn}: not approved: {error}") from None
    scored_as = evaluation.get("champion")
    champion = gate.get("champion") or (
        scored_as.get("arn") if isinstance(scored_as, dict) else None
    )
    return None if champion == UNRESOLVED_ARN else champion


def check_champion(arn: str, verdict_champion: str | None, champion: str | None) -> None:
    """Check that the verdict is based on the current champion.

    Raises:
        GateError: it is based on another champion.
    """
    if (
        verdict_champion is None
        or verdict_champion == champion
        or (verdict_champion in NOBODY and champion is None)
    ):
        return
    now = champion or "none: it was rejected, or deleted"
    raise GateError(
        f"{arn}: not approved: the champion has changed since the verdict. The gate compared with "
        f"{verdict_champion}, the champion is now {now}; start the pipeline again, so that the "
        "gate compares with the current champion"
    )


def check_champions_model(evidence: Evidence, verdict_champion: str | None) -> None:
    """Check that the model that was scored as the champion's is the one that the registry approved.

    Raises:
        GateError: another model was scored.
    """
    if verdict_champion is None or verdict_champion in NOBODY:
        return
    scored_champion = evidence.read_json(evidence.find_source("Statistics")["S3Uri"])["champion"]
    if not scored_champion.get("artifact"):  # not comparable, or only its table of scores was used
        return
    champion, scored_sha256 = Evidence(verdict_champion), scored_champion["artifact"].get("sha256")
    used, approved_uri = evidence.parameters["ChampionModelUri"], champion.model
    recorded_sha256 = champion.metadata.get("artifact_sha256") or champion.hash_model()
    if (used, scored_sha256) != (approved_uri, recorded_sha256):
        raise GateError(
            f"{evidence.arn}: not approved: the model scored as champion {verdict_champion} is "
            f"{used} ({scored_sha256}), but the registry's is {approved_uri} ({recorded_sha256}); "
            "start the pipeline again"
        )


# The record of a promotion, and the evidence of a package that was promoted.
#
# ``promotion.json`` contains what SageMaker said about the package and its execution in the account
# where an execution registered it, the SHA-256 of every object that a check reads, and each account
# to which the package was promoted. The same folder has copies of these objects:
# ``s3://bucket/key`` is copied to ``<folder>/bucket/key``. So a promoted package is checked without
# access to any other account.

FILE = "promotion.json"
URI, SHA256, FROM, ORIGIN = "promotion_uri", "promotion_sha256", "promoted_from", "origin"
"""Keys of a promoted package's customer metadata: the record's location and hash, the package that
it was promoted from, and the package that an execution registered.
"""


class Promotion(BaseModel):
    """One promotion, from one account to another."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    package: str
    """ARN of the package that was promoted."""
    approved_by: str
    """ARN of the session that approved the package."""
    approval: str
    """ApprovalDescription of the package."""
    account: str
    """ID of the account to which the package was promoted."""
    verified_by: str
    """ARN of the session in that account that checked the copies."""
    checks: dict[str, Literal["ok", "unchecked"]]
    """Result of each check of the copies, by the check's name."""


class Record(BaseModel):
    """The content of promotion.json."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    format: Literal[1] = 1
    origin: dict[str, Any]
    """DescribeModelPackage's response about the package that an execution registered."""
    definition: str
    """Definition that the execution used."""
    parameters: dict[str, str]
    """Parameters with which it was started."""
    steps: dict[str, dict[str, Any]]
    """Each step's Metadata in ListPipelineExecutionSteps, by the step's name."""
    jobs: dict[str, dict[str, Any]]
    """The description of each step's job, by the step's name."""
    objects: dict[str, str]
    """SHA-256 of each object that a check reads, by S3 URI."""
    hops: tuple[Promotion, ...]
    """The promotions, the earliest first."""

    @property
    def text(self) -> bytes:
        """Return the content of promotion.json."""
        return json.dumps(self.model_dump(mode="json"), indent=1).encode()


class PromotedEvidence(Evidence):
    """Evidence of a promoted package: the promotion's record, and the copies in its folder."""

    def __init__(self, registered_evidence: Evidence) -> None:
        super().__init__(
            registered_evidence.arn, registered_evidence._sagemaker, registered_evidence._s3
        )
        self.registered_package = registered_evidence.registered_package
        self.uri = self.promotion[URI]
        self.folder_uri = self.uri.rpartition("/")[0]

    @property
    def promotion(self) -> Mapping[str, str]:
        """Return the customer metadata of the promoted package itself."""
        return self.registered_package.get("CustomerMetadataProperties", {})

    @cached_property
    def record(self) -> Record:
        """Return the promotion's record.

        Raises:
            Absent: promotion.json is missing, or is not a record.
        """
        try:
            return Record.model_validate_json(self.read(self.uri))
        except ValidationError as wrong:
            raise Absent(f"{self.uri} is not the record of a promotion: {wrong}") from None

    def locate(self, uri: str) -> tuple[str, str]:
        """Return (bucket, key) of the copy of the object ``uri``, or of the record itself."""
        return split_s3_uri(uri if uri == self.uri else build_copy_uri(self.folder_uri, uri))

    @property
    def package(self) -> dict[str, Any]:
        """Return the package that the execution registered, in the account of origin."""
        return self.record.origin

    @property
    def definition(self) -> str:  # type: ignore[override]
        return self.record.definition

    @property
    def start_parameters(self) -> dict[str, str]:  # type: ignore[override]
        return self.record.parameters

    @cached_property
    def steps(self) -> dict[str, Step]:
        """Return the recorded steps, by name, all as succeeded."""
        return {
            name: Step(
                name=name,
                title=name,
                status="Succeeded",
                started=None,
                ended=None,
                reason="",
                cached=False,
                metadata=metadata,
            )
            for name, metadata in self.record.steps.items()
        }

    def read_job(self, step: str) -> dict[str, Any]:
        """Return the recorded description of the step's job."""
        if step not in self.record.jobs:
            raise Absent(f"the record of the promotion has no job of step {step}")
        return self.record.jobs[step]


def open_evidence(arn: str, sagemaker: Any = None, s3: Any = None) -> Evidence:
    """Return the evidence of a package that was registered by an execution or by a promotion.

    ``sagemaker``, ``s3``: clients to read with; default: new ones for the package's region.
    """
    evidence = Evidence(arn, sagemaker, s3)
    return PromotedEvidence(evidence) if URI in evidence.metadata else evidence


def find_original_package(arn: str | None) -> str | None:
    """Return the ARN of the package that an execution registered: for a promoted package, the
    original one; else ``arn`` itself.
    """
    return Evidence(arn).metadata.get(ORIGIN, arn) if arn else None


def build_record(evidence: Evidence) -> Record:
    """Return the evidence that checks read, as the record of the next promotion."""
    if isinstance(evidence, PromotedEvidence):
        return evidence.record
    steps = evidence.steps
    jobs = [name for name, step in steps.items() if DESCRIBE.keys() & step.metadata]
    plain = {
        "origin": {k: v for k, v in evidence.package.items() if k != "ResponseMetadata"},
        "definition": evidence.definition,
        "parameters": evidence.start_parameters,
        "steps": {name: dict(step.metadata) for name, step in steps.items()},
        "jobs": {name: evidence.read_job(name) for name in jobs},
        "objects": {},
        "hops": (),
    }
    return Record.model_validate(json.loads(json.dumps(plain, default=str)))


def build_copy_uri(folder: str, uri: str) -> str:
    """Return the URI of the copy of an object or prefix, below the record's folder."""
    return f"{folder}/{uri.removeprefix('s3://')}"


def build_package_request(record: Record, folder: str, sha256: str, group: str) -> dict[str, Any]:
    """Return CreateModelPackage's request for a promoted package that is not yet approved.

    Args:
        folder: S3 URI of the record's folder.
        sha256: hash of promotion.json.
        group: name or ARN of the model package group.
    """
    origin = record.origin
    moved_fields = {
        field: _move_uris(origin[field], record, folder)
        for field in ("InferenceSpecification", "ModelMetrics", "DriftCheckBaselines")
        if field in origin
    }
    kept_fields = {k: origin[k] for k in ("ModelCard", "ModelPackageDescription") if k in origin}
    metadata = dict(origin.get("CustomerMetadataProperties", {}))
    metadata |= {URI: f"{folder}/{FILE}", SHA256: sha256}
    metadata |= {FROM: record.hops[-1].package, ORIGIN: origin["ModelPackageArn"]}
    return {
        "ModelPackageGroupName": group,
        "ModelApprovalStatus": "PendingManualApproval",
        "CustomerMetadataProperties": metadata,
        **kept_fields,
        **moved_fields,
    }


OF_SERVICE = ("ImageDigest", "ModelDataETag", "IsCheckpoint")
"""Fields that the service adds to a container: the digest of an image's tag, the artifact's ETag,
and whether it is a checkpoint.
"""


def _move_uris(value: Any, record: Record, folder: str) -> Any:
    """Return a package's field with the URIs of copied objects replaced by those of the copies."""
    if isinstance(value, dict):
        fields = {k: v for k, v in value.items() if k not in OF_SERVICE}
        return {k: _move_uris(v, record, folder) for k, v in fields.items()}
    if isinstance(value, list):
        return [_move_uris(v, record, folder) for v in value]
    if not isinstance(value, str) or not value.startswith("s3://"):
        return value
    is_copied = value in record.objects or (
        value.endswith("/") and any(uri.startswith(value) for uri in record.objects)
    )
    return build_copy_uri(folder, value) if is_copied else value
