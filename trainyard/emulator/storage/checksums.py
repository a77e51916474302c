"""S3's checksums, computed of bytes in chunks, and of joined parts.

Python's library has CRC32 and the hashes; CRC32C and CRC64NVME are here (parameters: the RevEng
catalogue's CRC-32/ISCSI and CRC-64/NVME). They process many lanes of a chunk at once, each step
a table look-up by :meth:`bytes.translate`, and fold the lanes: a CRC is linear over GF(2).
"""

import base64
import functools
import hashlib
import zlib
from collections.abc import Callable
from typing import Protocol

PREFIX = "x-amz-checksum-"
TYPE = PREFIX + "type"
_LANE = 1024  # bytes of each lane; a power of two


class Sum(Protocol):
    """The interface of :mod:`hashlib`'s objects."""

    def update(self, chunk: bytes, /) -> None: ...
    def digest(self) -> bytes: ...


class _Poly:
    """The tables of a reflected CRC of ``width`` bits."""

    def __init__(self, width: int, poly: int) -> None:
        self.width, self.bytes, self.ones = width, width // 8, (1 << width) - 1
        self.table = [self._of_byte(value, poly) for value in range(256)]
        self.planes = [
            bytes(entry >> 8 * k & 0xFF for entry in self.table) for k in range(self.bytes)
        ]
        bits = (1 << bit for bit in range(width))
        self._powers = [[self.table[bit & 0xFF] ^ bit >> 8 for bit in bits]]
        lane = self._power_images(_LANE.bit_length() - 1)
        self.lane = [
            [_apply(lane, value << 8 * k) for value in range(256)] for k in range(self.bytes)
        ]

    @staticmethod
    def _of_byte(value: int, poly: int) -> int:
        for _ in range(8):
            value = value >> 1 ^ (poly if value & 1 else 0)
        return value

    def skip(self, state: int, count: int) -> int:
        """Return the state after ``count`` zero bytes."""
        for power in range(count.bit_length()):
            if count >> power & 1:
                state = _apply(self._power_images(power), state)
        return state

    def _power_images(self, power: int) -> list[int]:
        """Return the images of each bit of a state after 2**power zero bytes."""
        while len(self._powers) <= power:
            last = self._powers[-1]
            self._powers.append([_apply(last, image) for image in last])
        return self._powers[power]

    def run(self, state: int, chunk: bytes) -> int:
        lanes = len(chunk) // _LANE
        if lanes > 1:
            head = chunk[: lanes * _LANE]
            for lane in self._lanes(head, lanes):
                result = lane
                for k, table in enumerate(self.lane):
                    result ^= table[state >> 8 * k & 0xFF]
                state = result
            chunk = chunk[lanes * _LANE :]
        for byte in chunk:
            state = self.table[(state ^ byte) & 0xFF] ^ state >> 8
        return state

    def _lanes(self, chunk: bytes, lanes: int) -> list[int]:
        """Return each lane's CRC from a state of 0; plane k has byte k of each lane's state."""
        state, low = 0, (1 << 8 * lanes) - 1
        for offset in range(_LANE):
            index = state & low ^ int.from_bytes(chunk[offset::_LANE], "little")
            row = index.to_bytes(lanes, "little")
            plane_bytes = b"".join(row.translate(plane) for plane in self.planes)
            state = state >> 8 * lanes ^ int.from_bytes(plane_bytes, "little")
        planes = state.to_bytes(lanes * self.bytes, "little")
        return [int.from_bytes(planes[lane::lanes], "little") for lane in range(lanes)]


def _apply(images: list[int], value: int) -> int:
    result, bit = 0, 0
    while value:
        if value & 1:
            result ^= images[bit]
        value >>= 1
        bit += 1
    return result


@functools.cache
def _poly(name: str) -> _Poly:
    width, poly = {
        "crc32": (32, 0xEDB88320),
        "crc32c": (32, 0x82F63B78),
        "crc64nvme": (64, 0x9A6C9329AC4BC9B5),
    }[name]
    return _Poly(width, poly)


class _Crc:
    def __init__(self, name: str) -> None:
        self._poly = _poly(name)
        self._state = self._poly.ones

    def update(self, chunk: bytes, /) -> None:
        self._state = self._poly.run(self._state, chunk)

    def digest(self) -> bytes:
        return (self._state ^ self._poly.ones).to_bytes(self._poly.bytes, "big")


class _Crc32:
    def __init__(self) -> None:
        self._value = 0

    def update(self, chunk: bytes, /) -> None:
        self._value = zlib.crc32(chunk, self._value)

    def digest(self) -> bytes:
        return self._value.to_bytes(4, "big")


ALGORITHMS: dict[str, Callable[[], Sum]] = {
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
"""Algorithms for which the object's checksum follows from its parts' checksums."""


def encode_sum(checksum: Sum) -> str:
    return base64.b64encode(checksum.digest()).decode()


def composite(name: str, parts: list[str]) -> str:
    """Return S3's COMPOSITE checksum: that of the parts' checksums, and their number."""
    checksum = ALGORITHMS[name]()
    for part in parts:
        checksum.update(base64.b64decode(part))
    return f"{encode_sum(checksum)}-{len(parts)}"


def full_object(name: str, parts: list[tuple[str, int]]) -> str:
    """Return S3's FULL_OBJECT checksum from (checksum, bytes) of each part; ``name`` is in
    LINEAR.
    """
    poly, total = _poly(name), 0
    for text, size in parts:
        part = int.from_bytes(base64.b64decode(text), "big")
        total = poly.skip(total, size) ^ part
    return base64.b64encode(total.to_bytes(poly.bytes, "big")).decode()
