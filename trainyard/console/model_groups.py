"""The model registry by AWS's API: groups, versions, champions, metrics."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from trainyard.console.account_cache import Account
from trainyard.runs.run_values import in_report, of_package

EXECUTION = re.compile(r"arn:[^/]+:pipeline/(?P<pipeline>[^/]+)/execution/(?P<execution>[^/]+)")

NO_GROUP = "-"  # placeholder for the group in addresses of packages without a group
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
    return (group, version) if slash else (NO_GROUP, group)


def groups(account: Account) -> list[dict[str, Any]]:
    """Return ModelPackageGroupSummaryList, the newest first."""
    return account.all_of("list_model_package_groups", "ModelPackageGroupSummaryList", **NEWEST)


def versions(account: Account, group: str | None) -> list[dict[str, Any]]:
    """Return summaries of a group's packages, or of those without a group, the newest first."""
    which = {"ModelPackageGroupName": group} if group else {"ModelPackageType": "Unversioned"}
    return account.all_of("list_model_packages", "ModelPackageSummaryList", **NEWEST, **which)


def champion(account: Account, group: str) -> Champion:
    """Return the group's present champion."""
    approved_arns = [
        version["ModelPackageArn"]
        for version in versions(account, group)
        if version.get("ModelApprovalStatus") == "Approved"
    ]
    return Champion(*(approved_arns + [None, None])[:2])


def describe_package(account: Account, package: str) -> dict[str, Any]:
    """Return DescribeModelPackage's answer; ``package``: an ARN, or the name of a package without a
    group.
    """
    return account.ask("describe_model_package", ModelPackageName=package)


def arn_of(account: Account, group: str, version: str) -> str:
    """Return a package's ARN by its group and version; its name if it has no group."""
    if group == NO_GROUP:
        return version
    description = account.ask("describe_model_package_group", 60, ModelPackageGroupName=group)
    of_group: str = description["ModelPackageGroupArn"]
    return f"{of_group.replace(':model-package-group/', ':model-package/', 1)}/{version}"


def metrics(account: Account, package: Mapping[str, Any]) -> dict[str, float]:
    """Return a package's numbers: from its customer metadata, then from its ModelQuality report in
    S3, by path.

    Unreadable reports are skipped, and reports written again after the package was registered.
    """
    registration_time = package.get("CreationTime")

    def report(uri: str) -> dict[str, float]:
        key = ("models report", uri, registration_time)
        return account.read_cached(key, lambda: in_report(account.s3, uri, registration_time), 300)

    numbers = of_package(package, report)
    return dict(list(numbers.items())[:MOST])


def find_decision(package: Mapping[str, Any]) -> tuple[str, Any]:
    """Return (user, time) of the package's last change; empty if AWS does not report it."""
    user = package.get("LastModifiedBy") or {}
    user_name = user.get("UserProfileName") or (user.get("IamIdentity") or {}).get("Arn") or ""
    return str(user_name), package.get("LastModifiedTime")


def find_execution(package: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return (pipeline, id) of the execution in the package's metadata, or None."""
    arns = [
        (package.get("MetadataProperties") or {}).get("GeneratedBy"),
        *(package.get("CustomerMetadataProperties") or {}).values(),
    ]
    matches = (EXECUTION.fullmatch(arn) for arn in arns if isinstance(arn, str))
    return next(((run["pipeline"], run["execution"]) for run in matches if run), None)
