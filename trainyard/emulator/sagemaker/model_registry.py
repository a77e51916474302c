"""The model registry: model package groups and model packages, each stored in its own JSON file.

<state>/registry/ModelPackageGroup/<name>.json <state>/registry/ModelPackage/<group>/<version>.json,
ModelPackage/<name>.json without a group

moto has most of these operations, but in memory and with defects that lose data (an update erases
the members that it omits, a duplicate group is accepted, nothing can be deleted). So they are
implemented here: requests are checked against botocore's model of the service, stored as they came,
and described with the times, versions and creators that they really have. Validation profiles are
not kept: nothing is validated, and every package is ``Completed`` immediately.
"""

import threading
import time
from collections.abc import Callable
from pathlib import Path

from trainyard.emulator.json_documents import RepeatedWrite, read_json, write_json
from trainyard.emulator.request_scope import (
    EXISTING,
    ApiError,
    make_validation_error,
    parse_account,
    parse_region,
    read_caller,
    read_region,
)
from trainyard.emulator.sagemaker.resources import Kind, Operation, Store
from trainyard.permissions.policy_documents import MalformedPolicy, parse_policy

_TAGGING = frozenset({"AddTags", "ListTags", "DeleteTags"})
_UPDATE_MEMBERS = (
    "ModelApprovalStatus",
    "ApprovalDescription",
    "InferenceSpecification",
    "SourceUri",
    "ModelCard",
    "ModelLifeCycle",
    "ModelPackageRegistrationType",
)


class _RegistryKind(Kind):
    """A kind of resource in the registry, whose error messages differ from those of other kinds."""

    def make_missing_error(self, arn: str, verb: str = "Describe") -> ApiError:
        return make_validation_error(f"{self._format_words().title()} {arn} does not exist.")

    def make_existing_error(self, arn: str) -> ApiError:
        return make_validation_error(f"{self._format_words().title()} already exists: {arn}")


# The default page size is the largest, and the default order is the oldest first: API reference.
GROUP = _RegistryKind(
    "ModelPackageGroup", "model-package-group", "a name for versions", "Ascending", 100
)
PACKAGE = _RegistryKind("ModelPackage", "model-package", "a record of a model", "Ascending", 100)


class Registry(Store):
    """Model package groups and model packages.

    ``on_change`` is called with the description of each package that is new, or whose approval
    status was set. Raises :class:`ApiError` ``ValidationException`` or ``ConflictException``, as
    AWS does.
    """

    def __init__(
        self, root: Path, on_change: Callable[[dict], None] = lambda package: None
    ) -> None:
        super().__init__(root, (GROUP, PACKAGE))
        self._on_change = on_change

    def _list_special_operations(self) -> dict[str, Operation]:
        return {
            "CreateModelPackageGroup": self._create_group,
            "DeleteModelPackageGroup": self._delete_group,
            "PutModelPackageGroupPolicy": self._put_policy,
            "GetModelPackageGroupPolicy": self._get_policy,
            "DeleteModelPackageGroupPolicy": self._delete_policy,
            "CreateModelPackage": self._create_package,
            "UpdateModelPackage": self._update_package,
        }

    # groups

    def _create_group(self, request: dict) -> dict:
        # ``_next`` is the next version number: as on AWS, a number is never used twice.
        members = {
            "CreatedBy": _build_user_context(),
            "ModelPackageGroupStatus": "Completed",
            "_next": 1,
        }
        return self._add(GROUP, request["ModelPackageGroupName"], request | members)

    def _delete_group(self, request: dict) -> dict:
        name = self._find(GROUP, request)["ModelPackageGroupName"]
        if any(
            p.get("ModelPackageGroupName") == name for p in self._items["ModelPackage"].values()
        ):
            message = f"Model Package Group {name} cannot be deleted: it contains model packages"
            raise ApiError("ConflictException", message)
        return self._delete(GROUP, request)

    def _put_policy(self, request: dict) -> dict:
        """Check and store a group's resource policy."""
        group = self._find(GROUP, request)
        try:
            parse_policy("the resource policy", request["ResourcePolicy"])
        except MalformedPolicy as wrong:
            raise make_validation_error(f"Invalid resource policy: {wrong}") from None
        self._save(GROUP, group | {"_policy": request["ResourcePolicy"]})
        return {"ModelPackageGroupArn": group["ModelPackageGroupArn"]}

    def _get_policy(self, request: dict) -> dict:
        group = self._find(GROUP, request)
        if "_policy" not in group:
            raise make_validation_error(
                f"Cannot find resource policy for: {group['ModelPackageGroupArn']}"
            )
        return {"ResourcePolicy": group["_policy"]}

    def _delete_policy(self, request: dict) -> dict:
        group = self._find(GROUP, request)
        self._save(GROUP, {k: v for k, v in group.items() if k != "_policy"})
        return {}

    def find_policy(self, arn: str) -> str | None:
        """Return the resource policy of a group, found by the group's ARN or by that of one of its
        packages. Return None if it has none.
        """
        name = arn.partition(":model-package")[2].partition("/")[2].partition("/")[0]
        return self._items["ModelPackageGroup"].get(GROUP.build_arn(name), {}).get("_policy")

    # packages

    def _create_package(self, request: dict) -> dict:
        """Store a package. In a group, it gets the group's next version number."""
        group_name, name = request.get("ModelPackageGroupName"), request.get("ModelPackageName")
        if group_name and name:
            message = "Both ModelPackageName and ModelPackageGroupName are provided in the input. "
            raise make_validation_error(message + "Cannot determine which one to use.")
        if not group_name and not name:
            raise make_validation_error("Missing ARN.")
        package = {
            **request,
            "CreatedBy": _build_user_context(),
            "ModelPackageStatus": "Completed",
            "ModelPackageStatusDetails": {"ValidationStatuses": []},
        }
        if group_name:
            group = self._find(GROUP, request)
            # The number is taken first. If creating the package then fails, no other package gets
            # it.
            version, package_group = group["_next"], group["ModelPackageGroupName"]
            self._save(GROUP, group | {"_next": version + 1})
            package |= {"ModelPackageGroupName": package_group, "ModelPackageVersion": version}
            package.setdefault("ModelApprovalStatus", "PendingManualApproval")  # AWS's default
            name = f"{package_group}/{version}"
        answer = self._add(PACKAGE, str(name), package)
        self._notify_change(answer)
        return answer

    def _notify_change(self, answer: dict) -> None:
        """Call ``on_change`` with the description of the package."""
        request = {"ModelPackageName": answer["ModelPackageArn"]}
        self._on_change(self._describe(PACKAGE, request))

    def _update_package(self, request: dict) -> dict:
        """Change only the members that the request contains."""
        package = dict(self._find(PACKAGE, {"ModelPackageName": request["ModelPackageArn"]}))
        package |= {k: request[k] for k in _UPDATE_MEMBERS if k in request}
        metadata = package.get("CustomerMetadataProperties", {})
        metadata = metadata | request.get("CustomerMetadataProperties", {})
        for key in request.get("CustomerMetadataPropertiesToRemove", []):
            metadata.pop(key, None)
        if metadata or "CustomerMetadataProperties" in package:
            package["CustomerMetadataProperties"] = metadata
        if additions := request.get("AdditionalInferenceSpecificationsToAdd"):
            old = package.get("AdditionalInferenceSpecifications", [])
            package["AdditionalInferenceSpecifications"] = old + additions
        self._save(
            PACKAGE,
            package | {"LastModifiedTime": time.time(), "LastModifiedBy": _build_user_context()},
        )
        if "ModelApprovalStatus" in request:
            self._notify_change(package)
        return {"ModelPackageArn": package["ModelPackageArn"]}

    # internals

    def _find(self, kind: Kind, request: dict, verb: str = "Describe") -> dict:
        """Return a record, as the base class does. Raises an error for a group in another region or
        account.
        """
        if kind is GROUP:
            refuse_foreign_group(request["ModelPackageGroupName"])
        return super()._find(kind, request, verb)

    def _list(self, kind: Kind, request: dict) -> dict:
        if "ModelPackageGroupName" in request:
            group_name = self._find(GROUP, request)["ModelPackageGroupName"]
            request = request | {"ModelPackageGroupName": group_name}
        return super()._list(kind, request)

    def _matches_request(self, kind: Kind, record: dict, request: dict) -> bool:
        if kind is GROUP:
            return super()._matches_request(kind, record, request)
        group = request.get("ModelPackageGroupName")
        version_type = "Versioned" if "ModelPackageVersion" in record else "Unversioned"
        return (
            super()._matches_request(kind, record, request)
            and group in (None, record.get("ModelPackageGroupName"))
            and request.get("ModelApprovalStatus") in (None, record.get("ModelApprovalStatus"))
            and request.get("ModelPackageType", "Versioned" if group else "Unversioned")
            in ("Both", version_type)
        )


def find_arn(operation: str, request: dict) -> str:
    """Return the ARN of the group or package in a request to the registry. Return an empty string
    if there is none.
    """
    if operation not in _TAGGING and "ModelPackage" not in operation:
        return ""
    members = ("ModelPackageGroupName", "ModelPackageName", "ModelPackageArn", "ResourceArn")
    return next((v for m in members if ":model-package" in (v := str(request.get(m)))), "")


def refuse_foreign_group(group: str) -> None:
    """Raise ``ValidationException`` if ``group`` is the ARN of a group in another region than the
    request's, or in an account that does not exist here.
    """
    if group.startswith("arn:") and parse_region(group) != read_region():
        raise make_validation_error(
            f"{group} is in another region than the request's, {read_region()}."
        )
    if group.startswith("arn:") and parse_account(group) not in EXISTING:
        raise make_validation_error(
            f"{group} is in an account that does not exist here (docs/emulator.md)."
        )


def _build_user_context() -> dict:
    """Return the caller as the UserContext of the API; empty if it is not known."""
    return {"IamIdentity": {"Arn": read_caller()}} if read_caller() else {}


# Tags on pipelines, executions and jobs.


class Tags:
    """Tags by ARN, stored in one file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.RLock()
        self._save_or_retry = RepeatedWrite(self._write, "the tags after a deletion")
        self._tags: dict[str, dict[str, str]] = read_json(path) if path.exists() else {}

    def add(self, request: dict) -> dict:
        """Handle AddTags: set the tags, and return all tags of the resource."""
        with self._lock:
            tags = self._tags.setdefault(request["ResourceArn"], {})
            tags |= {tag["Key"]: tag["Value"] for tag in request["Tags"]}
            write_json(self._path, self._tags)
        return {"Tags": _format_tags(tags)}

    def list_tags(self, request: dict) -> dict:
        return {"Tags": _format_tags(self._tags.get(request["ResourceArn"], {}))}

    def delete(self, request: dict) -> dict:
        with self._lock:
            tags = self._tags.get(request["ResourceArn"], {})
            for key in request["TagKeys"]:
                tags.pop(key, None)
            write_json(self._path, self._tags)
        return {}

    def delete_all(self, arn: str) -> None:
        """Delete the tags of a deleted resource, so that a new resource with its name starts
        without tags.
        """
        with self._lock:
            if self._tags.pop(arn, None) is not None:
                self._save_or_retry()  # no error if the disk is full: the resource is gone

    def _write(self) -> None:
        with self._lock:
            write_json(self._path, self._tags)


def _format_tags(tags: dict[str, str]) -> list[dict]:
    return [{"Key": key, "Value": value} for key, value in tags.items()]
