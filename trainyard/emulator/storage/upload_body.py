"""Uploaded bodies: aws-chunked framing is removed, and every claimed checksum verified.

Formats: "Signature calculations for the Authorization header: transferring payload in multiple
chunks" and "Checking object integrity" in the S3 User Guide. botocore >= 1.36 adds a CRC32 to
every upload, in a header or in a trailer after the last chunk. If chunks are signed, each signature
is checked.
"""

import base64
import hashlib
import hmac
import re
from collections.abc import Callable, Iterable, Iterator
from typing import IO, Protocol

from werkzeug import Request
from werkzeug.exceptions import ClientDisconnected

from trainyard.emulator.api import ApiError, S3Error
from trainyard.emulator.storage.blob import CHUNK
from trainyard.emulator.storage.checksums import ALGORITHMS, PREFIX, TYPE, Sum, encode_sum

_DOCUMENT = 20 << 20  # largest document that is read into memory, in bytes
_LINE = 8192  # longest accepted chunk header or trailer line, in bytes


SIGNATURE_KEY = "trainyard.signed"
"""Key of the WSGI environment for the request's valid signature, a :class:`Signed`."""


class RequestSignature(Protocol):
    """A valid signature, as :mod:`trainyard.emulator.request_signatures` returns it."""

    signature: str

    def next(self, previous: str, digest: str, kind: str = "PAYLOAD") -> str: ...


class Upload:
    """The body of one request. Iterate over :meth:`chunks`, then call :meth:`verify`.

    ``also``: algorithm of a checksum that is computed if the client sends none.
    """

    def __init__(self, request: Request, also: str = "") -> None:
        self._request = request
        headers = request.headers
        self._claims = {
            name.lower(): value for name, value in headers if name.lower().startswith(PREFIX)
        }
        self._md5 = headers.get("Content-MD5")
        self._payload_hash = headers.get("x-amz-content-sha256", "")
        self._is_chunked = self._payload_hash.startswith("STREAMING-") or (
            "x-amz-decoded-content-length" in headers
            and "aws-chunked" in headers.get("Content-Encoding", "")
        )
        self._hashes = self._make_hashes(headers.get("x-amz-trailer", ""), also)
        is_signed = self._payload_hash.startswith("STREAMING-AWS4-HMAC-SHA256-PAYLOAD")
        self._chain = _Chain(request.environ[SIGNATURE_KEY]) if is_signed else None

    def chunks(self) -> Iterator[bytes]:
        """Iterate over the bytes of the object, at most 1 MiB at a time. Raises
        ``IncompleteBody``.
        """
        size = 0
        try:
            for chunk in (
                _dechunk(self._request.stream, self._claims, self._chain)
                if self._is_chunked
                else self._raw()
            ):
                size += len(chunk)
                for hasher in self._hashes.values():
                    hasher.update(chunk)
                yield chunk
        except ClientDisconnected:
            raise _incomplete("the connection closed in the middle of the body") from None
        size_claim = self._request.headers.get("x-amz-decoded-content-length")
        if size_claim is not None and size_claim != str(size):
            raise _incomplete(f"{size_claim} bytes were declared, {size} arrived")

    def verify(self) -> dict[str, str]:
        """Return the checksum to store with the object, by header.

        Raises ``BadDigest`` if the received bytes have another checksum, and ``InvalidRequest`` for
        an invalid value.
        """
        if "content-md5" in self._hashes:
            self._check("content-md5", self._md5 or "", "BadDigest")
        if "signed" in self._hashes:
            claim = base64.b64encode(bytes.fromhex(self._payload_hash)).decode()
            self._check("signed", claim, "XAmzContentSHA256Mismatch")
        checksums = {}
        for name in self._hashes.keys() - {"content-md5", "signed"}:
            if name in self._claims or name == self._trailer:
                self._check(name, self._claims.get(name, "nothing"), "BadDigest")
            checksums[name] = encode_sum(self._hashes[name])
        return checksums

    def _check(self, name: str, claim: str, code: str) -> None:
        checksum = encode_sum(self._hashes[name])
        if checksum != claim:
            _need_digest(name, claim, len(base64.b64decode(checksum)))
            raise _wrong_digest(name, claim, checksum, code)

    def _make_hashes(self, trailer: str, also: str) -> dict[str, Sum]:
        hashes: dict[str, Sum] = {}
        if self._md5 is not None:
            hashes["content-md5"] = hashlib.md5(usedforsecurity=False)
        self._trailer = trailer.strip().lower()
        claim_names = {*self._claims, self._trailer} - _NOT_SUMS - {""}
        if len(claim_names) > 1:
            message = "Expecting a single x-amz-checksum- header. Multiple checksum Types are not "
            raise ApiError("InvalidRequest", message + "allowed.")
        self._need_announced(claim_names)
        for name in claim_names or ({PREFIX + also} if also else set()):
            hashes[name] = _algorithm(name.removeprefix(PREFIX))()
        if re.fullmatch(r"[0-9a-f]{64}", self._payload_hash) and not hashes:
            hashes["signed"] = hashlib.sha256()  # slow, so only if the body has no other checksum
        return hashes

    def _need_announced(self, claim_names: set[str]) -> None:
        algorithm = self._request.headers.get("x-amz-sdk-checksum-algorithm", "").lower()
        if algorithm and not claim_names and self._md5 is None:
            message = (
                "x-amz-sdk-checksum-algorithm specified, but no corresponding x-amz-checksum-* or "
                "x-amz-trailer headers were found."
            )
            raise ApiError("InvalidRequest", message)
        if algorithm and claim_names and PREFIX + algorithm not in claim_names:
            message = "Value for x-amz-sdk-checksum-algorithm header is invalid."
            raise ApiError("InvalidRequest", message)

    def _raw(self) -> Iterator[bytes]:
        while chunk := self._request.stream.read(CHUNK):
            yield chunk


_NOT_SUMS = {TYPE, PREFIX + "algorithm", PREFIX + "mode"}


def document(request: Request) -> bytes:
    """Return the whole body of a request that is a document. Raises the errors of
    :class:`Upload`.
    """
    body, parts, size = Upload(request), [], 0
    for chunk in body.chunks():
        parts.append(chunk)
        size += len(chunk)
        if size > _DOCUMENT:
            message = f"A document may have at most {_DOCUMENT} bytes."
            raise ApiError("MaxMessageLengthExceeded", message)
    body.verify()
    return b"".join(parts)


def _algorithm(name: str) -> Callable[[], Sum]:
    if name not in ALGORITHMS:
        message = f"The emulator's S3 does not implement {PREFIX}{name}."
        raise ApiError("NotImplemented", message, 501)
    return ALGORITHMS[name]


def _wrong_digest(name: str, claim: str, checksum: str, code: str) -> S3Error:
    if name == "content-md5":
        fields = {"ExpectedDigest": base64.b64decode(claim).hex(), "CalculatedDigest": checksum}
        message = "The Content-MD5 you specified did not match what we received."
        return S3Error(code, message, fields=fields)
    if name == "signed":
        message = "The provided 'x-amz-content-sha256' header does not match what was computed."
        return S3Error(code, message)
    kind = name.removeprefix(PREFIX).upper()
    message = f"The {kind} you specified did not match the calculated checksum."
    return S3Error(code, message)


def _need_digest(name: str, claim: str, size: int) -> None:
    try:
        right = len(base64.b64decode(claim, validate=True)) == size
    except ValueError:
        right = False
    if right or claim == "nothing":
        return
    if name == "content-md5":
        fields = {"Content-MD5": claim}
        raise S3Error("InvalidDigest", "The Content-MD5 you specified was invalid.", fields=fields)
    raise ApiError("InvalidRequest", f"Value for {name} header is invalid.")


class _Chain:
    """The signatures of an upload's chunks, each of which includes the previous one."""

    def __init__(self, seed: RequestSignature) -> None:
        self._seed, self._last, self._hash = seed, seed.signature, hashlib.sha256()

    def update(self, data: bytes) -> None:
        self._hash.update(data)

    def open(self) -> bool:
        """Return whether there are bytes that no signature covers yet."""
        return self._hash.digest() != hashlib.sha256().digest()

    def close(self, claim: str, kind: str = "PAYLOAD") -> None:
        """Check the end of a chunk, or of the trailers. Raises ``SignatureDoesNotMatch``."""
        self._last = self._seed.next(self._last, self._hash.hexdigest(), kind)
        self._hash = hashlib.sha256()
        if not hmac.compare_digest(self._last, claim):
            message = f"The signature of a chunk, or of the trailers, is wrong: {claim or 'none'}"
            raise ApiError("SignatureDoesNotMatch", message, 403)


def _dechunk(stream: IO[bytes], claims: dict[str, str], chain: _Chain | None) -> Iterator[bytes]:
    """Decode ``hex-size[;chunk-signature=...] CRLF bytes CRLF`` ... ``0 CRLF`` trailers
    ``CRLF``.
    """
    size = None
    while size != 0:
        size, signature = _chunk_head(stream)
        remaining = size
        while remaining:
            chunk = stream.read(min(remaining, CHUNK))
            if not chunk:
                raise _incomplete("a chunk ends early")
            remaining -= len(chunk)
            if chain:
                chain.update(chunk)
            yield chunk
        if chain:
            chain.close(signature)
        if size and stream.read(2) != b"\r\n":
            raise _incomplete("a chunk is not followed by CRLF")
    _read_trailers(stream, claims, chain)


def _read_trailers(stream: IO[bytes], claims: dict[str, str], chain: _Chain | None) -> None:
    """Add the checksums that the trailers claim to ``claims``; check the trailers' signature."""
    for line in _trailers(stream):
        name, _, value = line.partition(":")
        if name.lower().startswith(PREFIX):
            claims[name.lower()] = value.strip()
        if chain and name.lower() == "x-amz-trailer-signature":
            chain.close(value.strip(), "TRAILER")
        elif chain:
            chain.update(f"{name.lower()}:{value.strip()}\n".encode())
    if chain and chain.open():
        chain.close("", "TRAILER")


def _chunk_head(stream: IO[bytes]) -> tuple[int, str]:
    """Return (bytes of the chunk, its signature or an empty text)."""
    line = stream.readline(_LINE)
    match = re.match(rb"([0-9a-fA-F]{1,16})(?:;chunk-signature=(\w*)|;[^\r\n]*)?\r\n", line)
    if not match:
        raise _incomplete(f"{line[:40]!r} is not the start of an aws-chunked chunk")
    return int(match[1], 16), (match[2] or b"").decode()


def _trailers(stream: IO[bytes]) -> Iterable[str]:
    while line := stream.readline(_LINE).strip():
        yield line.decode("latin-1")


def _incomplete(reason: str) -> ApiError:
    return ApiError("IncompleteBody", f"The request body is incomplete or damaged: {reason}.")
