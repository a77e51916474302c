"""Approve a registered model, reject it, or go back to the one before it.

python -m pipelines.approve MODEL_PACKAGE_ARN
python -m pipelines.approve MODEL_PACKAGE_ARN --reject REASON
python -m pipelines.approve --rollback GROUP --reject REASON

The champion of a group is its newest Approved package. So an approval makes a champion, and
rejecting the champion makes the Approved package before it the champion again: that is roll back.
"""

from dataclasses import dataclass
from typing import Annotated, Any

import typer

from errors import GateError, RecipeError
from pipelines.champion import approved
from pipelines.cli import console, run
from pipelines.service import client, service_errors
from pipelines.verify.evidence import Absent, Evidence
from pipelines.verify.verify import first_mismatch, verify

NOBODY = ("none", "unresolved", None)
LONGEST = 1024  # characters of an ApprovalDescription


@dataclass(frozen=True, slots=True)
class Approval:
    """What an approval or a rejection did."""

    package: str
    champion: str | None
    """The group's champion now."""
    note: str


def approve(arn: str) -> Approval:
    """Approve the package, if its evidence still holds and it was compared with today's champion.

    Raises:
        GateError: something does not match its record, the champion has moved since the verdict,
            or somebody approved another package at the same time.
        ServiceError: there is no such package, or AWS refused.
    """
    findings = verify(arn, quick=True)
    if wrong := first_mismatch(findings):
        raise GateError(
            f"{arn}: not approved: {wrong.name} does not match its record: {wrong.detail}; "
            "python -m pipelines.verify shows the rest"
        )
    evidence = Evidence(arn)
    sagemaker, group = _registry(arn), evidence.package["ModelPackageGroupName"]
    before = approved(sagemaker, group)
    if arn in before:
        return Approval(arn, before[0], "it was Approved already")
    judged = compared_with(evidence)
    check_champion(arn, judged, before[0] if before else None)
    note = f"{len(findings)} checks match; compared with {judged or 'no champion'}"
    _decide(sagemaker, arn, "Approved", note)
    return Approval(arn, _only_change(sagemaker, group, arn, before), note)


def reject(arn: str, reason: str) -> Approval:
    """Reject the package and record why; the champion's rejection is a roll back.

    Raises:
        ServiceError: there is no such package, or AWS refused.
    """
    sagemaker, group = _registry(arn), Evidence(arn).package["ModelPackageGroupName"]
    _decide(sagemaker, arn, "Rejected", reason)
    return Approval(arn, next(iter(approved(sagemaker, group)), None), reason)


def roll_back(group: str, reason: str) -> Approval:
    """Reject the group's champion, so that the Approved package before it is the champion again.

    Raises:
        GateError: there is no champion.
        ServiceError: AWS refused.
    """
    found = approved(_registry(None), group)
    if not found:
        raise GateError(f"model package group {group}: no package is Approved: nothing to undo")
    return reject(found[0], reason)


def compared_with(evidence: Evidence) -> str | None:
    """The champion that the verdict rests on: an ARN or ``none``; None when it rests on none."""
    try:
        gate = evidence.json(evidence.source("Constraints")["S3Uri"])
        evaluation = evidence.json(evidence.source("Statistics")["S3Uri"])
    except Absent as why:
        raise GateError(f"{evidence.arn}: not approved: {why}") from None
    told = evaluation.get("champion")
    found = gate.get("champion") or (told.get("arn") if isinstance(told, dict) else None)
    return None if found == "unresolved" else found


def check_champion(arn: str, judged: str | None, champion: str | None) -> None:
    """``judged``: whom the verdict rests on; ``champion``: who it is now."""
    if judged is None or judged == champion or (judged in NOBODY and champion is None):
        return
    now = champion or "none: it was rejected, or deleted"
    raise GateError(
        f"{arn}: not approved: the champion has moved since the verdict. The gate compared with "
        f"{judged}, the champion is now {now}; start the pipeline again, so that the gate compares "
        "with that one"
    )


def _only_change(sagemaker: Any, group: str, arn: str, before: list[str]) -> str:
    """The champion after our approval; what else has become Approved meanwhile is told."""
    after = approved(sagemaker, group)
    others = [found for found in after if found not in (arn, *before)]
    if others or arn not in after:
        undone = "" if arn in after else f"{arn} is no longer Approved. "
        beside = f"Approved at the same time: {', '.join(others)}. " if others else ""
        raise GateError(
            f"{group}: somebody else decided at the same time. {undone}{beside}The champion is now "
            f"{after[0] if after else 'none'}; if that is not what you want, reject it"
        )
    return after[0]


def _decide(sagemaker: Any, arn: str, status: str, why: str) -> None:
    with service_errors(f"setting {arn} to {status}"):
        sagemaker.update_model_package(
            ModelPackageArn=arn, ModelApprovalStatus=status, ApprovalDescription=why[:LONGEST]
        )


def _registry(arn: str | None) -> Any:
    return client("sagemaker", arn.split(":")[3] if arn and arn.count(":") >= 5 else None)


def main(
    package: Annotated[str | None, typer.Argument(metavar="MODEL_PACKAGE_ARN")] = None,
    reject_for: Annotated[
        str | None, typer.Option("--reject", metavar="REASON", help="Reject it, and record why.")
    ] = None,
    rollback: Annotated[
        str | None,
        typer.Option(metavar="GROUP", help="Reject the champion of this model package group."),
    ] = None,
) -> None:
    """Approve a model package after checking it again; or reject it; or roll back."""
    if (package is None) == (rollback is None):
        raise RecipeError("give a MODEL_PACKAGE_ARN, or --rollback GROUP")
    if rollback is not None and not reject_for:
        raise RecipeError("--rollback: say why with --reject REASON; it is recorded")
    if rollback is not None:
        done = roll_back(rollback, str(reject_for))
    else:
        done = reject(package, reject_for) if reject_for else approve(str(package))
    word = "Rejected" if reject_for else "Approved"
    console.print(f"{done.package}: {word} ({done.note})", highlight=False)
    console.print(f"champion: {done.champion or 'none'}", highlight=False)


if __name__ == "__main__":
    run(main)
