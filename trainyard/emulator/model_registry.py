"""The model registry: model package groups and packages, each kept in a JSON file of its own.

<state>/registry/groups/<name>.json
<state>/registry/packages/<group>/<version>.json, packages/<name>.json without a group

moto has most of these operations, in memory and with defects that lose data (an update wipes
what it omits, a duplicate group is accepted, nothing can be deleted), so they are answered here:
requests are checked against botocore's model of the service, stored as they came, and described
with the times and versions at which they really were made, and by whom. Not kept: validation
profiles (nothing is validated: every package is ``Completed`` at once).
"""

import re
import threading
import time
from collections.abc import Callable
from pathlib import Path

from trainyard.emulator.api import ApiError, make_arn
from trainyard.emulator.json_documents import read_json, write_json
from trainyard.emulator.paging import ordered, page
from trainyard.emulator.request_scope import (
    EXISTING,
    account_of,
    caller,
    region,
    region_of,
)
from trainyard.emulator.request_shapes import check
from trainyard.permissions.policy_documents import MalformedPolicy, read_policy

_APPROVALS = ("Approved", "Rejected", "PendingManualApproval")
_NAME = re.compile(r"[a-zA-Z0-9](-*[a-zA-Z0-9]){0,62}")  # the API reference's pattern for names
_PAGE = 100  # largest page, in results (API reference)
_TAGGING = frozenset({"AddTags", "ListTags", "DeleteTags"})
_SUMMARY = (
    "ModelPackageName",
    "ModelPackageGroupName",
    "ModelPackageVersion",
    "ModelPackageArn",
    "ModelPackageDescription",
    "CreationTime",
    "ModelPackageStatus",
    "ModelApprovalStatus",
    "ModelLifeCycle",
    "ModelPackageRegistrationType",
)
_UPDATED = (
    "ModelApprovalStatus",
    "ApprovalDescription",
    "InferenceSpecification",
    "SourceUri",
    "ModelCard",
    "ModelLifeCycle",
    "ModelPackageRegistrationType",
)


class Registry:
    """Answers the operations that :meth:`owns` names. Its methods are thread-safe.

    Raises :class:`ApiError` ``ValidationException`` or ``ConflictException``, as AWS does.
    """

    def __init__(self, root: Path, changed: Callable[[dict], None] = lambda package: None) -> None:
        """Create a registry; ``changed`` is called with packages that are new, approved or
        rejected.
        """
        self._root, self._changed = root, changed
        self._lock = threading.RLock()
        self._groups: dict[str, dict] = {}
        self._packages: dict[str, dict] = {}  # by ARN, oldest first
        self._load()
        self._operations: dict[str, Callable[[dict], dict]] = {
            "CreateModelPackageGroup": self._create_group,
            "DescribeModelPackageGroup": self._describe_group,
            "ListModelPackageGroups": self._list_groups,
            "DeleteModelPackageGroup": self._delete_group,
            "PutModelPackageGroupPolicy": self._put_policy,
            "GetModelPackageGroupPolicy": self._get_policy,
            "DeleteModelPackageGroupPolicy": self._delete_policy,
            "CreateModelPackage": self._create,
            "DescribeModelPackage": self._describe,
            "BatchDescribeModelPackage": self._batch_describe,
            "ListModelPackages": self._list,
            "UpdateModelPackage": self._update,
            "DeleteModelPackage": self._delete,
            "AddTags": self._add_tags,
            "ListTags": self._list_tags,
            "DeleteTags": self._delete_tags,
        }

    def owns(self, operation: str, request: dict) -> bool:
        """Return whether it is an operation of the registry, or tagging of one of its ARNs."""
        if operation in _TAGGING:
            return ":model-package" in str(request.get("ResourceArn", ""))
        return operation in self._operations

    def handle(self, operation: str, request: dict, own: dict | None = None) -> dict:
        """Answer an operation. ``own``: members of the created resource that no client sets."""
        check(operation, request)
        with self._lock:
            return self._operations[operation](request | (own or {}))

    # groups

    def _create_group(self, request: dict) -> dict:
        name = _valid_name(request["ModelPackageGroupName"])
        if name.lower() in {known.lower() for known in self._groups}:
            raise _invalid(f"Model Package Group already exists: {_group_arn(name)}")
        tags = request.get("Tags", [])
        self._groups[name] = {
            "ModelPackageGroupArn": _group_arn(name),
            "CreationTime": time.time(),
            "CreatedBy": _user(),
            "ModelPackageGroupStatus": "Completed",
            **{k: v for k, v in request.items() if k != "Tags"},
            "_tags": tags,
            "_next": 1,  # a version number is never given out twice, as on AWS
        }
        self._save(self._groups[name])
        return {"ModelPackageGroupArn": _group_arn(name)}

    def _describe_group(self, request: dict) -> dict:
        return {"CreatedBy": {}} | _public(self._group(request["ModelPackageGroupName"]))

    def _list_groups(self, request: dict) -> dict:
        groups = [_public(g, besides="CreatedBy") for g in self._groups.values()]
        return _page(request, groups, "ModelPackageGroupName", "ModelPackageGroupSummaryList")

    def _delete_group(self, request: dict) -> dict:
        group = self._group(request["ModelPackageGroupName"])
        name = group["ModelPackageGroupName"]
        if any(p.get("ModelPackageGroupName") == name for p in self._packages.values()):
            message = f"Model Package Group {name} cannot be deleted: it contains model packages"
            raise ApiError("ConflictException", message)
        del self._groups[name]
        self._path(group).unlink()
        return {}

    def _put_policy(self, request: dict) -> dict:
        group = self._group(request["ModelPackageGroupName"])
        try:
            read_policy("the resource policy", request["ResourcePolicy"])
        except MalformedPolicy as wrong:
            raise _invalid(f"Invalid resource policy: {wrong}") from None
        group["_policy"] = request["ResourcePolicy"]
        self._save(group)
        return {"ModelPackageGroupArn": group["ModelPackageGroupArn"]}

    def _get_policy(self, request: dict) -> dict:
        group = self._group(request["ModelPackageGroupName"])
        if not group.get("_policy"):
            raise _invalid(f"Cannot find resource policy for: {group['ModelPackageGroupArn']}")
        return {"ResourcePolicy": group["_policy"]}

    def _delete_policy(self, request: dict) -> dict:
        group = self._group(request["ModelPackageGroupName"])
        group.pop("_policy", None)
        self._save(group)
        return {}

    def policy(self, arn: str) -> str | None:
        """Return the resource policy of a group, by its ARN or that of one of its packages."""
        name = arn.partition(":model-package")[2].partition("/")[2].partition("/")[0].lower()
        groups = list(self._groups.values())
        return next(
            (g.get("_policy") for g in groups if g["ModelPackageGroupName"].lower() == name), None
        )

    # packages

    def _create(self, request: dict) -> dict:
        group, name = request.get("ModelPackageGroupName"), request.get("ModelPackageName")
        if group and name:
            message = "Both ModelPackageName and ModelPackageGroupName are provided in the input. "
            raise _invalid(message + "Cannot determine which one to use.")
        if not group and not name:
            raise _invalid("Missing ARN.")
        _check_approval(request)
        package = {k: v for k, v in request.items() if k not in ("Tags", "ClientToken")}
        if group:
            package.setdefault("ModelApprovalStatus", "PendingManualApproval")  # AWS's default
        package |= (
            self._versioned(group) if group else self._unversioned(request["ModelPackageName"])
        )
        package |= {
            "CreationTime": time.time(),
            "CreatedBy": _user(),
            "ModelPackageStatus": "Completed",
            "ModelPackageStatusDetails": {"ValidationStatuses": []},
            "_tags": request.get("Tags", []),
        }
        self._packages[package["ModelPackageArn"]] = package
        self._save(package)
        self._changed(_public(package))
        return {"ModelPackageArn": package["ModelPackageArn"]}

    def _versioned(self, named: str) -> dict:
        group = self._group(named)
        version = group["_next"]
        group["_next"] += 1
        self._save(group)
        name = group["ModelPackageGroupName"]
        return {
            "ModelPackageGroupName": name,
            "ModelPackageVersion": version,
            "ModelPackageArn": _package_arn(f"{name}/{version}"),
        }

    def _unversioned(self, name: str) -> dict:
        arn = _package_arn(_valid_name(name))
        if arn in self._packages:
            raise _invalid(f"Model Package already exists: {arn}")
        return {"ModelPackageArn": arn}

    def _describe(self, request: dict) -> dict:
        return _public(self._package(request["ModelPackageName"]))

    def _batch_describe(self, request: dict) -> dict:
        found, errors = {}, {}
        for arn in request["ModelPackageArnList"]:
            try:
                package = _public(self._package(arn))
            except ApiError as failure:
                errors[arn] = {"ErrorCode": failure.code, "ErrorResponse": failure.message}
                continue
            summary = {k: package[k] for k in _SUMMARY if k in package}
            summary["InferenceSpecification"] = package.get("InferenceSpecification", {})
            found[arn] = summary
        return {"ModelPackageSummaries": found, "BatchDescribeModelPackageErrorMap": errors}

    def _list(self, request: dict) -> dict:
        group, status = request.get("ModelPackageGroupName"), request.get("ModelApprovalStatus")
        kind = request.get("ModelPackageType", "Versioned" if group else "Unversioned")
        if group:
            group = self._group(group)["ModelPackageGroupName"]
        chosen = [
            {k: package[k] for k in _SUMMARY if k in package}
            for package in self._packages.values()
            if group in (None, package.get("ModelPackageGroupName"))
            and status in (None, package.get("ModelApprovalStatus"))
            and kind in ("Both", "Versioned" if "ModelPackageVersion" in package else "Unversioned")
        ]
        return _page(request, chosen, "ModelPackageArn", "ModelPackageSummaryList")

    def _update(self, request: dict) -> dict:
        """Change only the members that the call names."""
        _check_approval(request)
        package = self._package(request["ModelPackageArn"])
        package |= {k: request[k] for k in _UPDATED if k in request}
        metadata = package.get("CustomerMetadataProperties", {})
        metadata |= request.get("CustomerMetadataProperties", {})
        for key in request.get("CustomerMetadataPropertiesToRemove", []):
            metadata.pop(key, None)
        if metadata or "CustomerMetadataProperties" in package:
            package["CustomerMetadataProperties"] = metadata
        if added := request.get("AdditionalInferenceSpecificationsToAdd"):
            old = package.get("AdditionalInferenceSpecifications", [])
            package["AdditionalInferenceSpecifications"] = old + added
        package |= {"LastModifiedTime": time.time(), "LastModifiedBy": _user()}
        self._save(package)
        if "ModelApprovalStatus" in request:
            self._changed(_public(package))
        return {"ModelPackageArn": package["ModelPackageArn"]}

    def _delete(self, request: dict) -> dict:
        package = self._packages.pop(self._package(request["ModelPackageName"])["ModelPackageArn"])
        self._path(package).unlink()
        return {}

    # tags

    def _add_tags(self, request: dict) -> dict:
        item = self._item(request["ResourceArn"])
        tags = {t["Key"]: t for t in [*item["_tags"], *request["Tags"]]}
        item["_tags"] = list(tags.values())
        self._save(item)
        return {"Tags": item["_tags"]}

    def _list_tags(self, request: dict) -> dict:
        return {"Tags": self._item(request["ResourceArn"])["_tags"]}

    def _delete_tags(self, request: dict) -> dict:
        item = self._item(request["ResourceArn"])
        item["_tags"] = [t for t in item["_tags"] if t["Key"] not in request["TagKeys"]]
        self._save(item)
        return {}

    # inside

    def _group(self, named: str) -> dict:
        """Return the group with that name or ARN."""
        refuse_foreign(named)
        name = named.rpartition(":model-package-group/")[2].lower()
        for group in self._groups.values():
            if group["ModelPackageGroupName"].lower() == name:
                return group
        raise _invalid(f"Model Package Group {_group_arn(name)} does not exist.")

    def _package(self, named: str) -> dict:
        """Return the package with that ARN, or the unversioned package of that name."""
        arn = named if named.startswith("arn:") else _package_arn(named)
        if arn.lower() in self._packages:
            return self._packages[arn.lower()]
        raise _invalid(f"Model Package {arn} does not exist.")

    def _item(self, arn: str) -> dict:
        return self._group(arn) if ":model-package-group/" in arn else self._package(arn)

    # on disk: one file each, so that a change costs the same however many there are

    def _path(self, item: dict) -> Path:
        if arn := item.get("ModelPackageArn"):
            return self._root / "packages" / f"{arn.partition(':model-package/')[2]}.json"
        return self._root / "groups" / f"{item['ModelPackageGroupName']}.json"

    def _save(self, item: dict) -> None:
        write_json(self._path(item), item)

    def _load(self) -> None:
        groups = [read_json(path) for path in self._root.glob("groups/*.json")]
        packages = [read_json(path) for path in self._root.glob("packages/**/*.json")]
        for group in sorted(groups, key=_age):
            self._groups[group["ModelPackageGroupName"]] = group
        for package in sorted(packages, key=_age):
            self._packages[package["ModelPackageArn"]] = package


def named(operation: str, request: dict) -> str:
    """Return the ARN of the group or package of a request to the registry, if it has one."""
    if operation not in _TAGGING and "ModelPackage" not in operation:
        return ""
    members = ("ModelPackageGroupName", "ModelPackageName", "ModelPackageArn", "ResourceArn")
    return next((v for m in members if ":model-package" in (v := str(request.get(m)))), "")


def refuse_foreign(group: str) -> None:
    """Refuse the ARN of a group in another region, or in an account that does not exist here."""
    if group.startswith("arn:") and region_of(group) != region():
        raise _invalid(f"{group} is in another region than the request's, {region()}.")
    if group.startswith("arn:") and account_of(group) not in EXISTING:
        raise _invalid(f"{group} is in an account that does not exist here (docs/emulator.md).")


def _user() -> dict:
    """Return who makes the request, as UserContext."""
    return {"IamIdentity": {"Arn": caller()}} if caller() else {}


def _age(item: dict) -> tuple[float, int]:
    """Return the sort key of an item, the oldest first."""
    return item["CreationTime"], item.get("ModelPackageVersion", 0)


def _page(request: dict, items: list[dict], name: str, answer: str) -> dict:
    """Filter by name and time, sort, and return one page. AWS's default is oldest first."""
    after, before = request.get("CreationTimeAfter", 0), request.get("CreationTimeBefore")
    part = request.get("NameContains", "").lower()
    chosen = [
        item
        for item in items
        if part in item[name].lower()
        and item["CreationTime"] > after
        and (before is None or item["CreationTime"] < before)
    ]
    keys = {"CreationTime": "CreationTime", "Name": name}
    found = ordered(chosen, request, keys, "CreationTime", "Ascending")
    limit = {"MaxResults": min(request.get("MaxResults", _PAGE), _PAGE)}
    return page(answer, found, request | limit, _PAGE)


def _check_approval(request: dict) -> None:
    status = request.get("ModelApprovalStatus")
    if status not in (None, *_APPROVALS):
        raise _invalid(f"ModelApprovalStatus is {status!r}: must be one of {', '.join(_APPROVALS)}")


def _valid_name(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise _invalid(f"The name {name!r} must match {_NAME.pattern}")
    return name


def _public(item: dict, besides: str = "") -> dict:
    return {k: v for k, v in item.items() if not k.startswith("_") and k != besides}


def _group_arn(name: str) -> str:
    """Return a group's ARN: SageMaker lower-cases names in ARNs, and finds them in any case."""
    return make_arn("sagemaker", f"model-package-group/{name.lower()}")


def _package_arn(name: str) -> str:
    return make_arn("sagemaker", f"model-package/{name.lower()}")


def _invalid(message: str) -> ApiError:
    return ApiError("ValidationException", message)
