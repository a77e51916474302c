"""The policy of a presigned POST: who signed it, and whether the form keeps to it.

"Creating a POST policy" and "Calculating a signature" in S3's documentation of browser-based
uploads; boto3's ``generate_presigned_post`` signs with Version 2 or 4.
"""

import base64
import hashlib
import hmac
import json
import re
from dataclasses import dataclass
from datetime import UTC, datetime

from botocore.auth import SigV4Auth
from botocore.credentials import Credentials

from trainyard.emulator.api import ApiError
from trainyard.emulator.keys import Keys
from trainyard.emulator.s3.checksums import PREFIX

_SCOPE = re.compile(r"([^/]+)/(\d{8})/([^/]+)/s3/aws4_request")
_FREE = {"policy", "file", "signature", "awsaccesskeyid", "x-amz-signature"}
"""Fields that no condition need name."""
_LENGTH = "content-length-range"


@dataclass(frozen=True, slots=True)
class Policy:
    """A policy whose signature holds."""

    expiration: datetime
    conditions: list

    def length(self) -> tuple[int, int]:
        """The least and most bytes of the file."""
        for each in self.conditions:
            if isinstance(each, list) and str(each[0]).lower() == _LENGTH:
                return int(each[1]), int(each[2])
        return 0, 5 << 30  # S3's limit of one upload

    def check(self, fields: dict[str, str]) -> None:
        """Raises ``AccessDenied`` where the form, by lower-case names, is not what was signed."""
        if self.expiration < datetime.now(UTC):
            raise _denied("Policy expired.")
        named = set()
        for condition in self.conditions:
            for kind, name, value in _read(condition):
                if kind != _LENGTH:
                    named.add(name)
                    found = fields.get(name, "")
                    right = found == value if kind == "eq" else _starts(name, found, value)
                    if not right:
                        raise _denied(f"Policy Condition failed: {json.dumps(condition)}")
        for name in fields.keys() - named - _FREE - {"bucket"}:
            if not name.startswith(
                ("x-ignore-", PREFIX)
            ):  # a checksum makes no form more than it is
                raise _denied(f"Extra input fields: {name}")


def signed_policy(fields: dict[str, str], keys: Keys) -> Policy:
    """The form's policy. Raises ``AccessDenied`` for none, or as its signature is refused."""
    if "policy" not in fields:
        raise _denied("Anonymous uploads are not served: the form has no policy.")
    if "x-amz-signature" in fields or "x-amz-credential" in fields:
        key, ours = _version_4(fields, keys)
        signature = fields.get("x-amz-signature")
    else:
        key = fields.get("awsaccesskeyid", "")
        ours = _version_2(fields["policy"], _secret(key, keys))
        signature = fields.get("signature")
    if not key or not signature:
        message = "Bucket POST must contain a field named 'signature' and 'AWSAccessKeyId', or of "
        raise ApiError("InvalidArgument", message + "Signature Version 4's names.")
    if not hmac.compare_digest(ours.encode(), signature.encode()):
        message = "The request signature we calculated does not match the signature you provided."
        raise ApiError("SignatureDoesNotMatch", message, 403)
    if keys.ended(key) or fields.get("x-amz-security-token", "") != keys.token(key):
        message = "The provided token is malformed or otherwise invalid, or its job has ended."
        raise ApiError("InvalidToken", message, 403)
    return _policy(fields["policy"])


def _version_4(fields: dict[str, str], keys: Keys) -> tuple[str, str]:
    scope = _SCOPE.fullmatch(fields.get("x-amz-credential", ""))
    if not scope or fields.get("x-amz-algorithm") != "AWS4-HMAC-SHA256":
        message = "x-amz-algorithm or x-amz-credential is missing or wrong."
        raise ApiError("InvalidArgument", message)
    key, day, region = scope.groups()
    auth = SigV4Auth(Credentials(key, _secret(key, keys)), "s3", region)
    request = _Signing({"timestamp": f"{day}T000000Z"})
    return key, auth.signature(fields["policy"], request)


@dataclass(frozen=True, slots=True)
class _Signing:
    """What of a request :meth:`SigV4Auth.signature` looks at."""

    context: dict[str, str]


def _version_2(policy: str, secret: str) -> str:
    digest = hmac.new(secret.encode(), policy.encode(), hashlib.sha1).digest()
    return base64.b64encode(digest).decode()


def _secret(key: str, keys: Keys) -> str:
    if (known := keys.secret(key)) is None and key:
        message = "The AWS Access Key Id you provided does not exist in our records."
        raise ApiError("InvalidAccessKeyId", message, 403)
    return known or ""


def _policy(text: str) -> Policy:
    """Raises ``InvalidPolicyDocument``."""
    try:
        document = json.loads(base64.b64decode(text))
        expiration = datetime.fromisoformat(document["expiration"].replace("Z", "+00:00"))
        conditions = document["conditions"]
        pairs = [list(_read(each)) for each in conditions]
    except (ValueError, KeyError, TypeError, AttributeError) as wrong:
        raise _malformed(f"{type(wrong).__name__}: {wrong}") from wrong
    if not pairs:
        raise _malformed("it has no conditions")
    if expiration.tzinfo is None or "T" not in document["expiration"]:
        raise _malformed("expiration is no time in ISO 8601, in UTC")
    return Policy(expiration, conditions)


def _read(condition: object) -> list[tuple[str, str, str]]:
    """(kind, field, value) of each that it has. Raises ValueError for what is none."""
    if isinstance(condition, dict) and condition:
        return [("eq", str(name).lower(), str(value)) for name, value in condition.items()]
    if isinstance(condition, list) and len(condition) == 3:
        kind, name, value = (str(each) for each in condition)
        if kind.lower() == _LENGTH:
            if not 0 <= int(name) <= int(value):
                raise ValueError(f"{condition} is no range of lengths")
            return [(_LENGTH, name, value)]
        if kind.lower() in ("eq", "starts-with") and name.startswith("$"):
            return [(kind.lower(), name[1:].lower(), value)]
    raise ValueError(f"{condition} is no condition")


def _starts(name: str, found: str, value: str) -> bool:
    """A Content-Type may be a list, each of which must begin so."""
    several = found.split(",") if name == "content-type" else [found]
    return all(each.strip().startswith(value) for each in several)


def _denied(message: str) -> ApiError:
    return ApiError("AccessDenied", f"Invalid according to Policy: {message}", 403)


def _malformed(why: str) -> ApiError:
    return ApiError("InvalidPolicyDocument", f"Invalid Policy: {why}.")
