"""A signed request, held to the policies of whose key signed it.

Apart: it is the only part of IAM that knows the web server.
"""

from collections.abc import Callable

from werkzeug import Request

from trainyard.emulator.iam.access_keys import Keys
from trainyard.emulator.iam.authority import Authority, Caller
from trainyard.emulator.iam.s3_calls import object_call, s3_calls
from trainyard.emulator.iam.service_calls import service_calls
from trainyard.emulator.request_scope import ApiError
from trainyard.emulator.request_signatures import RequestSignature
from trainyard.emulator.s3.buckets import MAY_DELETE


def refusal(
    authority: Authority, keys: Keys, request: Request, signature: RequestSignature
) -> ApiError | None:
    """Return why IAM denies the request; None if it does not."""
    caller = _caller(authority, keys, signature.key)
    if caller is None:
        return None
    if signature.service == "s3":
        calls = s3_calls(request, authority.objects)
        request.environ[MAY_DELETE] = _deletion_check(authority, caller)
    else:
        calls = service_calls(signature.service, request)
    try:
        authority.check(caller, calls)
    except ApiError as denial:
        return denial
    return None


def _caller(authority: Authority, keys: Keys, access_key: str) -> Caller | None:
    if access_key == keys.own_pair[0]:
        return authority.administrator()
    if loan := keys.loan(access_key):
        return authority.session(loan.role)
    if session := keys.session(access_key):
        return authority.of_session(session)
    return authority.of_user(access_key)


def _deletion_check(authority: Authority, caller: Caller) -> Callable[[str, str, str | None], None]:
    def may_delete(bucket: str, key: str, version: str | None) -> None:
        verb = "DeleteObjectVersion" if version else "DeleteObject"
        authority.check(caller, [object_call(verb, bucket, key)])

    return may_delete
