"""Run all checks of a package, one after the other, and collect their findings."""

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pipelines.recipe.aws_section import account_in
from pipelines.registry import data_checks, recompute, record_checks, training_checks
from pipelines.registry.package_evidence import THREADS, Absent, Evidence
from pipelines.registry.promotion_record import (
    FILE,
    OF_SERVICE,
    SHA256,
    PromotedEvidence,
    evidence_of,
)
from pipelines.registry.promotion_record import request as promoted_request
from pipelines.registry.record_checks import Mismatch, UncheckedError, difference, same
from trainyard.common.errors import ServiceError
from trainyard.language.evaluation import arn_variables, evaluate, read_json
from trainyard.language.expressions import ExpressionError, Value, lookup
from trainyard.language.steps import property_file

# A package can be edited with permission to update it. The execution cannot be edited: the
# service keeps its definition, parameters, jobs, and which package its step has registered.
# So the request is built again from these, and compared field by field.


BY_SERVICE = (
    *("ModelPackageName", "ModelPackageVersion", "ModelPackageArn", "CreationTime", "CreatedBy"),
    *("ModelPackageStatus", "ModelPackageStatusDetails", "LastModifiedTime", "LastModifiedBy"),
    *("CertifyForMarketplace", "SkipModelValidation", "MetadataProperties", "ManagedStorageType"),
    *("ResponseMetadata", "Tags", "ModelPackageRegistrationType"),
)
"""Fields of DescribeModelPackage's answer that the service fills in."""
BY_PEOPLE = ("ModelApprovalStatus", "ApprovalDescription")
"""Fields that record an approval."""


def execution(evidence: Evidence) -> str:
    """Check that the execution that the package names has registered this very package."""
    arn = evidence.metadata["execution"]
    package_arns = [
        body["Arn"]
        for step in evidence.steps.values()
        for kind, body in step.metadata.items()
        if kind == "RegisterModel"
    ]
    if evidence.package["ModelPackageArn"] not in package_arns:
        raise Mismatch(
            f"{arn} has registered {', '.join(package_arns) or 'nothing'}, not this package"
        )
    return arn.rpartition("/")[2]


def request(evidence: Evidence) -> str:
    """Check that the package's fields and keys are exactly those that the execution asked for."""
    [step] = [s for s in evidence.definition_steps.values() if s["Type"] == "RegisterModel"]
    try:
        step_request = evaluate(step["Arguments"], Ran(evidence))
    except ExpressionError as error:
        raise Mismatch(
            f"the request of step {step['Name']} cannot be built again: {error}"
        ) from None
    actual, reference = comparable(evidence.package), comparable(step_request)
    if mismatch := difference(reference, actual):
        raise Mismatch(f"the package's {mismatch}; the latter is what the run registered")
    return f"{len(reference)} fields"


def comparable(package: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields that a registration decides, with model cards parsed."""
    kept_fields = {k: v for k, v in package.items() if k not in (*BY_SERVICE, *BY_PEOPLE)}
    document = json.loads(json.dumps(kept_fields, default=str))
    if group := document.get(
        "ModelPackageGroupName"
    ):  # asked for by its ARN, described by its name
        document["ModelPackageGroupName"] = group.rpartition("/")[2]
    for container in document.get("InferenceSpecification", {}).get("Containers", ()):
        for name in OF_SERVICE:
            container.pop(name, None)
    if isinstance(card := document.get("ModelCard"), dict):
        card["ModelCardContent"] = json.loads(card["ModelCardContent"])
    return document


def promotion(evidence: PromotedEvidence) -> str:
    """Check that a promoted package is what its record says, and that it names the record.

    Every other check then reads the record and the copies beside it.
    """
    digest = hashlib.sha256(evidence.read(evidence.uri)).hexdigest()
    same(f"SHA-256 of {FILE}", digest, evidence.promotion.get(SHA256), "the package")
    package = evidence.registered_package
    promotion_request = promoted_request(
        evidence.record, evidence.folder_uri, digest, package["ModelPackageGroupName"]
    )
    if mismatch := difference(comparable(promotion_request), comparable(package)):
        raise Mismatch(f"the package's {mismatch}; the latter is what the promotion registered")
    hops = evidence.record.hops
    same("account of the last promotion", hops[-1].account, account_in(evidence.arn), "the package")
    return " → ".join([account_in(evidence.record.origin["ModelPackageArn"]) or "",
                       *(hop.account for hop in hops)])  # fmt: skip


def copies(evidence: PromotedEvidence) -> str:
    """Check every byte of the copies that a promotion made; what an earlier check has read whole is
    not read again.
    """
    recorded_hashes = evidence.record.objects
    with ThreadPoolExecutor(THREADS) as pool:
        digests = pool.map(
            lambda uri: evidence.read_hashes.get(uri) or evidence.sha256(uri), recorded_hashes
        )
        for (uri, expected_sha256), digest in zip(recorded_hashes.items(), digests, strict=True):
            same(f"SHA-256 of the copy of {uri}", digest, expected_sha256, FILE)
    return f"{len(recorded_hashes)} objects"


class Ran:
    """Values of an execution that is over: a :class:`trainyard.language.evaluation.Scope`."""

    def __init__(self, evidence: Evidence) -> None:
        self._evidence = evidence

    def parameter(self, name: str) -> Value:
        """Return the parameter's value in this execution."""
        parameters = self._evidence.parameters
        if name not in parameters:
            raise ExpressionError(f"parameter {name!r} does not exist")
        return parameters[name]

    def variable(self, name: str) -> str:
        """Return a variable that names the execution; the service does not report its times."""
        variables = arn_variables(self._evidence.metadata["execution"])
        if name not in variables:
            raise ExpressionError(f"Execution.{name} is not known after the run")
        return variables[name]

    def property(self, step: str, path: str) -> Any:
        """Return a value of the service's description of the step's job."""
        try:
            return lookup(self._evidence.job(step), path, f"Get 'Steps.{step}.{path}'")
        except Absent as error:
            raise ExpressionError(str(error)) from None

    def property_file(self, step: str, name: str, path: str) -> Any:
        """Return the value in the property file as it is now."""
        folder, file = property_file(self._evidence.definition_steps[step], name)
        return self.s3_file(f"{self.property(step, folder)}/{file}", path)

    def s3_file(self, uri: str, path: str) -> Any:
        """Return the value in the S3 object as it is now."""
        try:
            return read_json(self._evidence.read(uri), path, uri)
        except Absent as error:
            raise ExpressionError(str(error)) from None


CHECKOUT = Path(__file__).resolve().parent.parent.parent
FOUNDATION = ("promotion", "package", "provenance")
"""Checks without which no other check has anything to compare with."""

Check = Callable[[Evidence], str]
QUICK: Mapping[str, Check] = {
    "package": record_checks.package,
    "provenance": record_checks.provenance,
    "execution": execution,
    "evaluation": record_checks.evaluation,
    "gate": record_checks.gate,
    "customer metadata": record_checks.metadata,
    "metrics": record_checks.metrics,
    "artifact": record_checks.artifact_place,
    "definition": record_checks.definition,
    "definition's record": record_checks.origin,
    "demands": record_checks.demands,
    "record": data_checks.outputs,
    "registration": request,
    "code": record_checks.code,
    "training": training_checks.history,
    "base": training_checks.begun_with,
}
"""Checks that need only a few small reads; in the order of trust."""
BYTES: Mapping[str, Check] = {
    "artifact's bytes": data_checks.artifact,
    "artifact's training": training_checks.artifact,
    "base's bytes": training_checks.check_base_unchanged,
    "scores": data_checks.scores,
}
"""Checks of every byte to be deployed, and of everything that the verdict rests on."""


@dataclass(frozen=True, slots=True)
class Finding:
    """Result of one check."""

    name: str
    status: Literal["ok", "mismatch", "unchecked"]
    detail: str


def verify(
    arn: str, checkout: Path | None = None, *, quick: bool = False, deep: bool = False
) -> list[Finding]:
    """Check the package ``arn``, in the order of trust: the first mismatch is the one to look at.

    Args:
        checkout: the checkout to compare code and recipe with; None for the current one, whose
            commit may differ without being a mismatch.
        quick: only checks that need a few small reads.
        deep: hash every byte of the dataset too.

    Raises:
        ServiceError: the package does not exist, or AWS cannot be reached.
    """
    evidence = evidence_of(arn)
    checks = choose_checks(checkout, quick=quick, deep=deep)
    return list(run_checks(evidence, checks_of(evidence, checks)))


def choose_checks(checkout: Path | None, *, quick: bool, deep: bool) -> Mapping[str, Check]:
    """Return the checks that ``verify`` runs, in their order."""
    if quick:
        return QUICK
    splits = {f"{name} split": data_checks.split(name, deep=deep) for name in ("train", "test")}
    local = recompute.checks((checkout or CHECKOUT).resolve(), is_named=checkout is not None)
    return {**QUICK, **BYTES, **splits, **local}


def before_approval(evidence: Evidence, *, deep: bool = False) -> Iterator[Finding]:
    """Run the checks for an approval: every byte of the artifact, of the evidence and of the test
    split.

    For the train split, which is not read again, the manifests and every file's name and size;
    ``deep``: every byte too. Of a promoted package, every byte of its copies.
    """
    splits = {
        "test split": data_checks.split("test", deep=True),
        "train split": data_checks.split("train", deep=deep),
    }
    return run_checks(evidence, checks_of(evidence, {**QUICK, **BYTES, **splits}))


def checks_of(evidence: Evidence, checks: Mapping[str, Check]) -> Mapping[str, Check]:
    """Return those of the checks that the evidence has something for.

    Of a promoted package the data stay in the account of origin: instead of the splits, the record
    of the promotion is checked first, and last, where every byte of the model is, all copies.
    """
    if not isinstance(evidence, PromotedEvidence):
        return checks
    kept_checks = {name: check for name, check in checks.items() if not name.endswith(" split")}
    copy_checks = (
        {"copies": lambda _: copies(evidence)} if BYTES.keys() <= kept_checks.keys() else {}
    )
    return {"promotion": lambda _: promotion(evidence), **kept_checks, **copy_checks}


def run_checks(evidence: Evidence, checks: Mapping[str, Check]) -> Iterator[Finding]:
    """Run the checks in their order."""
    missing = ""
    for name, check in checks.items():
        if missing:
            yield Finding(name, "unchecked", f"rests on {missing}")
            continue
        finding = _run_check(evidence, name, check)
        if name in FOUNDATION and finding.status != "ok":
            missing = name
        yield finding


def _run_check(evidence: Evidence, name: str, check: Check) -> Finding:
    """Run one check; a missing or malformed thing is a mismatch."""
    try:
        return Finding(name, "ok", check(evidence))
    except UncheckedError as error:
        return Finding(name, "unchecked", str(error))
    except (Mismatch, Absent, ServiceError) as error:
        return Finding(name, "mismatch", str(error))
    except (KeyError, TypeError, AttributeError, ValueError, IndexError) as error:
        return Finding(name, "mismatch", f"is malformed: {error!r}")


def first_mismatch(findings: Iterable[Finding]) -> Finding | None:
    """Return the first mismatch; None when all checks that ran match."""
    return next((finding for finding in findings if finding.status == "mismatch"), None)
