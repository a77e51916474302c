"""The record of a promotion, and the evidence of a package that was promoted.

``promotion.json`` holds what SageMaker said of the package and its execution in the account where
it was registered by a run, the SHA-256 of every object that a check reads, and each account that
the package passed. Beside it lie the copies of these objects: ``s3://bucket/key`` as
``<folder>/bucket/key``. So a promoted package is checked without access to any other account.
"""

import json
from collections.abc import Mapping
from functools import cached_property
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from pipelines.registry.package_evidence import DESCRIBE, Absent, Evidence, split
from trainyard.runs.execution import Step

FILE = "promotion.json"
URI, SHA256, FROM, ORIGIN = "promotion_uri", "promotion_sha256", "promoted_from", "origin"
"""Customer metadata of a promoted package: where its record is and its hash; the package that it
was promoted from, and the one that a run has registered."""


class Promotion(BaseModel):
    """One promotion, from an account to another."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    package: str
    """ARN of the package that was promoted."""
    approved_by: str
    """ARN of the session that approved it."""
    approval: str
    """What the approver wrote."""
    account: str
    """Number of the account that it was promoted to."""
    verified_by: str
    """ARN of the session there that checked the copies."""
    checks: dict[str, Literal["ok", "unchecked"]]
    """Name of each check of the copies → its result."""


class Record(BaseModel):
    """The content of promotion.json."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    format: Literal[1] = 1
    origin: dict[str, Any]
    """DescribeModelPackage's answer about the package that a run has registered."""
    definition: str
    """Definition that the execution ran."""
    parameters: dict[str, str]
    """Parameters that it was started with."""
    steps: dict[str, dict[str, Any]]
    """Step → its Metadata in ListPipelineExecutionSteps."""
    jobs: dict[str, dict[str, Any]]
    """Step → the description of its job."""
    objects: dict[str, str]
    """S3 URI → SHA-256 of each object that a check reads."""
    hops: tuple[Promotion, ...]
    """The promotions, the first one first."""

    @property
    def text(self) -> bytes:
        return json.dumps(self.model_dump(mode="json"), indent=1).encode()


class PromotedEvidence(Evidence):
    """Evidence of a promoted package: the record's, and the copies beside it."""

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
        """Return the record. Raises :class:`Absent` if it is missing, or not one."""
        try:
            return Record.model_validate_json(self.read(self.uri))
        except ValidationError as wrong:
            raise Absent(f"{self.uri} is not the record of a promotion: {wrong}") from None

    def place(self, uri: str) -> tuple[str, str]:
        return split(uri if uri == self.uri else copy_of(self.folder_uri, uri))

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

    def job(self, step: str) -> dict[str, Any]:
        if step not in self.record.jobs:
            raise Absent(f"the record of the promotion has no job of step {step}")
        return self.record.jobs[step]


def evidence_of(arn: str, sagemaker: Any = None, s3: Any = None) -> Evidence:
    """Return the evidence behind a package, by a run or by a promotion.

    ``sagemaker``, ``s3``: clients to read with; default: those of the environment.
    """
    evidence = Evidence(arn, sagemaker, s3)
    return PromotedEvidence(evidence) if URI in evidence.metadata else evidence


def origin_of(arn: str | None) -> str | None:
    """Return the ARN of the package that a run has registered: of a promoted package, where it
    came from; else its own.
    """
    return Evidence(arn).metadata.get(ORIGIN, arn) if arn else None


def record_of(evidence: Evidence) -> Record:
    """Return what a check may ask of the evidence, as the record of its next promotion."""
    if isinstance(evidence, PromotedEvidence):
        return evidence.record
    steps = evidence.steps
    jobs = [name for name, step in steps.items() if DESCRIBE.keys() & step.metadata]
    plain = {
        "origin": {k: v for k, v in evidence.package.items() if k != "ResponseMetadata"},
        "definition": evidence.definition,
        "parameters": evidence.start_parameters,
        "steps": {name: dict(step.metadata) for name, step in steps.items()},
        "jobs": {name: evidence.job(name) for name in jobs},
        "objects": {},
        "hops": (),
    }
    return Record.model_validate(json.loads(json.dumps(plain, default=str)))


def copy_of(folder: str, uri: str) -> str:
    """Return the URI of the copy, below the record's folder, of an object or prefix."""
    return f"{folder}/{uri.removeprefix('s3://')}"


def request(record: Record, folder: str, sha256: str, group: str) -> dict[str, Any]:
    """Return CreateModelPackage's request for a promoted package, before an approval.

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
"""Fields that the service adds to a container: the digest of an image's tag, the artifact's
ETag."""


def _move_uris(value: Any, record: Record, folder: str) -> Any:
    """Return the field of the package with every URI of the record replaced by its copy's."""
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
    return copy_of(folder, value) if is_copied else value
