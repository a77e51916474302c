"""Decide whether a role or user may make a call. A denied call fails with AWS's message."""

import logging
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from trainyard.emulator.iam import access_keys, account_policies
from trainyard.emulator.iam.access_keys import Session
from trainyard.emulator.iam.account_policies import IamRecord, make_session_principal
from trainyard.emulator.iam.s3_calls import (
    iter_decryption_calls,
    iter_existence_calls,
    make_list_call,
    make_object_call,
    read_existing_tags,
)
from trainyard.emulator.iam.service_calls import Call, build_condition_keys
from trainyard.emulator.request_scope import EXISTING, ApiError, read_account, read_region
from trainyard.emulator.s3.object_folder import StoredBytes
from trainyard.emulator.s3.object_store import DeleteResult, ObjectInfo, ObjectStore
from trainyard.permissions.policy_documents import MalformedPolicy, Policy, parse_policy
from trainyard.permissions.policy_evaluation import (
    Decision,
    Policies,
    Principal,
    Request,
    evaluate_request,
)

log = logging.getLogger(__name__)

Mode = Literal["derived", "enforce", "warn", "off"]
"""To whom policies apply. ``derived``: roles that Trainyard's own template created. ``enforce``:
everyone, and a role that IAM does not know may do nothing. ``warn``: everyone, but denials are only
logged. ``off``: no one.
"""
_EVERYTHING = parse_policy(
    "administrator",
    {"Version": "2012-10-17", "Statement": {"Effect": "Allow", "Action": "*", "Resource": "*"}},
)
_GLOBAL = frozenset(
    f"aws:{name}"
    for name in (
        *("principaltag/", "username", "calledvia", "calledviafirst", "calledvialast"),
        *("sourcearn", "sourceaccount", "multifactorauthage", "multifactorauthpresent"),
        *("federatedprovider", "principalisawsservice"),
    )
)
"""Global condition keys that a request is known not to have, unless its context has them."""


@dataclass(frozen=True, slots=True)
class Caller:
    """A role, user or administrator that makes calls, with the policies that limit it."""

    principal: Principal
    iam_record: IamRecord | None
    """What IAM has stored about it. None for an administrator."""
    session: tuple[Policy, ...] = ()
    """Policies of its session, from the AssumeRole request."""
    tags: tuple[tuple[str, str], ...] = ()
    """Tags of its session, which override its role's tags."""


@dataclass(slots=True)
class Authority:
    """Decide for one emulator whether callers may make calls. ``control`` are service control
    policies.

    ``observe`` is called with each decision.
    """

    objects: ObjectStore
    mode: Mode = "derived"
    control: tuple[Policy, ...] = ()
    observe: Callable[[Decision], None] | None = None
    group_policy: Callable[[str], str | None] = lambda arn: None  # noqa: E731
    """Returns the policy of the model package group in an ARN. ``regions.Worlds`` sets it."""
    _warned_messages: set[str] = field(default_factory=set)

    def find_role_caller(self, role: str) -> Caller | None:
        """Return the caller for the session in which SageMaker assumes a role. Return None if no
        policy applies to it.
        """
        return self._make_caller(make_session_principal(role)) if role else None

    def find_session_caller(self, session: Session) -> Caller | None:
        """Return the caller for a session that AssumeRole created. Return None if no policy applies
        to it.
        """
        principal = Principal(session.arn, session.role)
        caller = self._make_caller(principal)
        if self.mode == "off" or not (caller or session.policies):
            return None
        iam_record = caller.iam_record if caller else None
        return Caller(principal, iam_record, session.policies, session.tags)

    def find_user_caller(self, access_key: str) -> Caller | None:
        """Return the caller for the user to whom the key belongs. Return None if no policy applies
        to it.
        """
        principal = account_policies.find_user(access_key)
        return self._make_caller(principal) if principal else None

    def find_administrator_caller(self) -> Caller | None:
        """Return the caller for the emulator's own user, to whom only control and resource policies
        can apply.
        """
        return self._make_exempt_caller(
            make_session_principal(access_keys.make_administrator_arn())
        )

    def _make_caller(self, principal: Principal) -> Caller | None:
        """Return the caller for a principal. Return None if no policy applies to it."""
        if self.mode == "off":
            return None
        if access_keys.is_administrator_role(principal.role):
            return self._make_exempt_caller(principal)
        iam_record = account_policies.find_iam_record(principal)
        if iam_record and (iam_record.is_derived or self.mode != "derived"):
            return Caller(principal, iam_record)
        if self.mode == "derived":
            return self._make_exempt_caller(principal)
        return Caller(principal, IamRecord((), None, None, ()))

    def _make_exempt_caller(self, principal: Principal) -> Caller | None:
        """Return a caller to whom no identity policy applies. Return None if no other policy can
        apply either.
        """
        bound = self.control or self.mode != "derived" or len(EXISTING) > 1
        return Caller(principal, None) if bound and self.mode != "off" else None

    def check(self, caller: Caller | None, calls: Iterable[Call]) -> None:
        """Raise ``AccessDenied`` (status 403) with AWS's message for the first call that is denied.
        Do nothing if ``caller`` is None.
        """
        for call in calls if caller else ():
            owner = self._find_owner(caller, call) if caller else ""
            across = caller and owner != caller.principal.account
            if across and call.action == "iam:PassRole":
                self._deny("Cross-account pass role is not allowed.", "ValidationException")
            if caller and (across or self._has_policies(caller)):
                decision = self._evaluate_call(caller, call, owner)
                if not decision.is_allowed:
                    self._deny(decision.message + _format_hint(caller))

    def _find_owner(self, caller: Caller, call: Call) -> str:
        """Return the number of the account to which the call's resource belongs."""
        own_account = caller.principal.account
        # The bucket does not exist yet, and S3 itself checks who owns the name.
        if len(EXISTING) == 1 or call.action == "s3:CreateBucket":
            return own_account
        return account_policies.find_owner_account(call.resource, self.objects, own_account)

    def _has_policies(self, caller: Caller) -> bool:
        """Return whether policies apply to the caller in its own account."""
        is_limited = caller.iam_record is not None or bool(caller.session)
        return is_limited or bool(self.control) or self.mode != "derived"

    def allows(self, caller: Caller | None, calls: Iterable[Call]) -> bool:
        """Return whether all the calls are allowed. Log the first one that is denied."""
        try:
            self.check(caller, calls)
        except ApiError as denial:
            self._warn(denial.message)
            return False
        return True

    def _evaluate_call(self, caller: Caller, call: Call, owner: str) -> Decision:
        """Return the decision on one call. ``owner`` is the account of the call's resource."""
        iam_record = caller.iam_record
        try:
            resource = account_policies.find_resource_policy(
                call.resource, owner, self.objects, self.group_policy
            )
        except MalformedPolicy as wrong:  # moto stores documents without checking them
            raise ApiError("MalformedPolicyDocumentException", str(wrong)) from None
        tags = read_existing_tags(call, self.objects)
        request = make_policy_request(
            caller, replace(call, context={**call.context, **tags}), owner
        )
        policies = Policies(
            identity=iam_record.identity if iam_record else (_EVERYTHING,),
            boundary=iam_record.boundary if iam_record else None,
            session=caller.session,
            control=self.control,
            resource=resource,
            needs_resource_allow=self._needs_resource_allow(call, resource),
        )
        return self._notify_observer(evaluate_request(request, policies))

    def _needs_resource_allow(self, call: Call, resource: Policy | None) -> bool:
        """Return whether the resource's policy itself must allow the call, as with KMS keys and
        trust policies. In the modes ``enforce`` and ``warn``, a role that IAM does not know trusts
        no one.
        """
        if call.action.startswith("sts:") and self.mode in ("enforce", "warn"):
            return True
        return resource is not None and call.action.startswith(("kms:", "sts:"))

    def check_role_trust(self, role: str, source: str) -> None:
        """Check that a role lets SageMaker assume it for the resource with the ARN ``source``.

        Raises ``ValidationException`` with AWS's message.
        """
        caller = self.find_role_caller(role)
        if caller is None or caller.iam_record is None or caller.iam_record.trust is None:
            return
        context = build_condition_keys(aws__sourcearn=source, aws__sourceaccount=read_account())
        service = Principal("sagemaker.amazonaws.com")
        request = Request(service, "sts:AssumeRole", role, context)
        trust = Policies(resource=caller.iam_record.trust, needs_resource_allow=True)
        if not self._notify_observer(evaluate_request(request, trust)).is_allowed:
            self._deny(
                f"Could not assume role {role}. Please ensure that the role exists and allows "
                "principal 'sagemaker.amazonaws.com' to assume the role.",
                "ValidationException",
            )

    def _notify_observer(self, decision: Decision) -> Decision:
        if self.observe:
            self.observe(decision)
        return decision

    def _deny(self, message: str, code: str = "AccessDenied") -> None:
        """Raise ApiError; in the mode ``warn``, only log the message."""
        if self.mode == "warn":
            self._warn(message)
            return
        raise ApiError(code, message, 403 if code == "AccessDenied" else 400)

    def _warn(self, message: str) -> None:
        """Log the denial of a call, but each message only once."""
        if message not in self._warned_messages and len(self._warned_messages) < 10_000:
            self._warned_messages.add(message)
            log.warning("denied by IAM%s: %s", ", but done" * (self.mode == "warn"), message)


def _format_hint(caller: Caller) -> str:
    """Return a hint that the role does not exist, or an empty string. AWS has no message for that,
    because there its jobs are refused earlier.
    """
    if caller.iam_record and not caller.iam_record.identity and caller.iam_record.trust is None:
        return ": the role or user does not exist in this IAM; create it, or run without --iam"
    return ""


def make_policy_request(caller: Caller, call: Call, owner: str = "") -> Request:
    """Return the call as a policy request, with the condition keys for its caller and the time.

    ``owner`` is the account of the resource, or empty for the caller's account.
    """
    principal, now = caller.principal, datetime.now(UTC)
    plain = principal.arn.rpartition("/")[2]
    context = build_condition_keys(
        aws__principalarn=principal.role or principal.arn,
        aws__principalaccount=principal.account,
        aws__principaltype="AssumedRole" if principal.role else "User",
        aws__username=None if principal.role else plain,
        aws__requestedregion=read_region(),
        aws__securetransport="true",  # requests never leave the machine
        aws__viaawsservice="false",
        aws__resourceaccount=owner or principal.account,
        aws__currenttime=now.isoformat(timespec="seconds").replace("+00:00", "Z"),
        aws__epochtime=int(time.time()),
    )
    for key, value in (*(caller.iam_record.tags if caller.iam_record else ()), *caller.tags):
        context[f"aws:principaltag/{key.lower()}"] = (value,)
    return Request(
        principal,
        call.action,
        call.resource,
        context | dict(call.context),
        _GLOBAL | call.known_keys,
        owner,
    )


# S3 with the permissions of a role, for what SageMaker transfers for a job and reads for a
# pipeline.


def restrict_objects(authority: Authority, role: str) -> ObjectStore:
    """Return the emulator's object store with the permissions of the role. Return the store itself
    if no policy applies to the role.
    """
    caller = authority.find_role_caller(role)
    return RestrictedObjects(authority, caller) if caller else authority.objects


class RestrictedObjects(ObjectStore):
    """An object store whose reads, listings and writes raise ``AccessDenied`` if IAM denies them to
    the caller.
    """

    def __init__(self, authority: Authority, caller: Caller) -> None:
        # Share the index, folder and lock, because the folder cannot be opened a second time.
        vars(self).update(vars(authority.objects))
        self._authority, self._caller = authority, caller

    def locate_file(self, bucket: str, key: str, version: str | None = None) -> Path:
        self._may_read(bucket, key)
        return super().locate_file(bucket, key, version)

    def open(
        self, bucket: str, key: str, version: str | None = None
    ) -> tuple[ObjectInfo, StoredBytes]:
        self._may_read(bucket, key)
        return super().open(bucket, key, version)

    def list(self, bucket: str, prefix: str = "", *, start: bytes = b"") -> Iterator[ObjectInfo]:
        self._authority.check(self._caller, [make_list_call(bucket, prefix)])
        return super().list(bucket, prefix, start=start)

    def commit(self, bucket: str, key: str, *args: Any, **options: Any) -> ObjectInfo:
        self._check_object_call("PutObject", bucket, key)
        return super().commit(bucket, key, *args, **options)

    def delete(self, bucket: str, key: str, *args: Any, **options: Any) -> DeleteResult:
        self._check_object_call("DeleteObject", bucket, key)
        return super().delete(bucket, key, *args, **options)

    def _may_read(self, bucket: str, key: str) -> None:
        self._check_object_call("GetObject", bucket, key)
        self._authority.check(self._caller, iter_existence_calls(self, bucket, key))
        self._authority.check(self._caller, iter_decryption_calls(self, bucket, key))

    def _check_object_call(self, action: str, bucket: str, key: str) -> None:
        self._authority.check(self._caller, [make_object_call(action, bucket, key)])
