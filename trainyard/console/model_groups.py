"""The model registry as AWS's API tells it: groups, versions, who is the champion, metrics."""

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
"""Stands for the group in addresses of packages that are in none."""

AT_ONCE = 50
"""Versions of a group that a page describes; the others are on the next pages."""

THREADS = 8
MOST = 60
"""Metrics of one package that are listed."""


@dataclass(frozen=True, slots=True)
class Champion:
    """The newest Approved version of a group, and the Approved one before it: their ARNs."""

    arn: str | None
    before: str | None


def place_of(arn: str) -> tuple[str, str]:
    """(group, version) of a package's ARN; (``-``, name) of one in no group."""
    _, _, rest = arn.partition(":model-package/")
    group, slash, version = (rest or arn).partition("/")
    return (group, version) if slash else (UNGROUPED, group)


def groups(account: Account) -> list[dict[str, Any]]:
    """ModelPackageGroupSummaryList, the newest first."""

    def read() -> list[dict[str, Any]]:
        with service_errors("listing the model package groups"):
            pages = account.sagemaker.get_paginator("list_model_package_groups").paginate(
                SortBy="CreationTime", SortOrder="Descending"
            )
            return [one for page in pages for one in page.get("ModelPackageGroupSummaryList", ())]

    return account.lately("groups", read)


def versions(account: Account, group: str | None) -> list[dict[str, Any]]:
    """ModelPackageSummaryList of a group, or of the packages in none, the newest first.

    Raises:
        ServiceError: there is no such group, or AWS refused.
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
    """Who is the champion of the group now."""
    found = [v["ModelPackageArn"] for v in versions(account, group) if is_approved(v)]
    return Champion(*(found + [None, None])[:2])


def is_approved(package: Mapping[str, Any]) -> bool:
    """Whether a summary, or a description, is of an Approved package."""
    return package.get("ModelApprovalStatus") == "Approved"


def described(account: Account, package: str) -> dict[str, Any]:
    """DescribeModelPackage's answer; ``package`` is an ARN, or the name of one in no group.

    Raises:
        ServiceError: there is none, or AWS refused.
    """

    def read() -> dict[str, Any]:
        with service_errors(f"reading model package {package}"):
            answer: dict[str, Any] = account.sagemaker.describe_model_package(
                ModelPackageName=package
            )
        return answer

    return account.lately(("package", package), read)


def arn_of(account: Account, group: str, version: str) -> str:
    """The package's ARN, by the place that addresses name; a name for one in no group.

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
    """The descriptions of these summaries, in their order."""
    with ThreadPoolExecutor(THREADS) as pool:
        return list(pool.map(lambda one: described(account, one["ModelPackageArn"]), found))


def metrics(account: Account, package: Mapping[str, Any]) -> dict[str, float]:
    """Numbers that the package comes with: of its customer metadata, then of its ModelQuality
    report in S3, by the path in it. What cannot be read is none, nor is a report that has been
    written again since the package was registered.
    """
    registered = package.get("CreationTime")

    def report(uri: str) -> dict[str, float]:
        key = ("models report", uri, registered)
        return account.lately(key, lambda: in_report(account.s3, uri, registered), 300)

    found = of_package(package, report)
    return dict(list(found.items())[:MOST])


def all_metrics(account: Account, packages: Sequence[Mapping[str, Any]]) -> list[dict[str, float]]:
    """The metrics of each package."""
    with ThreadPoolExecutor(THREADS) as pool:
        return list(pool.map(lambda one: metrics(account, one), packages))


def models_of(package: Mapping[str, Any]) -> list[str]:
    """S3 URIs of the models of the package's containers."""
    containers = (package.get("InferenceSpecification") or {}).get("Containers") or ()
    return [uri for one in containers if (uri := model_uri(one))]


def model_uri(container: Mapping[str, Any]) -> str | None:
    """Where a container's model lies: an archive, or a prefix."""
    source = (container.get("ModelDataSource") or {}).get("S3DataSource") or {}
    uri: str | None = container.get("ModelDataUrl") or source.get("S3Uri")
    return uri


def bytes_of(account: Account, uri: str) -> int | None:
    """Bytes of an object, or of the first thousand below a prefix; None where nobody may look."""

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
    """(who, when) of the package's last change; what AWS does not tell is empty."""
    user = package.get("LastModifiedBy") or {}
    who = user.get("UserProfileName") or (user.get("IamIdentity") or {}).get("Arn") or ""
    return str(who), package.get("LastModifiedTime")


def named(package: Mapping[str, Any]) -> tuple[str, str] | None:
    """(pipeline, id) of the execution that the package's metadata name."""
    told = [
        (package.get("MetadataProperties") or {}).get("GeneratedBy"),
        *(package.get("CustomerMetadataProperties") or {}).values(),
    ]
    found = (_EXECUTION.fullmatch(arn) for arn in told if isinstance(arn, str))
    return next(((run["pipeline"], run["execution"]) for run in found if run), None)
