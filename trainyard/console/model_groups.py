"""The model registry by AWS's API: groups, versions, champions, metrics."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from trainyard.console.account_cache import Account
from trainyard.runs.evaluation_numbers import in_report, of_package

EXECUTION = re.compile(r"arn:[^/]+:pipeline/(?P<pipeline>[^/]+)/execution/(?P<execution>[^/]+)")

UNGROUPED = "-"  # placeholder for the group in addresses of packages without a group
AT_ONCE = 50  # groups on the page of all, and versions on a group's: the newest
NEWEST = {"SortBy": "CreationTime", "SortOrder": "Descending"}

MOST = 60  # most metrics listed for one package


@dataclass(frozen=True, slots=True)
class Champion:
    """ARNs of a group's newest Approved version, and of the Approved one before it."""

    arn: str | None
    before: str | None


def place_of(arn: str) -> tuple[str, str]:
    """Return (group, version) of a package's ARN; (``-``, name) for a package without a group."""
    _, _, rest = arn.partition(":model-package/")
    group, slash, version = (rest or arn).partition("/")
    return (group, version) if slash else (UNGROUPED, group)


def groups(account: Account) -> list[dict[str, Any]]:
    """Return ModelPackageGroupSummaryList, the newest first."""
    return account.all_of("list_model_package_groups", "ModelPackageGroupSummaryList", **NEWEST)


def versions(account: Account, group: str | None) -> list[dict[str, Any]]:
    """Return summaries of a group's packages, or of those without a group, the newest first."""
    which = {"ModelPackageGroupName": group} if group else {"ModelPackageType": "Unversioned"}
    return account.all_of("list_model_packages", "ModelPackageSummaryList", **NEWEST, **which)


def champion(account: Account, group: str) -> Champion:
    """Return the group's present champion."""
    approved = [
        one["ModelPackageArn"]
        for one in versions(account, group)
        if one.get("ModelApprovalStatus") == "Approved"
    ]
    return Champion(*(approved + [None, None])[:2])


def described(account: Account, package: str) -> dict[str, Any]:
    """Return DescribeModelPackage's answer; ``package``: an ARN, or the name of a package without a
    group.
    """
    return account.ask("describe_model_package", ModelPackageName=package)


def arn_of(account: Account, group: str, version: str) -> str:
    """Return a package's ARN by its group and version; its name if it has no group."""
    if group == UNGROUPED:
        return version
    found = account.ask("describe_model_package_group", 60, ModelPackageGroupName=group)
    of_group: str = found["ModelPackageGroupArn"]
    return f"{of_group.replace(':model-package-group/', ':model-package/', 1)}/{version}"


def metrics(account: Account, package: Mapping[str, Any]) -> dict[str, float]:
    """Return a package's numbers: from its customer metadata, then from its ModelQuality report in
    S3, by path.

    Unreadable reports are skipped, and reports written again after the package was registered.
    """
    registered = package.get("CreationTime")

    def report(uri: str) -> dict[str, float]:
        key = ("models report", uri, registered)
        return account.lately(key, lambda: in_report(account.s3, uri, registered), 300)

    found = of_package(package, report)
    return dict(list(found.items())[:MOST])


def decided(package: Mapping[str, Any]) -> tuple[str, Any]:
    """Return (user, time) of the package's last change; empty if AWS does not report it."""
    user = package.get("LastModifiedBy") or {}
    who = user.get("UserProfileName") or (user.get("IamIdentity") or {}).get("Arn") or ""
    return str(who), package.get("LastModifiedTime")


def named(package: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return (pipeline, id) of the execution in the package's metadata, or None."""
    arns = [
        (package.get("MetadataProperties") or {}).get("GeneratedBy"),
        *(package.get("CustomerMetadataProperties") or {}).values(),
    ]
    found = (EXECUTION.fullmatch(arn) for arn in arns if isinstance(arn, str))
    return next(((run["pipeline"], run["execution"]) for run in found if run), None)
