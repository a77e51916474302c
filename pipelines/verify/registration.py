"""The package itself: what its execution's Register step asked for, and nothing else since.

Anybody who may update a package can edit it. The execution's own account cannot be edited: the
service keeps its definition, parameters, jobs, and which package a step of it has registered. So
the request is made again from these, and compared field by field.
"""

import json
from collections.abc import Mapping
from typing import Any

from pipelines.verify.checks import Mismatch, difference
from pipelines.verify.evidence import Absent, Evidence
from trainyard.language.evaluation import evaluate, read_json, told_by
from trainyard.language.expressions import ExpressionError, Value, lookup
from trainyard.language.steps import property_file

BY_SERVICE = (
    *("ModelPackageName", "ModelPackageVersion", "ModelPackageArn", "CreationTime", "CreatedBy"),
    *("ModelPackageStatus", "ModelPackageStatusDetails", "LastModifiedTime", "LastModifiedBy"),
    *("CertifyForMarketplace", "SkipModelValidation", "MetadataProperties", "ManagedStorageType"),
    *("ResponseMetadata", "Tags", "ModelPackageRegistrationType"),
)
"""Fields of DescribeModelPackage's answer that the service fills in."""
BY_PEOPLE = ("ModelApprovalStatus", "ApprovalDescription")
"""Fields in which an approval is told."""
OF_CONTAINER = ("ImageDigest", "ModelDataETag", "IsCheckpoint")
"""What the service adds to a container: the digest that an image's tag had, the artifact's ETag."""


def execution(evidence: Evidence) -> str:
    """The execution that the package names has registered this very package."""
    arn = evidence.metadata["execution"]
    made = [
        body["Arn"]
        for step in evidence.steps.values()
        for kind, body in step.metadata.items()
        if kind == "RegisterModel"
    ]
    if evidence.package["ModelPackageArn"] not in made:
        raise Mismatch(f"{arn} has registered {', '.join(made) or 'nothing'}, not this package")
    return arn.rpartition("/")[2]


def request(evidence: Evidence) -> str:
    """Every field and every key is what the execution asked for; there is none besides."""
    [step] = [s for s in evidence.declared.values() if s["Type"] == "RegisterModel"]
    try:
        asked = evaluate(step["Arguments"], Ran(evidence))
    except ExpressionError as error:
        raise Mismatch(
            f"the request of step {step['Name']} cannot be made again: {error}"
        ) from None
    found, expected = comparable(evidence.package), comparable(asked)
    if where := difference(expected, found):
        raise Mismatch(f"the package's {where}; the latter is what the run registered")
    return f"{len(expected)} fields"


def comparable(package: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that a registration decides, cards opened."""
    kept = {k: v for k, v in package.items() if k not in (*BY_SERVICE, *BY_PEOPLE)}
    whole = json.loads(json.dumps(kept, default=str))
    for container in whole.get("InferenceSpecification", {}).get("Containers", ()):
        for name in OF_CONTAINER:
            container.pop(name, None)
    if isinstance(card := whole.get("ModelCard"), dict):
        card["ModelCardContent"] = json.loads(card["ModelCardContent"])
    return whole


class Ran:
    """Values of an execution that is over: a :class:`trainyard.language.evaluation.Scope`."""

    def __init__(self, evidence: Evidence) -> None:
        self._evidence = evidence

    def parameter(self, name: str) -> Value:
        """Its value in this execution."""
        found = self._evidence.parameters
        if name not in found:
            raise ExpressionError(f"there is no parameter {name!r}")
        return found[name]

    def variable(self, name: str) -> str:
        """Those that name the execution; times are told by no service."""
        known = told_by(self._evidence.metadata["execution"])
        if name not in known:
            raise ExpressionError(f"Execution.{name} is not known after the run")
        return known[name]

    def property(self, step: str, path: str) -> Any:
        """What the service says of the step's job."""
        try:
            return lookup(self._evidence.job(step), path, f"Get 'Steps.{step}.{path}'")
        except Absent as why:
            raise ExpressionError(str(why)) from None

    def property_file(self, step: str, name: str, path: str) -> Any:
        """As the file lies there now."""
        folder, file = property_file(self._evidence.declared[step], name)
        return self.s3_file(f"{self.property(step, folder)}/{file}", path)

    def s3_file(self, uri: str, path: str) -> Any:
        """As the object is now."""
        try:
            return read_json(self._evidence.read(uri), path, uri)
        except Absent as why:
            raise ExpressionError(str(why)) from None
