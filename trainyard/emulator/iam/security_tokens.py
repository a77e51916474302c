"""STS: sessions of roles, with the limits that AWS documents for AssumeRole.

Each member of a request either has its effect or is refused with an error that names it. Other
operations that create credentials are refused, too, because there are no identity providers here
that could confirm a token, and no MFA.
"""

import re
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from xml.sax.saxutils import escape

from werkzeug import Request, Response

from trainyard.emulator.iam import account_policies
from trainyard.emulator.iam.access_keys import ROLE, Keys, Session, make_role_id
from trainyard.emulator.iam.authority import Authority, Caller
from trainyard.emulator.iam.s3_calls import iter_s3_calls, make_object_call
from trainyard.emulator.iam.service_calls import iter_service_calls
from trainyard.emulator.request_scope import (
    ApiError,
    enter_scope,
    find_other_account,
    read_account,
    read_region,
)
from trainyard.emulator.request_signatures import RequestSignature
from trainyard.emulator.rest_requests import parse_form_list
from trainyard.emulator.s3.buckets import MAY_DELETE
from trainyard.emulator.services.moto_app import Moto
from trainyard.permissions.policy_documents import MalformedPolicy, Policy, parse_policy

SHORTEST, LONGEST = 900, 43_200  # minimum and maximum seconds of a session
USUAL = 3600  # seconds: the default, and the maximum for role chaining and most roles
LONGEST_POLICY = 2048  # maximum characters
MEMBERS = {"RoleArn", "RoleSessionName", "Policy", "PolicyArns", "DurationSeconds", "Tags"}
MEMBERS |= {"TransitiveTagKeys", "ExternalId"}
_NAME = re.compile(r"[\w+=,.@-]{2,64}")
_SPACE = "https://sts.amazonaws.com/doc/2011-06-15/"
Form = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class SecurityTokens:
    """STS of an emulator. ``moto`` has its IAM."""

    keys: Keys
    moto: Moto

    def find_request_error(self, request: Request, access_key: str) -> ApiError | None:
        """Return the error if the request is not valid or not implemented. Return None if it can be
        performed.

        Call it first: before the policies are checked, and before the account that the request may
        open is created.
        """
        operation = request.values.get("Action", "")
        try:
            if operation == "AssumeRole":
                self._parse_session(request.values, access_key)
            elif operation != "GetCallerIdentity":
                return _make_unimplemented_error(
                    operation, "here only AssumeRole creates credentials"
                )
        except ApiError as wrong:
            return wrong
        return None

    def answer(self, request: Request, access_key: str) -> Response:
        """Return the response to a request for which ``find_request_error`` returned None."""
        if request.values["Action"] == "GetCallerIdentity":
            identity = self.keys.find_identity(access_key)
            return (
                _make_response(request, identity) if identity else self.moto.answer(request, "sts")
            )
        session = self._parse_session(request.values, access_key)
        key, secret, token = self.keys.create_session_key(session)
        credentials = {
            "AccessKeyId": key,
            "SecretAccessKey": secret,
            "SessionToken": token,
            "Expiration": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(session.until)),
        }
        user = {"AssumedRoleId": session.user_id, "Arn": session.arn}
        return _make_response(request, {"AssumedRoleUser": user, "Credentials": credentials})

    def _parse_session(self, form: Form, access_key: str) -> Session:
        """Return the session that an AssumeRole request describes, without credentials.

        Raises:
            ApiError: a member is not valid or not implemented; in AWS's words.
        """
        names = {name.partition(".")[0] for name in form if not name.startswith("X-Amz-")}
        for name in sorted(names - MEMBERS - {"Action", "Version"}):
            raise _make_unimplemented_error(
                "AssumeRole", f"{name} would have no effect here: leave it out"
            )
        role, name = form.get("RoleArn", ""), form.get("RoleSessionName", "")
        if not (parts := ROLE.fullmatch(role)):
            raise _make_validation_error(f"{role} is invalid")
        if not _NAME.fullmatch(name):
            raise _make_validation_error(
                f"RoleSessionName {name!r}: expected 2 to 64 letters, digits and +=,.@-_"
            )
        owner, source = (
            find_other_account(role) or read_account(),
            self.keys.find_session(access_key),
        )
        tags, transitive = _parse_tags(form, source)
        # The policies and the maximum duration come from the role's account, not from the caller's.
        with enter_scope(read_region(), owner):
            iam_role = account_policies.find_role(role)
            policies = tuple(self._iter_policies(form))
        longest = int(getattr(iam_role, "max_session_duration", None) or USUAL)
        seconds = _parse_duration(
            form.get("DurationSeconds"), longest, self.keys.is_user_key(access_key)
        )
        user_id = f"{iam_role.id if iam_role else make_role_id(parts['name'])}:{name}"
        until = time.time() + seconds
        return Session(role, name, owner, user_id, until, policies, tags, transitive)

    def _iter_policies(self, form: Form) -> Iterator[Policy]:
        """Iterate over the session policies of the request. The current account must be that of its
        role.
        """
        if (text := form.get("Policy")) is not None:
            if len(text) > LONGEST_POLICY:
                raise _make_validation_error(
                    f"Policy: expected at most {LONGEST_POLICY} characters"
                )
            try:
                yield parse_policy("session policy", text)
            except MalformedPolicy as wrong:
                raise ApiError("MalformedPolicyDocument", str(wrong)) from None
        arns = [entry.get("arn", "") for entry in parse_form_list(form, "PolicyArns")]
        if len(arns) > 10:
            raise _make_validation_error("PolicyArns: expected at most 10 managed policies")
        for arn in arns:
            if ":iam::aws:policy/" in arn:
                self.moto.load_managed_policies()
            if (policy := account_policies.find_managed_policy(arn)) is None:
                raise _make_validation_error(
                    f"PolicyArns: {arn} is neither a policy of account {read_account()} nor of AWS"
                )
            yield policy


def _parse_duration(value: str | None, longest: int, is_user: bool) -> int:
    """Return the session's duration in seconds. ``is_user``: the caller is a user. Sessions that
    other sessions create (role chaining) are limited to one hour.
    """
    seconds = USUAL if value is None else int(value) if value.isdecimal() else -1
    if not SHORTEST <= seconds <= LONGEST:
        raise _make_validation_error(
            f"DurationSeconds {value}: expected {SHORTEST} to {LONGEST} seconds"
        )
    if seconds > USUAL and not is_user:
        raise _make_validation_error(
            "The requested DurationSeconds exceeds the 1 hour session limit for roles assumed by "
            "role chaining."
        )
    if seconds > longest:
        raise _make_validation_error(
            "The requested DurationSeconds exceeds the MaxSessionDuration set for this role."
        )
    return seconds


def _parse_tags(
    form: Form, source: Session | None
) -> tuple[tuple[tuple[str, str], ...], frozenset[str]]:
    """Return a session's tags, and the keys, in lower case, of those that are passed on to further
    sessions.

    ``source`` is the session that makes the request, or None.
    """
    tags = [(tag.get("Key", ""), tag.get("Value", "")) for tag in parse_form_list(form, "Tags")]
    keys = [key.lower() for key, _ in tags]
    if len(tags) > 50 or any(not 1 <= len(k) <= 128 or len(v) > 256 for k, v in tags):
        raise _make_validation_error(
            "Tags: expected at most 50, keys of 1 to 128 and values of 0 to 256 characters"
        )
    if len(set(keys)) < len(keys):
        message = "Duplicate tag keys found. Please note that Tag keys are case insensitive."
        raise ApiError("InvalidParameterValue", message)
    chain_keys = source.transitive if source else frozenset()
    if conflicts := sorted(chain_keys.intersection(keys)):
        message = f"The tag {conflicts[0]} was set as transitive earlier in the chain."
        raise ApiError("InvalidParameterValue", message)
    new_keys = {key.lower() for key in parse_form_list(form, "TransitiveTagKeys")}
    if new_keys - set(keys):
        message = "The specified transitive tag key must be included in the requested tags."
        raise ApiError("InvalidParameterValue", message)
    chain_tags = [tag for tag in (source.tags if source else ()) if tag[0].lower() in chain_keys]
    return (*chain_tags, *tags), chain_keys | new_keys


def _make_response(request: Request, members: Mapping[str, str | Mapping[str, str]]) -> Response:
    operation = request.values["Action"]
    result = f"<{operation}Result>{_render_xml(members)}</{operation}Result>"
    body = f'<{operation}Response xmlns="{_SPACE}">{result}</{operation}Response>'
    return Response(body, content_type="text/xml")


def _render_xml(members: Mapping[str, str | Mapping[str, str]]) -> str:
    texts = {k: v if isinstance(v, Mapping) else escape(v) for k, v in members.items()}
    return "".join(
        f"<{name}>{_render_xml(value) if isinstance(value, Mapping) else value}</{name}>"
        for name, value in texts.items()
    )


def _make_unimplemented_error(operation: str, reason: str) -> ApiError:
    return ApiError("InvalidAction", f"The emulator does not implement {operation}: {reason}.")


def _make_validation_error(message: str) -> ApiError:
    return ApiError("ValidationError", message)


# Check a signed request against the policies that apply to the owner of the key that signed it.


def find_denial(
    authority: Authority, keys: Keys, request: Request, signature: RequestSignature
) -> ApiError | None:
    """Return the error if IAM denies the request. Return None if it does not."""
    caller = _find_caller(authority, keys, signature.key)
    if caller is None:
        return None
    if signature.service == "s3":
        calls = iter_s3_calls(request, authority.objects)
        request.environ[MAY_DELETE] = _make_deletion_check(authority, caller)
    else:
        calls = iter_service_calls(signature.service, request)
    try:
        authority.check(caller, calls)
    except ApiError as denial:
        return denial
    return None


def _find_caller(authority: Authority, keys: Keys, access_key: str) -> Caller | None:
    if access_key == keys.own_pair[0]:
        return authority.find_administrator_caller()
    if loan := keys.find_loan(access_key):
        return authority.find_role_caller(loan.role)
    if session := keys.find_session(access_key):
        return authority.find_session_caller(session)
    return authority.find_user_caller(access_key)


def _make_deletion_check(
    authority: Authority, caller: Caller
) -> Callable[[str, str, str | None], None]:
    """Return the function with which S3 checks the permission to delete each key of a
    DeleteObjects.
    """

    def may_delete(bucket: str, key: str, version: str | None) -> None:
        """Raise ``AccessDenied`` if the caller may not delete this version of the key."""
        verb = "DeleteObjectVersion" if version else "DeleteObject"
        authority.check(caller, [make_object_call(verb, bucket, key)])

    return may_delete
