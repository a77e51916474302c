"""The policies of each account, read from IAM, S3, KMS, ECR and the state directory.

IAM, KMS and ECR are moto's. A service that has had no request yet has no policies and is not
imported, because moto's IAM alone takes 0.3 s.
"""

import json
import logging
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from trainyard.emulator.iam import access_keys
from trainyard.emulator.iam.access_keys import SESSION
from trainyard.emulator.request_scope import EXISTING, parse_account, read_account
from trainyard.emulator.s3.buckets import POLICY
from trainyard.emulator.s3.object_store import ObjectStore
from trainyard.permissions.policy_documents import MalformedPolicy, Policy, parse_policy
from trainyard.permissions.policy_evaluation import Principal

log = logging.getLogger(__name__)

DERIVED_POLICY = "derived"
"""Name of the inline policy of a role that Trainyard's own template creates
(permissions.role_template).
"""
_KEY = re.compile(r"arn:[\w-]+:kms:([\w-]+):\d{12}:key/(.+)")
_REPOSITORY = re.compile(r"arn:[\w-]+:ecr:([\w-]+):\d{12}:repository/(.+)")
_ROLE = re.compile(r"arn:[\w-]+:iam::\d{12}:role/.+")
_GROUP = re.compile(r"arn:[\w-]+:sagemaker:[\w-]+:\d{12}:model-package(-group)?/.+")
_BUCKET = re.compile(r"arn:[\w-]+:s3:::([^/]+)")


@dataclass(frozen=True, slots=True)
class IamRecord:
    """The policies and tags that IAM has stored for a role or a user."""

    identity: tuple[Policy, ...]
    boundary: Policy | None
    trust: Policy | None
    """The trust policy, if it is a role."""

    tags: tuple[tuple[str, str], ...]

    @property
    def is_derived(self) -> bool:
        """Whether Trainyard's own template created it."""
        return any(policy.name == DERIVED_POLICY for policy in self.identity)


def make_session_principal(role: str, name: str = SESSION) -> Principal:
    """Return the principal for the session ``name`` of the role with that ARN, in the current
    account.
    """
    plain = role.rpartition("/")[2]
    return Principal(f"arn:aws:sts::{read_account()}:assumed-role/{plain}/{name}", role)


def find_user(access_key: str) -> Principal | None:
    """Return the user of the current account to whom the key belongs. Return None if there is none
    or the key is not active.
    """
    # A copy, because other requests may change moto's users at the same time.
    for iam_user in list((_find_backend_member("iam", "users", "aws") or {}).values()):
        for key in iam_user.access_keys:
            if key.access_key_id == access_key and key.status == "Active":
                return Principal(iam_user.arn)
    return None


def find_role(arn: str) -> Any:
    """Return moto's role of the current account with the name in the ARN. Return None if there is
    none.
    """
    roles = list((_find_backend_member("iam", "roles", "aws") or {}).values())
    return next((iam_role for iam_role in roles if iam_role.name == arn.rpartition("/")[2]), None)


def find_managed_policy(arn: str) -> Policy | None:
    """Return the managed policy of the current account or of AWS. Return None if there is none."""
    policies = _find_backend_member("iam", "managed_policies", "aws") or {}
    return _load_policy(arn, _read_document(policies[arn])) if arn in policies else None


def find_iam_record(principal: Principal) -> IamRecord | None:
    """Return IAM's record of the principal. Return None if IAM does not know the principal."""
    name = (principal.role or principal.arn).rpartition("/")[2]
    kind = "roles" if principal.role else "users"
    everyone = list((_find_backend_member("iam", kind, "aws", principal.account) or {}).values())
    entity = next((candidate for candidate in everyone if candidate.name == name), None)
    if entity is None:
        return None
    trust = getattr(entity, "assume_role_policy_document", None)
    identity = tuple(_iter_identity_policies(entity))
    # A boundary that does not exist allows nothing, because whoever set it meant to limit the role.
    boundary_arn = getattr(entity, "permissions_boundary_arn", None)
    boundary = (
        find_managed_policy(boundary_arn) or Policy(boundary_arn, ()) if boundary_arn else None
    )
    tags = entity.tags.values() if isinstance(entity.tags, dict) else entity.tags
    return IamRecord(
        identity,
        boundary,
        _load_policy(f"trust of {name}", trust) if trust else None,
        tuple((tag["Key"], tag["Value"]) for tag in tags or ()),
    )


def _iter_identity_policies(entity: Any) -> Iterator[Policy]:
    groups = list((_find_backend_member("iam", "groups", "aws") or {}).values())
    for owner in (entity, *(group for group in groups if entity in group.users)):
        for name, document in list(owner.policies.items()):
            yield _load_policy(name, document)
        for arn, policy in list(owner.managed_policies.items()):
            yield _load_policy(arn, _read_document(policy))


def _read_document(policy: Any) -> str:
    """Return the document of a managed policy's default version."""
    version_id = policy.default_version_id
    return next(version.document for version in policy.versions if version.version_id == version_id)


def find_owner_account(arn: str, objects: ObjectStore, own_account: str) -> str:
    """Return the number of the account to which a resource belongs.

    Return ``own_account`` for a bucket that does not exist, and for an ARN whose account does not
    exist here.
    """
    if match := _BUCKET.match(arn):
        return objects.find_owner(match[1]) if objects.has_bucket(match[1]) else own_account
    return match if (match := parse_account(arn)) in EXISTING else own_account


def find_resource_policy(
    arn: str, owner: str, objects: ObjectStore, group_policy: Callable[[str], str | None]
) -> Policy | None:
    """Return the resource policy of a bucket (for its objects, too), a KMS key, an ECR repository,
    a role, or a model package group (for its packages, too). Return None if it has none.

    ``owner`` is the account of the resource. ``group_policy`` returns the policy of the group in an
    ARN.
    """
    if match := _BUCKET.match(arn):
        bucket = match[1]
        text = objects.read_setting(bucket, POLICY) if objects.has_bucket(bucket) else None
        return _load_policy(f"bucket {bucket}", text) if text else None
    if match := _KEY.fullmatch(arn):
        key = (_find_backend_member("kms", "keys", match[1], owner) or {}).get(match[2])
        return _load_policy(f"key {match[2]}", key.policy) if key else None
    if _ROLE.fullmatch(arn):
        if access_keys.find_entry_role_account(arn):
            return parse_policy(f"trust of {access_keys.ENTRY}", access_keys.ENTRY_TRUST)
        role = find_iam_record(Principal(f"arn:aws:sts::{owner}:assumed-role/", arn))
        return role.trust if role else None
    if match := _REPOSITORY.fullmatch(arn):
        repository = (_find_backend_member("ecr", "repositories", match[1], owner) or {}).get(
            match[2]
        )
        text = repository.policy if repository else None
        return _load_policy(f"repository {match[2]}", text) if text else None
    if _GROUP.fullmatch(arn) and (text := group_policy(arn)):
        return _load_policy("the model package group", text)
    return None


def _load_policy(name: str, document: str | dict[str, Any]) -> Policy:
    """Parse a policy that a service has stored. Return one that allows nothing if it is malformed,
    because moto accepts documents that AWS refuses.
    """
    try:
        return parse_policy(name, document)
    except MalformedPolicy as wrong:
        log.warning("%s; it allows nothing", wrong)
        return Policy(name, ())


def _find_backend_member(
    service: str, member: str, region_or_partition: str, account_id: str = ""
) -> Any:
    """Return a member of a moto backend of the account ``account_id``, or of the current account.
    Return None if the service was never used.

    ``region_or_partition`` is a region, or a partition for services without regions.
    """
    module = sys.modules.get(f"moto.{service}.models")
    backends = getattr(module, f"{service}_backends", None)
    return (
        getattr(backends[account_id or read_account()][region_or_partition], member)
        if backends
        else None
    )


# AWS's own IAM policies. Adding them to moto's IAM takes 0.2 s, so it is only done at the first
# request that names one of them or lists policies.

_POLICY_REQUEST = re.compile(
    rb"iam(::|%3A%3A)aws(:|%3A)policy|Action=(ListPolicies|GetAccountAuth)"
)


def needs_managed_policies(body: bytes) -> bool:
    """Return whether the response to a request with this body depends on AWS's managed policies."""
    return bool(_POLICY_REQUEST.search(body))


def add_managed_policies() -> None:
    """Add AWS's managed policies to the account's IAM if they are missing."""
    # Imported here, because it takes 0.3 s and most emulators never need it.
    from moto.iam.aws_managed_policies import aws_managed_policies_data
    from moto.iam.models import AWSManagedPolicy, iam_backends

    backend = iam_backends[read_account()]["aws"]
    if any(isinstance(policy, AWSManagedPolicy) for policy in backend.managed_policies.values()):
        return
    for name, data in json.loads(aws_managed_policies_data).items():
        policy = AWSManagedPolicy.from_data(name, read_account(), backend.region_name, data)
        backend.managed_policies[policy.arn] = policy
