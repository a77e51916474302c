"""Approve or reject a model package."""

from collections.abc import Mapping
from typing import Any

from flask import url_for

from trainyard.common.errors import TrainyardError
from trainyard.console.account_cache import Account
from trainyard.console.actions.action import (
    ONCE,
    Call,
    Field,
    Proposal,
    make_placeholder,
    register_action,
)
from trainyard.console.app_hooks import find_owner
from trainyard.console.outcomes import Champion, describe_package, find_champion, split_package_arn

APPROVE_WITH = "approve_with"
"""Key in a package's customer metadata. Its value is the command that must be used to approve the
package, because it makes checks of its own.
"""


@register_action("approve")
def propose_approval(
    account: Account, about: Mapping[str, str], form: Mapping[str, str]
) -> Proposal:
    """Propose UpdateModelPackage with status Approved.

    If the package belongs to an application with its own rules, the application approves it.
    """
    package = describe_package(account, about["package"])
    now = _find_champion(account, package)
    comment = _make_comment_field(form, "Why you approve it; it is recorded with the package.")
    status, refusal = package.get("ModelPackageStatus", "Completed"), ""
    if status != "Completed":
        refusal = f"Its status is {status}; only a Completed package can be approved."
    elif package.get("ModelApprovalStatus") == "Approved":
        refusal = "It is already Approved."
    action_owner = find_owner("approve", package)
    does = [_describe_approval(package, now)]
    if action_owner and not refusal:
        try:
            does += action_owner.says(package)
        except TrainyardError as error:
            refusal = str(error)
    elif not refusal:
        refusal = _explain_approval_command(package)
    return Proposal(
        title=f"Approve {_format_package_name(package)}",
        button="Approve",
        does=does,
        state=_collect_state(package, now),
        calls=[
            _make_approval_call(
                package, "Approved", comment.value if form else make_placeholder("Comment")
            )
        ],
        back=_build_package_url(package),
        fields=[comment],
        impossible=refusal,
        own=(lambda: action_owner.do(package, form)) if action_owner else None,
    )


@register_action("reject")
def propose_rejection(
    account: Account, about: Mapping[str, str], form: Mapping[str, str]
) -> Proposal:
    """Propose UpdateModelPackage with status Rejected."""
    package = describe_package(account, about["package"])
    now = _find_champion(account, package)
    comment = _make_comment_field(
        form, "Why you reject it; it is recorded with the package.", is_required=True
    )
    is_rejected = package.get("ModelApprovalStatus") == "Rejected"
    return Proposal(
        title=f"Reject {_format_package_name(package)}",
        button="Reject",
        does=[_describe_rejection(package, now), "Endpoints that serve it continue to serve it."],
        state=_collect_state(package, now),
        calls=[
            _make_approval_call(
                package, "Rejected", comment.value if form else make_placeholder("Comment")
            )
        ],
        back=_build_package_url(package),
        fields=[comment],
        wrong={} if comment.value.strip() else {"comment": "Give a reason."},
        impossible="It is already Rejected." if is_rejected else "",
    )


def _explain_approval_command(package: Mapping[str, Any]) -> str:
    """Return a message that names the command that must approve the package; "" without one."""
    command = (package.get("CustomerMetadataProperties") or {}).get(APPROVE_WITH)
    if not command:
        return ""
    return (
        f"This package is approved by {command}, which makes checks that this console does not "
        f"know. Run: {command} {package['ModelPackageArn']}; or open its own console."
    )


def _find_champion(account: Account, package: Mapping[str, Any]) -> Champion:
    group = package.get("ModelPackageGroupName")
    return find_champion(account, group) if group else Champion(None, None)


def _describe_approval(package: Mapping[str, Any], now: Champion) -> str:
    """Return the effect of an approval: the newest Approved version of a group is its champion."""
    group, version = package.get("ModelPackageGroupName"), package.get("ModelPackageVersion", 0)
    if not group:
        return "The package becomes Approved. It is in no group, so it replaces no other package."
    if now.arn is None:
        return f"Version {version} becomes the first Approved one of {group}, and so its champion."
    other = split_package_arn(now.arn)[1]
    if other.isdecimal() and int(other) > version:
        return (
            f"Version {version} is Approved, too, but {other} remains the newest Approved version. "
            f"To go back to {version}, reject the Approved versions after it."
        )
    return f"Version {version} becomes the newest Approved version of {group}, in place of {other}."


def _describe_rejection(package: Mapping[str, Any], now: Champion) -> str:
    """Return the effect of a rejection."""
    group, version = package.get("ModelPackageGroupName"), package.get("ModelPackageVersion")
    if package.get("ModelPackageArn") != now.arn:
        return (
            "The package becomes Rejected; the champion does not change."
            if group
            else ("The package becomes Rejected.")
        )
    if now.before is None:
        return f"Version {version} is the only Approved one: {group} will have no champion."
    before = split_package_arn(now.before)[1]
    return f"Version {version} is the champion of {group}; version {before} becomes it again."


def _make_comment_field(form: Mapping[str, str], hint: str, is_required: bool = False) -> Field:
    return Field(
        name="comment",
        label="Comment",
        kind="text",
        value=form.get("comment", ""),
        hint=hint,
        is_required=is_required,
    )


def _make_approval_call(package: Mapping[str, Any], status: str, comment: str) -> Call:
    """Return the call of UpdateModelPackage that sets the approval status and the comment."""
    arn = package["ModelPackageArn"]
    reason = {"ApprovalDescription": comment} if comment else {}
    return Call(
        operation="UpdateModelPackage",
        arguments={
            "ModelPackageArn": arn,
            "ModelApprovalStatus": status,
            **reason,
            "ClientToken": ONCE,
        },
        resources=(arn,),
    )


def _collect_state(package: Mapping[str, Any], now: Champion) -> dict[str, str]:
    """Return the state that an approval or rejection depends on."""
    return {
        "approval status": str(package.get("ModelApprovalStatus", "none")),
        "status": str(package.get("ModelPackageStatus", "none")),
        "last change": str(package.get("LastModifiedTime", "")),
        "comment": str(package.get("ApprovalDescription", "")),
        "champion": now.arn or "none",
        "champion before it": now.before or "none",
    }


def _format_package_name(package: Mapping[str, Any]) -> str:
    return " version ".join(split_package_arn(package["ModelPackageArn"]))


def _build_package_url(package: Mapping[str, Any]) -> str:
    group, version = split_package_arn(package["ModelPackageArn"])
    return url_for("models.show_model_version", group=group, version=version)
