"""Records of an S3 object: how it is split, what goes into one request, how many came back."""

import json
from collections.abc import Iterable, Iterator
from typing import BinaryIO

LINES = ("text/csv", "application/jsonlines", "application/x-jsonlines", "application/jsonl")
"""Content types in which each line is a record."""


class TooLarge(ValueError):
    """A record is larger than a request may be."""


def media_type(header: str | None) -> str:
    """``text/csv`` of ``text/csv; label_size=0``."""
    return (header or "").partition(";")[0].strip().lower()


def records(file: BinaryIO, split: str) -> Iterator[bytes]:
    """The object's records, without the line's end: its lines, or, unsplit, all of it."""
    if split == "Line":
        for line in file:
            yield line.removesuffix(b"\n")
    else:
        yield file.read()


def batches(found: Iterable[bytes], many: bool, limit: int) -> Iterator[list[bytes]]:
    """Records for one request each, in their order: one, or as many as ``limit`` bytes hold.

    ``limit`` 0 is none. Raises :class:`TooLarge`.
    """
    batch: list[bytes] = []
    size = 0
    for number, record in enumerate(found):
        if limit and len(record) > limit:
            raise TooLarge(
                f"record {number} has {len(record)} bytes, more than MaxPayloadInMB allows: {limit}"
            )
        if batch and (not many or (limit and size + len(record) > limit)):
            yield batch
            batch, size = [], 0
        batch.append(record)
        size += len(record) + 1
    if batch:
        yield batch


def parts(answer: bytes, content_type: str, expected: int) -> list[bytes]:
    """An answer's records: its lines, a JSON array's elements, or the answer as one.

    ``expected``: how many records were asked about. A JSON answer about several is an array with
    an element for each, or a line for each.
    """
    kind = media_type(content_type)
    if kind == "application/json" and expected > 1:
        return _elements(answer, expected)
    if kind in LINES:
        return answer.removesuffix(b"\n").split(b"\n") if answer else []
    return [answer.removesuffix(b"\n")]


def _elements(answer: bytes, expected: int) -> list[bytes]:
    try:
        document = json.loads(answer)
    except ValueError:
        return answer.removesuffix(b"\n").split(b"\n")
    if isinstance(document, dict) and len(document) == 1:
        [document] = document.values()  # {"predictions": [...]}
    if isinstance(document, list):
        return [json.dumps(element).encode() for element in document]
    return [answer]


def counted(answer: bytes, content_type: str, expected: int) -> int | None:
    """How many records an answer about ``expected`` has; None for a type without a rule."""
    kind = media_type(content_type)
    if kind not in LINES and kind != "application/json":
        return None
    return len(parts(answer, content_type, expected))
