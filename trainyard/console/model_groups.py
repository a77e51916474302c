"""The model registry by AWS's API: groups, versions, champions, metrics."""

import re
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from botocore.exceptions import ClientError, ParamValidationError

from trainyard.aws_clients import service_errors
from trainyard.console.account_cache import Account
from trainyard.runs.evaluation_numbers import in_report, of_package

_EXECUTION = re.compile(r"arn:[^/]+:pipeline/(?P<pipeline>[^/]+)/execution/(?P<execution>[^/]+)")

UNGROUPED = "-"
"""Placeholder for the group in addresses of packages without a group."""

AT_ONCE = 50
"""Versions of a group on one page; the others are on the next pages."""

THREADS = 8
MOST = 60
"""Most metrics listed for one package."""


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

    def read() -> list[dict[str, Any]]:
        with service_errors("listing the model package groups"):
            pages = account.sagemaker.get_paginator("list_model_package_groups").paginate(
                SortBy="CreationTime", SortOrder="Descending"
            )
            return [one for page in pages for one in page.get("ModelPackageGroupSummaryList", ())]

    return account.lately("groups", read)


def versions(account: Account, group: str | None) -> list[dict[str, Any]]:
    """Return ModelPackageSummaryList of a group, or of packages without a group, the newest first.

    Raises:
        ServiceError: the group does not exist, or AWS refused.
    """

    def read() -> list[dict[str, Any]]:
        which = {"ModelPackageGroupName": group} if group else {"ModelPackageType": "Unversioned"}
        with service_errors(f"listing the model packages of {group or 'no group'}"):
            pages = account.sagemaker.get_paginator("list_model_packages").paginate(
                SortBy="CreationTime", SortOrder="Descending", **which
            )
            return [one for page in pages for one in page.get("ModelPackageSummaryList", ())]

    return account.lately(("versions", group), read)


def champion(account: Account, group: str) -> Champion:
    """Return the group's present champion."""
    found = [v["ModelPackageArn"] for v in versions(account, group) if is_approved(v)]
    return Champion(*(found + [None, None])[:2])


def is_approved(package: Mapping[str, Any]) -> bool:
    """Return whether a summary or description is of an Approved package."""
    return package.get("ModelApprovalStatus") == "Approved"


def described(account: Account, package: str) -> dict[str, Any]:
    """Return DescribeModelPackage's answer; ``package``: an ARN, or the name of a package without a
    group.

    Raises:
        ServiceError: the package does not exist, or AWS refused.
    """

    def read() -> dict[str, Any]:
        with service_errors(f"reading model package {package}"):
            answer: dict[str, Any] = account.sagemaker.describe_model_package(
                ModelPackageName=package
            )
        return answer

    return account.lately(("package", package), read)


def arn_of(account: Account, group: str, version: str) -> str:
    """Return a package's ARN for the group and version in an address; its name if it has no group.

    Raises:
        ServiceError: the group has no such version.
    """
    if group == UNGROUPED:
        return version
    with service_errors(f"reading model package group {group}"):
        found = account.lately(
            ("group", group),
            lambda: account.sagemaker.describe_model_package_group(ModelPackageGroupName=group),
            60,
        )
    of_group: str = found["ModelPackageGroupArn"]
    return f"{of_group.replace(':model-package-group/', ':model-package/', 1)}/{version}"


def all_described(account: Account, found: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the descriptions of these summaries, in order."""
    with ThreadPoolExecutor(THREADS) as pool:
        return list(pool.map(lambda one: described(account, one["ModelPackageArn"]), found))


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


def all_metrics(account: Account, packages: Sequence[Mapping[str, Any]]) -> list[dict[str, float]]:
    """Return the metrics of each package."""
    with ThreadPoolExecutor(THREADS) as pool:
        return list(pool.map(lambda one: metrics(account, one), packages))


def models_of(package: Mapping[str, Any]) -> list[str]:
    """Return the S3 URIs of the package's models, one per container."""
    containers = (package.get("InferenceSpecification") or {}).get("Containers") or ()
    return [uri for one in containers if (uri := model_uri(one))]


def model_uri(container: Mapping[str, Any]) -> str | None:
    """Return the S3 URI of a container's model: an archive, or a prefix."""
    source = (container.get("ModelDataSource") or {}).get("S3DataSource") or {}
    uri: str | None = container.get("ModelDataUrl") or source.get("S3Uri")
    return uri


def bytes_of(account: Account, uri: str) -> int | None:
    """Return the bytes of an object, or of the first thousand below a prefix; None if not
    readable.
    """

    def read() -> int | None:
        place = urlsplit(uri)
        where = {"Bucket": place.netloc}
        try:
            if not uri.endswith("/"):
                key = place.path.lstrip("/")
                return int(account.s3.head_object(**where, Key=key).get("ContentLength", 0)) or None
            listed = account.s3.list_objects_v2(**where, Prefix=place.path.lstrip("/"))
        except (ClientError, ParamValidationError):
            return None
        return sum(one["Size"] for one in listed.get("Contents", ())) or None

    return account.lately(("models bytes", uri), read, 60)


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
    found = (_EXECUTION.fullmatch(arn) for arn in arns if isinstance(arn, str))
    return next(((run["pipeline"], run["execution"]) for run in found if run), None)
