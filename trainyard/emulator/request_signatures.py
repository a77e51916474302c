"""Signatures of requests: computed again, to check that the client has the secret.

A pipeline is code that runs as the user who started the emulator, and on a shared machine every
user reaches its port. So every request must be signed with a valid key, as on AWS: with Signature
Version 4, in the header or the query of a presigned URL, and with the signature of each chunk of an
upload if the client signs chunks; with Version 2 only in the form that boto3 still presigns for S3.
Unsigned requests are refused, even for the few operations that AWS allows unsigned: nothing here is
public.
"""

import hashlib
import hmac
import re
import time
from calendar import timegm
from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import urlsplit

from botocore.auth import (
    HmacV1QueryAuth,
    S3SigV4Auth,
    S3SigV4QueryAuth,
    SigV4Auth,
    SigV4QueryAuth,
)
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from werkzeug import Request

from trainyard.emulator.access_keys import Keys
from trainyard.emulator.api import ApiError, S3Error
from trainyard.emulator.request_scope import REGION
from trainyard.emulator.storage.s3_dispatch import virtual_bucket

LONGEST = 604800  # seconds that a presigned URL may be valid (AWS's limit: a week)
SKEW = 900  # seconds between the clocks of client and service (AWS's limit)
_SCOPE = r"(?P<key>[^/,\s]+)/(?P<day>\d{8})/(?P<region>[^/,\s]+)/(?P<service>[^/,\s]+)/aws4_request"
_HEADER = re.compile(
    rf"AWS4-HMAC-SHA256 +Credential={_SCOPE}, *SignedHeaders=(?P<names>[^,\s]+), *"
    r"Signature=(?P<signature>[0-9a-f]{64})"
)
_LIFETIME = re.compile("[1-9][0-9]{0,6}")
_TARGET = re.compile(r"^https?://[^/]*")
_DIGEST = re.compile(r"[0-9a-f]{64}")
_TOKEN = "x-amz-security-token"
_PAYLOAD = "x-amz-content-sha256"
_EMPTY = hashlib.sha256(b"").hexdigest()

CODES = {
    "missing": (
        "AccessDenied",
        "MissingAuthenticationToken",
        "MissingAuthenticationTokenException",
    ),
    "unknown": ("InvalidAccessKeyId", "InvalidClientTokenId", "UnrecognizedClientException"),
    "wrong": ("SignatureDoesNotMatch", "SignatureDoesNotMatch", "InvalidSignatureException"),
    "late": ("RequestTimeTooSkewed", "RequestExpired", "InvalidSignatureException"),
    "expired": ("AccessDenied", "RequestExpired", "InvalidSignatureException"),
    "ended": ("ExpiredToken", "ExpiredToken", "ExpiredTokenException"),
    "token": ("InvalidToken", "InvalidClientTokenId", "UnrecognizedClientException"),
    "unsigned": ("AccessDenied", "IncompleteSignature", "IncompleteSignatureException"),
    "malformed": ("InvalidRequest", "IncompleteSignature", "IncompleteSignatureException"),
}
"""Fault → AWS's error code for it in S3, in the query protocol, and in the JSON protocols."""


class Refused(Exception):
    """A refused request. ``why``: a key of CODES; the message is for people, ``fields`` for S3's
    answer.
    """

    def __init__(self, why: str, message: str, fields: dict[str, str] | None = None) -> None:
        super().__init__(message)
        self.why = why
        self.fields = fields

    def error(self, form: int) -> ApiError:
        """Return the error as the service answers it: 0 S3, 1 the query protocol, 2 the JSON
        protocols.
        """
        status = 400 if self.why == "malformed" else 403
        return S3Error(CODES[self.why][form], str(self), status, fields=self.fields)


@dataclass(frozen=True, slots=True)
class Signed:
    """A valid signature: its service and key, and the start for the signatures of an upload's
    chunks.

    Version 2 signs only S3 requests, and no chunks.
    """

    service: str
    key: str = ""
    region: str = REGION
    signature: str = ""
    _auth: SigV4Auth | None = None
    _request: AWSRequest | None = None

    def next(self, previous: str, digest: str, kind: str = "PAYLOAD") -> str:
        """Return the signature of the chunk with that SHA-256 after ``previous``, or of the
        trailers.
        """
        if self._auth is None or self._request is None:
            return ""
        context = self._request.context["timestamp"], self._auth.credential_scope(self._request)
        hashes = [_EMPTY, digest] if kind == "PAYLOAD" else [digest]
        lines = [f"AWS4-HMAC-SHA256-{kind}", *context, previous, *hashes]
        return self._auth.signature("\n".join(lines), self._request)


def check(
    request: Request, secret: Callable[[str], str | None], now: float | None = None
) -> Signed:
    """Return the valid signature of the request. Raises :class:`Refused`.

    ``secret``: returns the secret of an access key, None for an unknown key. ``now``: seconds since
    the epoch. Only the returned service may answer: elsewhere the request may name others.
    """
    now = time.time() if now is None else now
    header, query = request.headers.get("Authorization", ""), request.args
    if header and not {"X-Amz-Signature", "Signature"}.isdisjoint(query.keys()):
        raise Refused("malformed", "Only one auth mechanism allowed, in the header or in the query")
    if "X-Amz-Signature" in query:
        found = re.fullmatch(_SCOPE, query.get("X-Amz-Credential", ""))
        if not found or query.get("X-Amz-Algorithm") != "AWS4-HMAC-SHA256":
            raise Refused("malformed", "X-Amz-Algorithm or X-Amz-Credential is missing or wrong")
        moment = _moment(query.get("X-Amz-Date", ""))
        lifetime = query.get("X-Amz-Expires", "0")
        if not _LIFETIME.fullmatch(lifetime) or int(lifetime) > LONGEST:
            raise Refused("expired", f"X-Amz-Expires must be from 1 to {LONGEST} seconds")
        if not moment - SKEW <= now <= moment + int(lifetime):
            raise Refused("expired", "Request has expired")
        names, signature = query.get("X-Amz-SignedHeaders", ""), query["X-Amz-Signature"]
        return _same(request, found, names, signature, query["X-Amz-Date"], secret)
    if found := _HEADER.fullmatch(header):
        date = request.headers.get("X-Amz-Date", "")
        if abs(_moment(date) - now) > SKEW:
            raise Refused("late", f"X-Amz-Date {date} is more than 15 minutes from this clock")
        return _same(request, found, found["names"], found["signature"], date, secret)
    if {"AWSAccessKeyId", "Signature", "Expires"} <= query.keys():
        _check_version_2(request, secret, now)
        return Signed("s3", query["AWSAccessKeyId"])
    if header:
        raise Refused(
            "malformed",
            "The authorization mechanism you have provided is not supported. Please use "
            "AWS4-HMAC-SHA256.",
        )
    raise Refused(
        "missing",
        "The request is not signed: give the client the environment that the emulator prints",
    )


def check_session(request: Request, key: str, keys: Keys) -> None:
    """Check that temporary credentials come with their token, and are valid. Raises
    :class:`Refused`.
    """
    if why := keys.ended(key):
        raise Refused("ended", f"The security token included in the request is expired: {why}")
    given = request.headers.get(_TOKEN) or next(
        (value for name, value in request.args.items() if name.lower() == _TOKEN), ""
    )
    if not hmac.compare_digest(given.encode(), keys.token(key).encode()):
        raise Refused("token", "The security token included in the request is invalid.")


def _same(
    request: Request,
    scope: re.Match,
    names: str,
    signature: str,
    date: str,
    secret: Callable[[str], str | None],
) -> Signed:
    """Compute the signature again from the received request. Raises :class:`Refused`."""
    credentials = _credentials(scope["key"], secret)
    signed = names.split(";")
    if "host" not in signed or date[:8] != scope["day"]:
        raise Refused("malformed", "host must be signed, on the scope's day")
    if bare := ", ".join(sorted(_commands(request) - set(signed))):
        message = "There were headers present in the request which were not signed"
        raise Refused("unsigned", f"{message}: {bare}", {"HeadersNotSigned": bare})
    presigned, s3 = "X-Amz-Signature" in request.args, scope["service"].lower() == "s3"
    arrived = AWSRequest(
        request.method,
        _url(request),
        {name: _text(request.headers.get(name, "")) for name in signed},
        b"" if s3 else request.get_data(),
    )
    arrived.context["timestamp"] = date
    kinds = (S3SigV4QueryAuth if s3 else SigV4QueryAuth), (S3SigV4Auth if s3 else SigV4Auth)
    auth = kinds[not presigned](credentials, scope["service"], scope["region"])
    _check_payload(request, signed, s3=s3, presigned=presigned)
    text = auth.string_to_sign(arrived, auth.canonical_request(arrived))
    if not hmac.compare_digest(auth.signature(text, arrived), signature):
        raise _wrong()
    return Signed(scope["service"].lower(), scope["key"], scope["region"], signature, auth, arrived)


def _commands(request: Request) -> set[str]:
    """Return the headers that say what to do, and therefore must be signed."""
    names = {name.lower() for name, _ in request.headers}
    return {name for name in names if name.startswith("x-amz-")} - {_PAYLOAD}


def _check_payload(request: Request, signed: list[str], *, s3: bool, presigned: bool) -> None:
    """Check the signed hash of the body. S3 checks it itself, as the body arrives."""
    claimed = request.headers.get(_PAYLOAD, "")
    if s3 and not presigned and (not claimed or _PAYLOAD not in signed):
        raise Refused("malformed", f"the header {_PAYLOAD} is required, and must be signed")
    checked = not s3 and _DIGEST.fullmatch(claimed)
    if checked and hashlib.sha256(request.get_data()).hexdigest() != claimed:
        raise _wrong()


def _check_version_2(request: Request, secret: Callable[[str], str | None], now: float) -> None:
    """Check a presigned URL as boto3 creates it in us-east-1 without signature_version s3v4."""
    query = request.args
    credentials = _credentials(query["AWSAccessKeyId"], secret)
    if not query["Expires"].isdecimal() or now > int(query["Expires"]):
        raise Refused("expired", "Request has expired")
    wanted = ("content-md5", "content-type")
    both = [*query.items(), *request.headers.items()]
    named = {k.lower(): v for k, v in both if k.lower().startswith("x-amz-") or k.lower() in wanted}
    arrived = AWSRequest(request.method, _url(request), named)
    auth = HmacV1QueryAuth(credentials)
    auth._get_date = lambda: query["Expires"]  # takes the place of a header's date
    split, bucket = urlsplit(arrived.url), virtual_bucket(request)
    path = f"/{bucket}{split.path}" if bucket else None
    ours = auth.get_signature(request.method, split, arrived.headers, auth_path=path)
    if not hmac.compare_digest(ours, query["Signature"]):
        raise _wrong()


def _credentials(key: str, secret: Callable[[str], str | None]) -> Credentials:
    if (known := secret(key)) is None:
        raise Refused(
            "unknown",
            f"The access key {key!r} is not this emulator's, or is no longer active: give the "
            "client the environment that it prints when it starts",
        )
    return Credentials(key, known)


def _wrong() -> Refused:
    return Refused(
        "wrong",
        "The request signature we calculated does not match the signature you provided. Check "
        "your secret access key and signing method.",
    )


def _moment(date: str) -> float:
    """Return ``20261122T061508Z`` as seconds since the epoch. Raises :class:`Refused`."""
    try:
        return timegm(time.strptime(date, "%Y%m%dT%H%M%SZ"))
    except ValueError:
        raise Refused("malformed", f"X-Amz-Date {date!r}: expected YYYYMMDDTHHMMSSZ") from None


def _url(request: Request) -> str:
    """Return the URL as it was received, without the signature in its query."""
    path, _, query = _TARGET.sub("", request.environ["RAW_URI"]).partition("?")
    kept = [p for p in query.split("&") if p and p.partition("=")[0] != "X-Amz-Signature"]
    return f"http://emulator{path}?{'&'.join(kept)}"


def _text(value: str) -> str:
    """Return a header as the client wrote it: WSGI has decoded its bytes as Latin-1."""
    try:
        return value.encode("latin-1").decode()
    except UnicodeError:
        return value
