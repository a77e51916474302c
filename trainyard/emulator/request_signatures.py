"""Check the signatures of requests by computing them again, so that only owners of a key get in.

A pipeline is code that runs as the user who started the emulator, and on a shared machine every
user can reach its port. So every request must be signed with a valid key, as on AWS. Signature
Version 4 is accepted in the header or in the query of a presigned URL; if the client signs the
chunks of an upload, the signature of each chunk is checked, too. Version 2 is accepted only in the
form that boto3 still uses for presigned URLs of S3. Unsigned requests are refused, even for the few
operations that AWS allows unsigned, because nothing here is public.
"""

import hashlib
import hmac
import re
import time
from calendar import timegm
from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import urlsplit

from botocore.auth import HmacV1QueryAuth, S3SigV4Auth, S3SigV4QueryAuth, SigV4Auth, SigV4QueryAuth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from werkzeug import Request

from trainyard.emulator.iam.access_keys import Keys
from trainyard.emulator.request_scope import REGION, ApiError, S3Error
from trainyard.emulator.s3.s3_dispatch import parse_virtual_bucket

LONGEST = 604800  # maximum validity of a presigned URL, in seconds (AWS's limit: a week)
SKEW = 900  # maximum difference of the client's clock, in seconds (AWS's limit)
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
"""Mapping of a fault to AWS's error codes for it: of S3, of the query protocol, and of the JSON
protocols."""


class RequestRefusal(Exception):
    """A refused request.

    ``reason`` is a key of CODES. The message is for the user; ``fields`` are elements of S3's error
    document.
    """

    def __init__(self, reason: str, message: str, fields: dict[str, str] | None = None) -> None:
        super().__init__(message)
        self.reason = reason
        self.fields = fields

    def to_api_error(self, form: int) -> ApiError:
        """Return the error in the form of a service.

        ``form`` is 0 for S3, 1 for the query protocol, 2 for the JSON protocols.
        """
        status = 400 if self.reason == "malformed" else 403
        return S3Error(CODES[self.reason][form], str(self), status, fields=self.fields)


@dataclass(frozen=True, slots=True)
class RequestSignature:
    """A valid signature: its service, key and region.

    It is also the start of the chain of signatures of an upload's chunks. Version 2 signs only S3
    requests, and no chunks.
    """

    service: str
    key: str = ""
    region: str = REGION
    signature: str = ""
    _auth: SigV4Auth | None = None
    _request: AWSRequest | None = None

    def sign_chunk(self, previous: str, digest: str, kind: str = "PAYLOAD") -> str:
        """Return the signature of the next chunk, or of the trailers.

        Args:
            previous: signature of the previous chunk.
            digest: SHA-256 of the chunk.
            kind: ``PAYLOAD`` for a chunk, ``TRAILER`` for the trailers.
        """
        if self._auth is None or self._request is None:
            return ""
        context = self._request.context["timestamp"], self._auth.credential_scope(self._request)
        hashes = [_EMPTY, digest] if kind == "PAYLOAD" else [digest]
        lines = [f"AWS4-HMAC-SHA256-{kind}", *context, previous, *hashes]
        return self._auth.signature("\n".join(lines), self._request)


def verify_signature(
    request: Request, secret: Callable[[str], str | None], now: float | None = None
) -> RequestSignature:
    """Return the signature of a request if it is valid.

    Only the service in the result may answer the request, because other parts of the request may
    name other services.

    Args:
        request: the request.
        secret: function that returns the secret of an access key, or None for an unknown key.
        now: current time, in seconds since the epoch.

    Raises:
        RequestRefusal: the request is not signed, or its signature is not valid.
    """
    now = time.time() if now is None else now
    header, query = request.headers.get("Authorization", ""), request.args
    if header and not {"X-Amz-Signature", "Signature"}.isdisjoint(query.keys()):
        raise RequestRefusal(
            "malformed", "Only one auth mechanism allowed, in the header or in the query"
        )
    if "X-Amz-Signature" in query:
        match = re.fullmatch(_SCOPE, query.get("X-Amz-Credential", ""))
        if not match or query.get("X-Amz-Algorithm") != "AWS4-HMAC-SHA256":
            raise RequestRefusal(
                "malformed", "X-Amz-Algorithm or X-Amz-Credential is missing or wrong"
            )
        signing_time = _parse_date(query.get("X-Amz-Date", ""))
        lifetime = query.get("X-Amz-Expires", "0")
        if not _LIFETIME.fullmatch(lifetime) or int(lifetime) > LONGEST:
            raise RequestRefusal("expired", f"X-Amz-Expires must be from 1 to {LONGEST} seconds")
        if not signing_time - SKEW <= now <= signing_time + int(lifetime):
            raise RequestRefusal("expired", "Request has expired")
        names, signature = query.get("X-Amz-SignedHeaders", ""), query["X-Amz-Signature"]
        return _verify_signature(request, match, names, signature, query["X-Amz-Date"], secret)
    if match := _HEADER.fullmatch(header):
        date = request.headers.get("X-Amz-Date", "")
        if abs(_parse_date(date) - now) > SKEW:
            raise RequestRefusal(
                "late", f"X-Amz-Date {date} is more than 15 minutes from this clock"
            )
        return _verify_signature(request, match, match["names"], match["signature"], date, secret)
    if {"AWSAccessKeyId", "Signature", "Expires"} <= query.keys():
        _verify_version_2_url(request, secret, now)
        return RequestSignature("s3", query["AWSAccessKeyId"])
    if header:
        raise RequestRefusal(
            "malformed",
            "The authorization mechanism you have provided is not supported. Please use "
            "AWS4-HMAC-SHA256.",
        )
    raise RequestRefusal(
        "missing",
        "The request is not signed: give the client the environment that the emulator prints",
    )


def check_session(request: Request, key: str, keys: Keys) -> None:
    """Check that temporary credentials are still valid, and come with their session token.

    Raises :class:`RequestRefusal`.
    """
    if reason := keys.explain_expiry(key):
        raise RequestRefusal(
            "ended", f"The security token included in the request is expired: {reason}"
        )
    token = request.headers.get(_TOKEN) or next(
        (value for name, value in request.args.items() if name.lower() == _TOKEN), ""
    )
    if not hmac.compare_digest(token.encode(), keys.find_token(key).encode()):
        raise RequestRefusal("token", "The security token included in the request is invalid.")


def _verify_signature(
    request: Request,
    scope: re.Match,
    names: str,
    signature: str,
    date: str,
    secret: Callable[[str], str | None],
) -> RequestSignature:
    """Compute the signature again from the received request, and compare it.

    Raises :class:`RequestRefusal`.
    """
    credentials = _find_credentials(scope["key"], secret)
    header_names = names.split(";")
    if "host" not in header_names or date[:8] != scope["day"]:
        raise RequestRefusal("malformed", "host must be signed, on the scope's day")
    # Headers with instructions must be signed; the hash of the body is checked separately.
    commands = {name.lower() for name, _ in request.headers if name.lower().startswith("x-amz-")}
    if unsigned := ", ".join(sorted(commands - {_PAYLOAD} - set(header_names))):
        message = "There were headers present in the request which were not signed"
        fields = {"HeadersNotSigned": unsigned}
        raise RequestRefusal("unsigned", f"{message}: {unsigned}", fields)
    is_presigned, s3 = "X-Amz-Signature" in request.args, scope["service"].lower() == "s3"
    signed_request = AWSRequest(
        request.method,
        _rebuild_url(request),
        {name: _decode_header(request.headers.get(name, "")) for name in header_names},
        b"" if s3 else request.get_data(),
    )
    signed_request.context["timestamp"] = date
    kinds = (S3SigV4QueryAuth if s3 else SigV4QueryAuth), (S3SigV4Auth if s3 else SigV4Auth)
    auth = kinds[not is_presigned](credentials, scope["service"], scope["region"])
    _check_payload(request, header_names, s3=s3, is_presigned=is_presigned)
    text = auth.string_to_sign(signed_request, auth.canonical_request(signed_request))
    if not hmac.compare_digest(auth.signature(text, signed_request), signature):
        raise _make_mismatch_error()
    return RequestSignature(
        scope["service"].lower(), scope["key"], scope["region"], signature, auth, signed_request
    )


def _check_payload(
    request: Request, header_names: list[str], *, s3: bool, is_presigned: bool
) -> None:
    """Check the signed hash of the body. For S3, the body is checked while it is received."""
    digest = request.headers.get(_PAYLOAD, "")
    if s3 and not is_presigned and (not digest or _PAYLOAD not in header_names):
        raise RequestRefusal("malformed", f"the header {_PAYLOAD} is required, and must be signed")
    is_body_hashed = not s3 and _DIGEST.fullmatch(digest)
    if is_body_hashed and hashlib.sha256(request.get_data()).hexdigest() != digest:
        raise _make_mismatch_error()


def _verify_version_2_url(
    request: Request, secret: Callable[[str], str | None], now: float
) -> None:
    """Check a URL presigned with version 2, as boto3 does in us-east-1 without s3v4."""
    query = request.args
    credentials = _find_credentials(query["AWSAccessKeyId"], secret)
    if not query["Expires"].isdecimal() or now > int(query["Expires"]):
        raise RequestRefusal("expired", "Request has expired")
    header_names = ("content-md5", "content-type")
    both = [*query.items(), *request.headers.items()]
    headers = {
        k.lower(): v for k, v in both if k.lower().startswith("x-amz-") or k.lower() in header_names
    }
    signed_request = AWSRequest(request.method, _rebuild_url(request), headers)
    auth = HmacV1QueryAuth(credentials)
    auth._get_date = lambda: query["Expires"]  # Version 2 signs it in place of the date
    split, bucket = urlsplit(signed_request.url), parse_virtual_bucket(request)
    path = f"/{bucket}{split.path}" if bucket else None
    signature = auth.get_signature(request.method, split, signed_request.headers, auth_path=path)
    if not hmac.compare_digest(signature, query["Signature"]):
        raise _make_mismatch_error()


def _find_credentials(key: str, secret: Callable[[str], str | None]) -> Credentials:
    """Return the credentials of a key. Raises :class:`RequestRefusal` if it is not known."""
    if (secret_key := secret(key)) is None:
        raise RequestRefusal(
            "unknown",
            f"The access key {key!r} is not this emulator's, or is no longer active: give the "
            "client the environment that it prints when it starts",
        )
    return Credentials(key, secret_key)


def _make_mismatch_error() -> RequestRefusal:
    return RequestRefusal(
        "wrong",
        "The request signature we calculated does not match the signature you provided. Check "
        "your secret access key and signing method.",
    )


def _parse_date(date: str) -> float:
    """Return ``20261122T061508Z`` as seconds since the epoch. Raises :class:`RequestRefusal`."""
    try:
        return timegm(time.strptime(date, "%Y%m%dT%H%M%SZ"))
    except ValueError:
        raise RequestRefusal(
            "malformed", f"X-Amz-Date {date!r}: expected YYYYMMDDTHHMMSSZ"
        ) from None


def _rebuild_url(request: Request) -> str:
    """Return the URL as it was received, without the signature in its query."""
    path, _, query = _TARGET.sub("", request.environ["RAW_URI"]).partition("?")
    pairs = [p for p in query.split("&") if p and p.partition("=")[0] != "X-Amz-Signature"]
    return f"http://emulator{path}?{'&'.join(pairs)}"


def _decode_header(value: str) -> str:
    """Return a header as the client wrote it: WSGI has decoded its bytes as Latin-1."""
    try:
        return value.encode("latin-1").decode()
    except UnicodeError:
        return value
