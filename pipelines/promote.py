"""Promote an Approved model package to another account: copy it, check the copies, register it.

python -m pipelines.promote MODEL_PACKAGE_ARN --recipe deploy.yaml --env staging
python -m pipelines.promote --policies ROLE_ARN --recipe deploy.yaml --env staging

It runs with the credentials of the account that ``--env`` names. The package is registered there as
PendingManualApproval; then ``python -m pipelines.approve`` in that account checks every byte again.
The second form prints the policies that the promotion needs in both accounts.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer
from s3transfer.manager import TransferManager

from pipelines.recipe.cli_options import NOT_GIVEN, EnvOption, RecipeOption, SetOption
from pipelines.recipe.config import Recipe
from pipelines.recipe.environments import find_account, refuse_other_caller, resolve_account
from pipelines.recipe.read_recipe import load_recipe
from pipelines.recipe.sections import parse_account
from pipelines.registry import recompute
from pipelines.registry.champion import (
    FILE,
    FROM,
    PromotedEvidence,
    Promotion,
    Record,
    build_copy_uri,
    build_package_request,
    build_record,
    open_evidence,
)
from pipelines.registry.package_evidence import Evidence, split_s3_uri
from pipelines.registry.record_checks import build_gate_arguments
from pipelines.registry.shared_access import (
    Destination,
    PromotionRoute,
    build_policies,
    refuse_unknown_accounts,
)
from pipelines.registry.verification import (
    BYTES,
    CHECKOUT,
    QUICK,
    Check,
    find_first_mismatch,
    run_checks,
    select_checks,
)
from steps.gate.config import GateConfig
from trainyard.aws_clients import assume_role, create_client, service_errors
from trainyard.common.errors import GateError, RecipeError
from trainyard.terminal import Need, console, errors, needs, run

SESSION = "promotion"
NOT_COPIED = ("base's bytes",)
"""Checks that read objects which are not copied to the target's account: the model that a
fine-tuning started from does not belong to its package.
"""


@dataclass(frozen=True, slots=True)
class Environments:
    """The recipe in the environment from which a package is promoted, and in the target's."""

    source: Recipe
    target: Recipe
    account: str
    """ID of the target's account."""

    @property
    def route(self) -> PromotionRoute:
        """Return accounts, groups, buckets, keys and roles on both sides of the promotion."""
        assert self.target.promotion is not None  # ``read_both_environments`` has checked it
        source, target = resolve_account(self.source.aws), resolve_account(self.target.aws)
        group = _build_group_arn(
            self.source.register_.model_package_group, source.region, source.role
        )
        return PromotionRoute(
            source=parse_account(group) or "",
            target=self.account,
            group=group,
            bucket=source.bucket,
            prefix=self.source.aws.prefix,
            reader=self.target.promotion.reader,
            key=self.source.aws.kms_key,
            into=Destination(
                bucket=target.bucket,
                prefix=f"{self.target.aws.prefix}/{self.target.pipeline.name}/promoted",
                group=_build_group_arn(
                    self.target.register_.model_package_group, source.region, target.role
                ),
                key=self.target.aws.kms_key,
            ),
        )


def _build_group_arn(group: str, region: str, role: str) -> str:
    """Return the group's ARN; a group given by name is in the role's account."""
    if group.startswith("arn:"):
        return group
    _, partition, *_ = role.split(":")
    return f"arn:{partition}:sagemaker:{region}:{parse_account(role)}:model-package-group/{group}"


def read_both_environments(
    recipe: Path, overridden: list[str], environment: str | None
) -> Environments:
    """Read the recipe for both environments of a promotion.

    Raises:
        RecipeError: no environment is named, the environment has no ``promotion``, or its reader is
            not a role of the account that packages come from.
    """
    if environment is None:
        raise RecipeError("--env: name the environment to promote to")
    target = load_recipe(recipe, overridden, environment)
    if target.promotion is None:
        raise RecipeError(
            f"{recipe}: environments.{environment}.promotion: is missing; set source: ENVIRONMENT "
            "and reader: ROLE_ARN; python -m pipelines.promote --policies prints what both "
            "accounts need"
        )
    source = load_recipe(recipe, overridden, target.promotion.source)
    number = find_account(target.aws, environment)
    if number is None:
        raise RecipeError(f"{recipe}: environments.{environment}.aws.account: is missing")
    environments = Environments(source, target, number)
    if parse_account(environments.route.reader) != environments.route.source:
        raise RecipeError(
            f"environments.{environment}.promotion.reader: is a role of account "
            f"{parse_account(environments.route.reader)}; expected one of "
            f"{environments.route.source}, "
            f"where {target.promotion.source} registers its packages"
        )
    return environments


def promote(arn: str, environments: Environments) -> str:
    """Copy a package to the target's account, check the copies and register it; return its ARN
    there.

    Raises:
        GateError: the package was not Approved by an allowed approver; something does not match its
            record, in either account; a policy grants access to others; the target's gate rejects
            it; or it was promoted before.
        ServiceError: AWS refused.
    """
    route = environments.route
    if not arn.startswith(f"{route.group.replace(':model-package-group/', ':model-package/')}/"):
        raise GateError(
            f"{arn}: is not a package of {route.group}, from which this recipe promotes"
        )
    region = route.group.split(":")[3]
    refuse_other_caller(route.target, region)
    reader = assume_role(route.reader, SESSION, region)
    refuse_unknown_accounts(
        route, *(create_client(name, region, reader) for name in ("sagemaker", "s3", "iam"))
    )
    s3 = create_client("s3", region)
    evidence = open_evidence(arn, create_client("sagemaker", region, reader), s3)
    approval = _read_approval(evidence, route, environments)
    _refuse_second_promotion(arn, environments, region)
    verdict = recompute.list_checks(CHECKOUT, is_named=False)["verdict"]
    object_hashes = _require_checks(
        evidence, select_checks(evidence, {**QUICK, **BYTES, "verdict": verdict})
    )
    _require_gate_pass(evidence, environments.target.gate)
    record = build_record(evidence)
    folder = _build_folder_uri(environments, evidence)
    # Objects that a check read only in part get their hash now.
    objects = {uri: digest or evidence.hash_object(uri) for uri, digest in object_hashes.items()}
    _copy_objects(s3, evidence, objects, folder, environments.target.aws.kms_key)
    with service_errors("asking who promotes"):
        promoter = create_client("sts", region).get_caller_identity()["Arn"]
    promotion = Promotion(account=route.target, verified_by=promoter, checks={}, **approval)
    return _register_copy(record, objects, promotion, folder, environments, region)


def _read_approval(
    evidence: Evidence, route: PromotionRoute, environments: Environments
) -> dict[str, str]:
    """Return who approved the package and why; raise GateError if that role may not."""
    package, arn = evidence.registered_package, evidence.arn
    status = package.get("ModelApprovalStatus")
    if status != "Approved":
        raise GateError(f"{arn}: is {status}; approve it in account {route.source} first")
    approver = (package.get("LastModifiedBy") or {}).get("IamIdentity", {}).get("Arn", "")
    assert environments.target.promotion is not None
    approvers = environments.target.promotion.approvers
    if parse_account(approver) != route.source or (
        approvers and not any(_is_session_of(approver, role) for role in approvers)
    ):
        expectation = ", ".join(approvers) or f"a role of account {route.source}"
        raise GateError(
            f"{arn}: was last changed by {approver or 'an unknown caller'}; expected {expectation}"
        )
    return {
        "package": arn,
        "approved_by": approver,
        "approval": package.get("ApprovalDescription", ""),
    }


def _is_session_of(session: str, role: str) -> bool:
    """Return whether ``session``, the ARN of an assumed role's session, is of that role."""
    *_, kind, name, _ = session.replace(":", "/").split("/")
    return (parse_account(session), kind, name) == (
        parse_account(role),
        "assumed-role",
        role.rpartition("/")[2],
    )


def _require_checks(evidence: Evidence, checks: Mapping[str, Check]) -> dict[str, str]:
    """Run the checks; return the objects that they read, with their hashes.

    Raises:
        GateError: a check found a mismatch.
    """
    object_hashes: dict[str, str] = {}
    for name, check in checks.items():
        # Run them one by one, because objects that a check in NOT_COPIED reads are not copied.
        evidence.read_hashes.clear()
        _refuse_mismatch(evidence.arn, list(run_checks(evidence, {name: check})))
        object_hashes |= {} if name in NOT_COPIED else evidence.read_hashes
    return {uri: digest for uri, digest in object_hashes.items() if not uri.endswith(f"/{FILE}")}


def _refuse_mismatch(arn: str, findings: list[Any]) -> dict[str, str]:
    """Return the status of each check, by name; raise GateError at the first mismatch."""
    if wrong := find_first_mismatch(findings):
        raise GateError(f"{arn}: not promoted: {wrong.name} does not match: {wrong.detail}")
    return {finding.name: finding.status for finding in findings}


def _require_gate_pass(evidence: Evidence, gate: GateConfig) -> None:
    """Raise GateError if the target's gate rejects the package, given the recorded evidence."""
    recorded_gate = GateConfig.model_validate(evidence.recipe["gate"])
    if (gate.values, gate.thresholds) == (recorded_gate.values, recorded_gate.thresholds):
        return
    refusal = "not promoted: this environment's gate differs from the one that it passed"
    gate_arguments = build_gate_arguments(evidence, gate, gate.thresholds)
    recompute.require_gate_pass(evidence, CHECKOUT, refusal, arguments=gate_arguments)


def _refuse_second_promotion(arn: str, environments: Environments, region: str) -> None:
    """Raise GateError if the package was promoted already, unless that promotion was rejected."""
    sagemaker, group = (
        create_client("sagemaker", region),
        environments.target.register_.model_package_group,
    )
    with service_errors(f"listing the packages of {group}"):
        if not _group_exists(sagemaker, group):
            return
        pages = sagemaker.get_paginator("list_model_packages").paginate(ModelPackageGroupName=group)
        packages = [p for page in pages for p in page["ModelPackageSummaryList"]]
        for package in packages:
            if package.get("ModelApprovalStatus") == "Rejected":
                continue
            description = sagemaker.describe_model_package(
                ModelPackageName=package["ModelPackageArn"]
            )
            if description.get("CustomerMetadataProperties", {}).get(FROM) == arn:
                raise GateError(f"{arn}: was promoted already: {package['ModelPackageArn']}")


def _build_folder_uri(environments: Environments, evidence: Evidence) -> str:
    """Return the S3 URI of the folder for the record and the copies.

    It is a new folder each time, because the rejected package of an earlier promotion still refers
    to its own folder.
    """
    into, timestamp = environments.route.into, datetime.now(UTC).strftime("%Y%m%dT%H%M%S%f")
    package = evidence.arn.partition(":model-package/")[2].replace("/", "-")
    return f"s3://{into.bucket}/{into.prefix}/{parse_account(evidence.arn)}-{package}/{timestamp}"


def _copy_objects(
    s3: Any, evidence: Evidence, uris: Iterable[str], folder: str, key: str | None
) -> None:
    """Copy objects, without their tags, below the folder, encrypted with the target's key."""
    options = {"TaggingDirective": "REPLACE"}
    options |= {"ServerSideEncryption": "aws:kms", "SSEKMSKeyId": key} if key else {}
    with service_errors(f"copying to {folder}"), TransferManager(s3) as manager:
        futures = []
        for uri in uris:
            (from_bucket, from_key), target = (
                evidence.locate(uri),
                split_s3_uri(build_copy_uri(folder, uri)),
            )
            source = {"Bucket": from_bucket, "Key": from_key}
            futures.append(manager.copy(source, *target, options))
        for future in futures:
            future.result()


def _register_copy(
    record: Record,
    objects: dict[str, str],
    promotion: Promotion,
    folder: str,
    environments: Environments,
    region: str,
) -> str:
    """Write the record, check the copies against it, and register the package; return its ARN."""
    s3, sagemaker = create_client("s3", region), create_client("sagemaker", region)
    group = environments.target.register_.model_package_group

    def write_record(promotion: Promotion) -> dict[str, Any]:
        """Write the record with this promotion; return CreateModelPackage's request."""
        new_record = record.model_copy(
            update={"objects": objects, "hops": (*record.hops, promotion)}
        )
        bucket, key = split_s3_uri(f"{folder}/{FILE}")
        with service_errors(f"writing {folder}/{FILE}"):
            s3.put_object(Bucket=bucket, Key=key, Body=new_record.text)
        return build_package_request(
            new_record, folder, hashlib.sha256(new_record.text).hexdigest(), group
        )

    # The record is written twice: the checks of the copies read the first one, and the second one
    # contains their results.
    package_request = write_record(promotion)
    # No package has version 0: it stands for the package, which is registered only after the
    # checks.
    package_arn = (
        f"{environments.route.into.group.replace(':model-package-group/', ':model-package/')}/0"
    )
    target_evidence = Evidence(package_arn, sagemaker, s3)
    target_evidence.registered_package = package_request | {"ModelPackageArn": package_arn}
    copied_evidence = PromotedEvidence(target_evidence)
    findings = run_checks(copied_evidence, select_checks(copied_evidence, {**QUICK, **BYTES}))
    statuses = _refuse_mismatch(promotion.package, list(findings))
    package_request = write_record(promotion.model_copy(update={"checks": statuses}))
    with service_errors(f"registering {promotion.package} in {group}"):
        if not _group_exists(sagemaker, group):
            tags = [{"Key": k, "Value": v} for k, v in environments.target.aws.tags.items()]
            tag_arguments = {"Tags": tags} if tags else {}
            sagemaker.create_model_package_group(ModelPackageGroupName=group, **tag_arguments)
        arn: str = sagemaker.create_model_package(**package_request)["ModelPackageArn"]
    return arn


def _group_exists(sagemaker: Any, group: str) -> bool:
    """Return whether the group exists. A group given by its ARN, in another account, is assumed to
    exist.
    """
    if group.startswith("arn:"):
        return True
    pages = sagemaker.get_paginator("list_model_package_groups").paginate(NameContains=group)
    return any(
        summary["ModelPackageGroupName"] == group
        for page in pages
        for summary in page["ModelPackageGroupSummaryList"]
    )


@needs(Need(("package", "policies")), Need(("environment",)))
def main(
    recipe: RecipeOption,
    package: Annotated[str | None, typer.Argument(metavar="MODEL_PACKAGE_ARN")] = None,
    environment: EnvOption = None,
    overridden: SetOption = NOT_GIVEN,
    policies: Annotated[
        str | None,
        typer.Option(metavar="ROLE_ARN", help="Print the policies for this role of the target."),
    ] = None,
) -> None:
    """Promote an Approved package to the account of an environment, with its evidence."""
    environments = read_both_environments(recipe, overridden, environment)
    if policies:
        print(json.dumps(build_policies(environments.route, policies), indent=2))
        return
    with errors.status("checking the package, copying it, checking the copies"):
        arn = promote(str(package), environments)
    console.print(f"{arn}: registered, PendingManualApproval", highlight=False, markup=False)


if __name__ == "__main__":
    run(main)
