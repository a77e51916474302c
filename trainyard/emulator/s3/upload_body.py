"""Read uploaded bodies: remove aws-chunked framing, and verify every checksum that the client sent.

Formats: "Signature calculations for the Authorization header: transferring payload in multiple
chunks" and "Checking object integrity" in the S3 User Guide. botocore >= 1.36 adds a CRC32 to
every upload, in a header or in a trailer after the last chunk. If the chunks are signed, the
signature of each is checked.
"""

import base64
import functools
import hashlib
import hmac
import re
import zlib
from collections.abc import Callable, Iterator
from typing import IO, Protocol

from werkzeug import Request
from werkzeug.exceptions import ClientDisconnected

from trainyard.emulator.request_scope import ApiError, S3Error
from trainyard.emulator.s3.object_folder import CHUNK

# S3's checksums, computed of bytes in chunks, or combined from the checksums of parts.
#
# Python's library has CRC32 and the hashes; CRC32C and CRC64NVME are implemented here (parameters:
# the RevEng catalogue's CRC-32/ISCSI and CRC-64/NVME). They split a chunk into lanes of _LANE bytes
# and process all lanes at the same time: each step is a table look-up by :meth:`bytes.translate`.
# The CRCs of the lanes are then combined, which is possible because a CRC is linear over GF(2).

PREFIX = "x-amz-checksum-"
TYPE = PREFIX + "type"
_LANE = 1024  # bytes per lane; must be a power of two


class Hasher(Protocol):
    """A hash object, with the methods of :mod:`hashlib`'s objects that are used here."""

    def update(self, chunk: bytes, /) -> None: ...
    def digest(self) -> bytes: ...


class _CrcTables:
    """The tables of a reflected CRC of ``width`` bits."""

    def __init__(self, width: int, poly: int) -> None:
        self.width, self.bytes, self.ones = width, width // 8, (1 << width) - 1
        self.table = [self._reduce_byte(value, poly) for value in range(256)]
        self.planes = [
            bytes(entry >> 8 * k & 0xFF for entry in self.table) for k in range(self.bytes)
        ]
        bits = (1 << bit for bit in range(width))
        self._powers = [[self.table[bit & 0xFF] ^ bit >> 8 for bit in bits]]
        lane = self._compute_power_images(_LANE.bit_length() - 1)
        self.lane = [
            [_apply_linear_map(lane, value << 8 * k) for value in range(256)]
            for k in range(self.bytes)
        ]

    @staticmethod
    def _reduce_byte(value: int, poly: int) -> int:
        for _ in range(8):
            value = value >> 1 ^ (poly if value & 1 else 0)
        return value

    def skip(self, state: int, count: int) -> int:
        """Return the state of the CRC after ``count`` more zero bytes."""
        for power in range(count.bit_length()):
            if count >> power & 1:
                state = _apply_linear_map(self._compute_power_images(power), state)
        return state

    def _compute_power_images(self, power: int) -> list[int]:
        """Return the image of each bit of a state after 2**power zero bytes."""
        while len(self._powers) <= power:
            last = self._powers[-1]
            self._powers.append([_apply_linear_map(last, image) for image in last])
        return self._powers[power]

    def run(self, state: int, chunk: bytes) -> int:
        """Return the state of the CRC after the bytes of ``chunk``."""
        lanes = len(chunk) // _LANE
        if lanes > 1:
            head = chunk[: lanes * _LANE]
            for lane in self._compute_lanes(head, lanes):
                result = lane
                for k, table in enumerate(self.lane):
                    result ^= table[state >> 8 * k & 0xFF]
                state = result
            chunk = chunk[lanes * _LANE :]
        for byte in chunk:
            state = self.table[(state ^ byte) & 0xFF] ^ state >> 8
        return state

    def _compute_lanes(self, chunk: bytes, lanes: int) -> list[int]:
        """Return the CRC of each lane, computed from state 0.

        Plane k contains byte k of the states of all lanes.
        """
        state, low = 0, (1 << 8 * lanes) - 1
        for offset in range(_LANE):
            index = state & low ^ int.from_bytes(chunk[offset::_LANE], "little")
            row = index.to_bytes(lanes, "little")
            plane_bytes = b"".join(row.translate(plane) for plane in self.planes)
            state = state >> 8 * lanes ^ int.from_bytes(plane_bytes, "little")
        planes = state.to_bytes(lanes * self.bytes, "little")
        return [int.from_bytes(planes[lane::lanes], "little") for lane in range(lanes)]


def _apply_linear_map(images: list[int], value: int) -> int:
    """Return the image of ``value`` under a linear map that is given by the image of each bit."""
    result, bit = 0, 0
    while value:
        if value & 1:
            result ^= images[bit]
        value >>= 1
        bit += 1
    return result


@functools.cache
def _make_crc_tables(name: str) -> _CrcTables:
    """Return the tables of the CRC ``name``; computed once per process."""
    width, poly = {
        "crc32": (32, 0xEDB88320),
        "crc32c": (32, 0x82F63B78),
        "crc64nvme": (64, 0x9A6C9329AC4BC9B5),
    }[name]
    return _CrcTables(width, poly)


class _Crc:
    """A CRC that Python's library lacks, such as ``crc64nvme``. Implements :class:`Hasher`."""

    def __init__(self, name: str) -> None:
        self._poly = _make_crc_tables(name)
        self._state = self._poly.ones

    def update(self, chunk: bytes, /) -> None:
        self._state = self._poly.run(self._state, chunk)

    def digest(self) -> bytes:
        return (self._state ^ self._poly.ones).to_bytes(self._poly.bytes, "big")


class _Crc32:
    """CRC32, computed by :mod:`zlib`. Implements :class:`Hasher`."""

    def __init__(self) -> None:
        self._value = 0

    def update(self, chunk: bytes, /) -> None:
        self._value = zlib.crc32(chunk, self._value)

    def digest(self) -> bytes:
        return self._value.to_bytes(4, "big")


ALGORITHMS: dict[str, Callable[[], Hasher]] = {
    "crc32": _Crc32,
    "crc32c": functools.partial(_Crc, "crc32c"),
    "crc64nvme": functools.partial(_Crc, "crc64nvme"),
    "sha1": hashlib.sha1,
    "sha256": hashlib.sha256,
    "sha512": hashlib.sha512,
    "md5": functools.partial(hashlib.md5, usedforsecurity=False),
}
UNSUPPORTED_ALGORITHM = (
    "Checksum algorithm provided is unsupported. Please try again with any of the valid types: "
    "[CRC32, CRC32C, CRC64NVME, SHA1, SHA256]"
)
LINEAR = ("crc32", "crc32c", "crc64nvme")
"""Algorithms for which the object's checksum can be computed from its parts' checksums."""


def encode_checksum(checksum: Hasher) -> str:
    return base64.b64encode(checksum.digest()).decode()


def compute_composite_checksum(name: str, parts: list[str]) -> str:
    """Return S3's COMPOSITE checksum: the checksum of the parts' checksums, and their number."""
    checksum = ALGORITHMS[name]()
    for part in parts:
        checksum.update(base64.b64decode(part))
    return f"{encode_checksum(checksum)}-{len(parts)}"


def compute_full_object_checksum(name: str, parts: list[tuple[str, int]]) -> str:
    """Return S3's FULL_OBJECT checksum from the (checksum, size in bytes) of each part.

    ``name`` is one of ``LINEAR``.
    """
    poly, total = _make_crc_tables(name), 0
    for text, size in parts:
        part = int.from_bytes(base64.b64decode(text), "big")
        total = poly.skip(total, size) ^ part
    return base64.b64encode(total.to_bytes(poly.bytes, "big")).decode()


_DOCUMENT = 20 << 20  # largest document that is read into memory, in bytes
_LINE = 8192  # longest accepted chunk header or trailer line, in bytes


SIGNATURE_KEY = "trainyard.signed"
"""Key of the WSGI environment with the request's valid signature, a :class:`RequestSignature`."""


class RequestSignature(Protocol):
    """A valid signature, as :mod:`trainyard.emulator.request_signatures` returns it."""

    signature: str

    def sign_chunk(self, previous: str, digest: str, kind: str = "PAYLOAD") -> str: ...


class Upload:
    """The body of one request. Iterate over :meth:`iter_chunks`, then call :meth:`verify`.

    ``extra_algorithm`` is computed if the client sends no checksum; empty for none.
    """

    def __init__(self, request: Request, extra_algorithm: str = "") -> None:
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
        self._hashes = self._make_hashes(headers.get("x-amz-trailer", ""), extra_algorithm)
        is_signed = self._payload_hash.startswith("STREAMING-AWS4-HMAC-SHA256-PAYLOAD")
        self._chain = _Chain(request.environ[SIGNATURE_KEY]) if is_signed else None

    def iter_chunks(self) -> Iterator[bytes]:
        """Iterate over the bytes of the object, at most 1 MiB at a time.

        Raises ``IncompleteBody``.
        """
        size = 0
        try:
            for chunk in (
                _decode_chunks(self._request.stream, self._claims, self._chain)
                if self._is_chunked
                else self._iter_raw_chunks()
            ):
                size += len(chunk)
                for hasher in self._hashes.values():
                    hasher.update(chunk)
                yield chunk
        except ClientDisconnected:
            raise _make_incomplete_error(
                "the connection closed in the middle of the body"
            ) from None
        size_claim = self._request.headers.get("x-amz-decoded-content-length")
        if size_claim is not None and size_claim != str(size):
            raise _make_incomplete_error(f"{size_claim} bytes were declared, {size} arrived")

    def verify(self) -> dict[str, str]:
        """Return the checksum to store with the object, as a mapping of header to value.

        Raises ``BadDigest`` if a checksum of the received bytes differs from the one that the
        client sent, and ``InvalidRequest`` if the client's checksum is malformed.
        """
        if "content-md5" in self._hashes:
            self._check_claim("content-md5", self._md5 or "", "BadDigest")
        if "signed" in self._hashes:
            claim = base64.b64encode(bytes.fromhex(self._payload_hash)).decode()
            self._check_claim("signed", claim, "XAmzContentSHA256Mismatch")
        checksums = {}
        for name in self._hashes.keys() - {"content-md5", "signed"}:
            if name in self._claims or name == self._trailer:
                self._check_claim(name, self._claims.get(name, "nothing"), "BadDigest")
            checksums[name] = encode_checksum(self._hashes[name])
        return checksums

    def _check_claim(self, name: str, claim: str, code: str) -> None:
        """Raise an error with the code ``code`` if the checksum ``name`` is not ``claim``."""
        checksum = encode_checksum(self._hashes[name])
        if checksum != claim:
            _check_digest(name, claim, len(base64.b64decode(checksum)))
            raise _make_digest_error(name, claim, checksum, code)

    def _make_hashes(self, trailer: str, extra_algorithm: str) -> dict[str, Hasher]:
        """Return the hashes to compute, and set ``_trailer``. Raises ApiError for checksums that S3
        does not accept.
        """
        hashes: dict[str, Hasher] = {}
        if self._md5 is not None:
            hashes["content-md5"] = hashlib.md5(usedforsecurity=False)
        self._trailer = trailer.strip().lower()
        claim_names = {*self._claims, self._trailer} - _NOT_SUMS - {""}
        if len(claim_names) > 1:
            message = "Expecting a single x-amz-checksum- header. Multiple checksum Types are not "
            raise ApiError("InvalidRequest", message + "allowed.")
        self._check_announced(claim_names)
        for name in claim_names or ({PREFIX + extra_algorithm} if extra_algorithm else set()):
            algorithm = name.removeprefix(PREFIX)
            if algorithm not in ALGORITHMS:
                message = f"The emulator's S3 does not implement {PREFIX}{algorithm}."
                raise ApiError("NotImplemented", message, 501)
            hashes[name] = ALGORITHMS[algorithm]()
        if re.fullmatch(r"[0-9a-f]{64}", self._payload_hash) and not hashes:
            hashes["signed"] = hashlib.sha256()  # slow, so only if there is no other checksum
        return hashes

    def _check_announced(self, claim_names: set[str]) -> None:
        """Raise ``InvalidRequest`` if the announced checksum algorithm is not the one sent."""
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

    def _iter_raw_chunks(self) -> Iterator[bytes]:
        while chunk := self._request.stream.read(CHUNK):
            yield chunk


_NOT_SUMS = {TYPE, PREFIX + "algorithm", PREFIX + "mode"}


def read_document(request: Request) -> bytes:
    """Return the complete body of a request that carries a document, not an object.

    Raises the errors of :class:`Upload`, and ``MaxMessageLengthExceeded`` if it is too large.
    """
    body, parts, size = Upload(request), [], 0
    for chunk in body.iter_chunks():
        parts.append(chunk)
        size += len(chunk)
        if size > _DOCUMENT:
            message = f"A document may have at most {_DOCUMENT} bytes."
            raise ApiError("MaxMessageLengthExceeded", message)
    body.verify()
    return b"".join(parts)


def _make_digest_error(name: str, claim: str, checksum: str, code: str) -> S3Error:
    """Return the error ``code`` for a checksum that differs from the claim, in S3's words."""
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


def _check_digest(name: str, claim: str, size: int) -> None:
    """Raise an error if the claim is not the base64 encoding of a digest of ``size`` bytes."""
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
    """The signatures of an upload's chunks; each signature includes the previous one."""

    def __init__(self, seed: RequestSignature) -> None:
        self._seed, self._last, self._hash = seed, seed.signature, hashlib.sha256()

    def update(self, data: bytes) -> None:
        self._hash.update(data)

    def has_unsigned_bytes(self) -> bool:
        """Return whether there are bytes that no signature covers yet."""
        return self._hash.digest() != hashlib.sha256().digest()

    def check_signature(self, claim: str, kind: str = "PAYLOAD") -> None:
        """Check the signature of a chunk or of the trailers, at its end.

        Raises ``SignatureDoesNotMatch``.
        """
        self._last = self._seed.sign_chunk(self._last, self._hash.hexdigest(), kind)
        self._hash = hashlib.sha256()
        if not hmac.compare_digest(self._last, claim):
            message = f"The signature of a chunk, or of the trailers, is wrong: {claim or 'none'}"
            raise ApiError("SignatureDoesNotMatch", message, 403)


def _decode_chunks(
    stream: IO[bytes], claims: dict[str, str], chain: _Chain | None
) -> Iterator[bytes]:
    """Iterate over the decoded bytes of an aws-chunked body.

    Its form is ``hex-size[;chunk-signature=...] CRLF bytes CRLF`` ... ``0 CRLF`` trailers ``CRLF``.
    """
    size = None
    while size != 0:
        size, signature = _read_chunk_header(stream)
        remaining = size
        while remaining:
            chunk = stream.read(min(remaining, CHUNK))
            if not chunk:
                raise _make_incomplete_error("a chunk ends early")
            remaining -= len(chunk)
            if chain:
                chain.update(chunk)
            yield chunk
        if chain:
            chain.check_signature(signature)
        # The last chunk has size 0 and no CRLF of its own: the trailers follow immediately.
        if size and stream.read(2) != b"\r\n":
            raise _make_incomplete_error("a chunk is not followed by CRLF")
    _read_trailers(stream, claims, chain)


def _read_trailers(stream: IO[bytes], claims: dict[str, str], chain: _Chain | None) -> None:
    """Add the checksums in the trailers to ``claims``, and check the signature of the trailers."""
    while line := stream.readline(_LINE).strip():
        name, _, value = line.decode("latin-1").partition(":")
        if name.lower().startswith(PREFIX):
            claims[name.lower()] = value.strip()
        if chain and name.lower() == "x-amz-trailer-signature":
            chain.check_signature(value.strip(), "TRAILER")
        elif chain:
            chain.update(f"{name.lower()}:{value.strip()}\n".encode())
    # Refuse trailers that no signature covers: the empty claim never equals a signature.
    if chain and chain.has_unsigned_bytes():
        chain.check_signature("", "TRAILER")


def _read_chunk_header(stream: IO[bytes]) -> tuple[int, str]:
    """Read the first line of a chunk. Return (size in bytes, signature or an empty text)."""
    line = stream.readline(_LINE)
    match = re.match(rb"([0-9a-fA-F]{1,16})(?:;chunk-signature=(\w*)|;[^\r\n]*)?\r\n", line)
    if not match:
        raise _make_incomplete_error(f"{line[:40]!r} is not the start of an aws-chunked chunk")
    return int(match[1], 16), (match[2] or b"").decode()


def _make_incomplete_error(reason: str) -> ApiError:
    return ApiError("IncompleteBody", f"The request body is incomplete or damaged: {reason}.")
