"""Approve a registered model, reject it, or go back to the one before it.

python -m pipelines.approve MODEL_PACKAGE_ARN [--reason TEXT] [--recipe FILE] [--deep]
python -m pipelines.approve --execution ARN [--automatic]
python -m pipelines.approve MODEL_PACKAGE_ARN --reject REASON
python -m pipelines.approve --rollback GROUP --reject REASON

The champion of a group is its newest Approved package. So an approval makes a package the champion,
and rejecting the champion makes the previous Approved package the champion again: that is a
rollback.

No execution registers a package as Approved. If the recipe says ``register.approval: automatic``,
the command that waits for the execution calls this (``--start --wait``, or ``--execution ARN
--automatic``). It makes the same checks, but no reason can be given, so that the package of an
execution with overrides stays pending until a person decides.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from conditions.no_champion import NONE
from pipelines.recipe.cli_options import NOT_GIVEN, EnvOption, SetOption, require_recipe_for
from pipelines.recipe.read_recipe import load_recipe
from pipelines.registry.champion import (
    PromotedEvidence,
    check_champion,
    check_champions_model,
    find_champion,
    find_original_package,
    get_package_group,
    list_approved,
    open_evidence,
    read_compared_champion,
)
from pipelines.registry.ledger import check_due_look, recount_looks
from pipelines.registry.package_evidence import Absent, Evidence
from pipelines.registry.run_overrides import list_overrides
from pipelines.registry.verification import CHECKOUT, run_approval_checks
from steps.register.config import ENDPOINT
from trainyard.aws_clients import create_client, service_errors
from trainyard.common.errors import GateError, RecipeError
from trainyard.runs.execution import Execution
from trainyard.runs.run_display import find_model_package
from trainyard.terminal import Need, console, needs, run

LONGEST = 1024  # maximum characters of an ApprovalDescription


@dataclass(frozen=True, slots=True)
class Approval:
    """Result of an approval or a rejection."""

    package: str
    champion: str | None
    """ARN of the group's champion after the decision; None if there is none."""
    note: str


def approve(
    arn: str, *, reason: str | None = None, recipe: Any = None, deep: bool = False
) -> Approval:
    """Approve the package if its evidence is unchanged and the champion is still the compared one.

    Every byte of the artifact and of the evidence is hashed.

    Args:
        arn: ARN of the model package.
        reason: why the package is approved in spite of overrides; it is recorded.
        recipe: the approver's own recipe, resolved, as JSON; a field that differs from the
            recorded recipe is an override.
        deep: hash every byte of the train split, too.

    Raises:
        GateError: something does not match its record; the champion has changed since the verdict;
            the execution has overrides and no reason is given; the verdict would not pass with
            the right number of looks (comparisons of a new model with a champion on its test
            split); or another package was approved at the same time.
        ServiceError: the package does not exist, or AWS refused.
    """
    evidence = open_evidence(arn)
    # Read before the checks: if the artifact is replaced during them, its ETag changes.
    before_etag = _find_artifact_etag(evidence)
    count = _require_checks(evidence, deep)
    sagemaker, group = _open_registry(arn), get_package_group(evidence.registered_package)
    approved_packages = list_approved(sagemaker, group)
    if arn in approved_packages:
        return Approval(arn, approved_packages[0], "it was already Approved")
    endpoint = evidence.metadata.get(ENDPOINT)
    champion = find_champion(sagemaker, group, endpoint) or _find_starting_package(evidence)
    override_lines = list_overrides(evidence, champion, recipe)
    _check_reason(arn, override_lines, reason)
    verdict_champion = read_compared_champion(evidence)
    is_promoted = isinstance(evidence, PromotedEvidence)
    if not (reason and (verdict_champion == NONE or is_promoted)):
        check_champion(
            arn, verdict_champion, find_original_package(champion) if is_promoted else champion
        )
    look_recount = None
    # For a promoted package, its first approver has checked registry and ledger of that account.
    if not is_promoted:
        check_champions_model(evidence, verdict_champion)
        look_recount = recount_looks(evidence)
    notes = [f"reason: {reason}"] if reason else []
    notes += [f"{count} checks match", f"compared with {verdict_champion or 'no champion'}"]
    notes += [check_due_look(evidence, look_recount, CHECKOUT)] if look_recount else []
    notes += override_lines
    note = "; ".join(notes)
    _set_approval_status(sagemaker, arn, "Approved", note)
    # UpdateModelPackage accepts no condition, so concurrent changes are checked afterwards.
    if _find_artifact_etag(evidence) != before_etag:
        _set_approval_status(
            sagemaker, arn, "Rejected", "the artifact was replaced while it was approved"
        )
        raise GateError(f"{arn}: rejected: its artifact was replaced while it was approved")
    return Approval(
        arn, _refuse_concurrent_decision(sagemaker, group, arn, approved_packages), note
    )


def approve_automatically(execution: str, region: str | None = None) -> Approval | None:
    """Approve the package that the execution registered, if its recipe says so.

    Return None if the recipe does not.

    Raises:
        GateError: no package was registered, a person has already decided, or see ``approve``.
    """
    arn = find_registered_package(execution, region)
    evidence = Evidence(arn)
    try:
        approval = evidence.recipe["register"].get("approval")
    except (Absent, KeyError):  # not registered by our pipeline, or its record was deleted
        return None
    if approval != "automatic":
        return None
    status = evidence.package.get("ModelApprovalStatus")
    if status != "PendingManualApproval":
        raise GateError(f"{arn}: is already {status}; nothing was changed")
    return approve(arn)


def approve_after_execution(execution: str, region: str | None = None) -> None:
    """Approve the model of an ended execution if the recipe says so; print the result."""
    if find_model_package(Execution(execution, region).list_steps()) is None:
        return
    try:
        approval = approve_automatically(execution, region)
    except GateError as error:
        console.print(f"not changed: {error}", highlight=False, markup=False)
        return
    if approval:
        console.print(f"{approval.package}: Approved, as the recipe says ({approval.note})",
                      highlight=False, markup=False)  # fmt: skip


def find_registered_package(execution: str, region: str | None = None) -> str:
    """Return the ARN of the package that the execution registered.

    Raises:
        GateError: no package was registered.
    """
    arn = find_model_package(Execution(execution, region).list_steps())
    if arn is None:
        raise GateError(f"{execution}: registered no model package")
    return arn


def reject(arn: str, reason: str) -> Approval:
    """Reject the package, and record why. Rejecting the champion is a rollback.

    Raises:
        ServiceError: the package does not exist, or AWS refused.
    """
    sagemaker, group = _open_registry(arn), get_package_group(Evidence(arn).registered_package)
    _set_approval_status(sagemaker, arn, "Rejected", reason)
    return Approval(arn, next(iter(list_approved(sagemaker, group)), None), reason)


def roll_back_champion(group: str, reason: str) -> Approval:
    """Reject the group's champion, so that the previous Approved package is the champion again.

    Raises:
        GateError: the group has no champion.
        ServiceError: AWS refused.
    """
    packages = list_approved(_open_registry(group), group)
    if not packages:
        raise GateError(f"model package group {group}: no package is Approved: nothing to undo")
    return reject(packages[0], reason)


def _find_starting_package(evidence: Evidence) -> str | None:
    """Return the package that the training started from; None if there is none.

    It counts as the champion of a group that has no champion yet.
    """
    start = evidence.recipe["train"].get("start_from") or {}
    package: str | None = start.get("model_package")
    return package


def _require_checks(evidence: Evidence, deep: bool) -> int:
    """Return the number of checks that match. Raises GateError at the first mismatch."""
    count = 0
    for finding in run_approval_checks(evidence, deep=deep):
        if finding.status == "mismatch":
            raise GateError(
                f"{evidence.arn}: not approved: {finding.name} does not match its record: "
                f"{finding.detail}; python -m pipelines.verify shows the rest"
            )
        count += 1
    return count


def _check_reason(arn: str, override_lines: list[str], reason: str | None) -> None:
    """Print the overrides. Raises GateError if there are any and no reason is given."""
    for override in override_lines:
        console.print(f"override: {override}", highlight=False, markup=False)
    if override_lines and not reason:
        raise GateError(
            f"{arn}: not approved: the run does not follow its recipe: "
            f"{'; '.join(override_lines)}. Justify this with --reason TEXT, which is recorded, or "
            "start the pipeline without overrides"
        )


def _refuse_concurrent_decision(
    sagemaker: Any, group: str, arn: str, earlier_packages: list[str]
) -> str:
    """Return the group's newest Approved package after our approval of ``arn``.

    Raises GateError if another decision was made at the same time.
    """
    packages = list_approved(sagemaker, group)
    other_packages = [package for package in packages if package not in (arn, *earlier_packages)]
    if other_packages or arn not in packages:
        undone = "" if arn in packages else f"{arn} is no longer Approved. "
        remark = (
            f"Approved at the same time: {', '.join(other_packages)}. " if other_packages else ""
        )
        raise GateError(
            f"{group}: another decision was made at the same time. {undone}{remark}The champion is "
            f"now {packages[0] if packages else 'none'}; if that is not what you want, reject it"
        )
    return packages[0]


def _set_approval_status(sagemaker: Any, arn: str, status: str, description: str) -> None:
    """Set the approval status of a package, with the description of the decision."""
    with service_errors(f"setting {arn} to {status}"):
        sagemaker.update_model_package(
            ModelPackageArn=arn,
            ModelApprovalStatus=status,
            ApprovalDescription=description[:LONGEST],
        )


def _find_artifact_etag(evidence: Evidence) -> str | None:
    """Return the current ETag of the package's artifact; None if there is no artifact."""
    _ = evidence.registered_package  # outside of ``try``, because a missing package is an error
    try:
        return evidence.compute_model_etag()
    except (Absent, KeyError):
        return None


def _open_registry(reference: str) -> Any:
    """Return a SageMaker client for the region in an ARN; for a name, the environment's region."""
    return create_client(
        "sagemaker", reference.split(":")[3] if reference.count(":") >= 5 else None
    )


@needs(
    Need(("package", "execution", "rollback")),
    Need(("reject_for",), lambda values: values["rollback"] is not None),
    require_recipe_for("overridden", "environment"),
)
def main(
    package: Annotated[str | None, typer.Argument(metavar="MODEL_PACKAGE_ARN")] = None,
    reason: Annotated[
        str | None, typer.Option(help="Why to approve although the run has overrides; recorded.")
    ] = None,
    recipe: Annotated[
        Path | None, typer.Option(help="Your recipe: a recorded field that differs is an override.")
    ] = None,
    overridden: SetOption = NOT_GIVEN,
    environment: EnvOption = None,
    deep: Annotated[bool, typer.Option("--deep", help="Hash the train split too.")] = False,
    execution: Annotated[
        str | None,
        typer.Option(metavar="ARN", help="Decide on the package that this execution registered."),
    ] = None,
    automatic: Annotated[
        bool,
        typer.Option("--automatic", help="Approve only if the recipe says approval: automatic."),
    ] = False,
    reject_for: Annotated[
        str | None,
        typer.Option("--reject", metavar="REASON", help="Reject the package, and record why."),
    ] = None,
    rollback: Annotated[
        str | None,
        typer.Option(metavar="GROUP", help="Reject the champion of this group (name or ARN)."),
    ] = None,
) -> None:
    """Approve a model package after checking it again; or reject it; or roll back."""
    if automatic and (execution is None or reason or reject_for):
        raise RecipeError("--automatic: needs --execution ARN and nothing else: no person decides")
    if automatic:
        approval = approve_automatically(str(execution))
        if approval is None:
            raise GateError(f"{execution}: its recipe says register.approval: manual")
    elif rollback is not None:
        approval = roll_back_champion(rollback, str(reject_for))
    else:
        arn = package or find_registered_package(str(execution))
        recipe_config = load_recipe(recipe, overridden, environment) if recipe else None
        approval = (
            reject(arn, reject_for)
            if reject_for
            else approve(
                arn,
                reason=reason,
                recipe=recipe_config and recipe_config.model_dump(mode="json", by_alias=True),
                deep=deep,
            )
        )
    word = "Rejected" if reject_for else "Approved"
    console.print(f"{approval.package}: {word} ({approval.note})", highlight=False, markup=False)
    console.print(f"champion: {approval.champion or 'none'}", highlight=False)


if __name__ == "__main__":
    run(main)
