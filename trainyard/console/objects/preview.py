"""What the beginning of an object looks like: a table, JSON, text, a picture, members, bytes.

The kind follows from the bytes, and only where these leave it open from the name.
"""

import codecs
import csv
import io
import itertools
import json
import string
from dataclasses import replace
from typing import Any

from trainyard.console.objects.packed import GZIP, inflated, safetensors, tar, zipped
from trainyard.console.objects.parquet import parquet
from trainyard.console.objects.reading import BYTES, Beginning
from trainyard.console.objects.shown import ROWS, Preview, table

CHARACTERS = 200_000
"""Of text."""

HEX = 512
"""Bytes of what is neither text nor anything known."""

PICTURES = {
    b"\x89PNG\r\n\x1a\n": "image/png",
    b"\xff\xd8\xff": "image/jpeg",
    b"GIF87a": "image/gif",
    b"GIF89a": "image/gif",
}
"""First bytes → the type of the picture; WebP has its name behind its length."""

ASCII = bytes(range(0x20, 0x7F)) + b"\t\n\r"
SEPARATORS = {",": "comma", ";": "semicolon", "\t": "tab", "|": "bar"}


def picture_type(data: bytes) -> str | None:
    """The content type of a picture that a page may show, by its first bytes; else None."""
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "image/webp"
    return next((kind for first, kind in PICTURES.items() if data.startswith(first)), None)


def preview(found: Beginning) -> Preview:
    """What to show of the object.

    Raises:
        ServiceError: more of it was to be read, and AWS refused.
    """
    data, name = found.data, found.at.key.lower()
    if not data:
        return Preview(kind="empty", said="an empty object")
    if kind := picture_type(data):
        return _picture(found, kind)
    if data.startswith(GZIP):
        return _compressed(found, name)
    if data.startswith(b"PAR1"):
        return parquet(found)
    packed = zipped(found) if data.startswith(b"PK\x03\x04") else safetensors(found)
    return packed or tar(data, name, found.is_whole) or _written(data, found.is_whole, name)


def _picture(found: Beginning, kind: str) -> Preview:
    if found.is_whole:
        return Preview(kind="picture", said=kind)
    return Preview(kind="binary", said=f"{kind}, too large to be shown here")


def _compressed(found: Beginning, name: str) -> Preview:
    """The members of a tar archive, or what else it holds."""
    if (unpacked := inflated(found.data)) is None:
        shown = _binary(found.data)
        return replace(shown, said=f"begins as what gzip compresses, but is not: {shown.said}")
    data, whole = unpacked[0], unpacked[1] and found.is_whole
    if members := tar(data, name, whole):
        return members
    inside = _written(data[:BYTES], whole and len(data) <= BYTES, name.removesuffix(".gz"))
    return replace(inside, said=f"compressed by gzip: {inside.said}")


def _written(data: bytes, whole: bool, name: str) -> Preview:
    """Text of whatever kind; hex where it is none."""
    found = _text(data, whole)
    if found is None:
        return _binary(data)
    text, encoding = found
    shown = _of_text(text, whole, name)
    return replace(shown, said=f"{shown.said}, read as {encoding}") if encoding else shown


def _of_text(text: str, whole: bool, name: str) -> Preview:
    if name.endswith((".jsonl", ".ndjson", ".jsonlines")) and (found := _lines(text, whole)):
        return found
    if text.lstrip()[:1] in ("{", "[") and (found := _json(text, whole)):
        return found
    if name.endswith((".csv", ".tsv")) and (found := _separated(text, whole)):
        return found
    cut = not whole or len(text) > CHARACTERS
    said = f"text, its first {min(len(text), CHARACTERS):,} characters" if cut else "text"
    return Preview(kind="text", said=said, text=text[:CHARACTERS])


def _text(data: bytes, whole: bool) -> tuple[str, str] | None:
    """The characters, and their encoding where it is not UTF-8; None where they are none.

    The cut may have gone through a character.
    """
    is_utf16 = data[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
    for missing in range(1 if whole else 4):
        part = data[: len(data) - missing]
        try:
            if is_utf16:
                return part.decode("utf-16"), "UTF-16"
            if b"\0" not in data:
                return part.decode("utf-8-sig"), ""
        except UnicodeDecodeError:
            continue
    return _of_windows(data)


def _of_windows(data: bytes) -> tuple[str, str] | None:
    """What Excel and older programs write, where most of it are letters of ASCII."""
    if len(data.translate(None, ASCII)) > len(data) / 4:
        return None
    try:
        text = data.decode("cp1252")
    except UnicodeDecodeError:
        return None
    is_text = all(char.isprintable() or char in "\t\n\r\f\x1b\xa0\xad" for char in text)
    return (text, "Windows-1252, since it is not UTF-8") if is_text else None


def _binary(data: bytes) -> Preview:
    said = f"binary; the first {min(HEX, len(data))} bytes"
    return Preview(kind="binary", said=said, text=_hex(data[:HEX]))


def _hex(data: bytes) -> str:
    """Sixteen bytes a line, with the letters among them."""
    seen = frozenset(string.ascii_letters + string.digits + string.punctuation + " ")
    lines = []
    for start in range(0, len(data), 16):
        row = data[start : start + 16]
        letters = "".join(char if (char := chr(byte)) in seen else "." for byte in row)
        lines.append(f"{start:08x}  {row.hex(' '):<47}  {letters}")
    return "\n".join(lines)


def _json(text: str, whole: bool) -> Preview | None:
    """Pretty, where the whole of it is there and is JSON; JSON lines as a table."""
    if table := _lines(text, whole):
        return table
    try:
        value = json.loads(text) if whole else None
    except (ValueError, RecursionError):
        value = None
    if value is None:
        return None
    shown = json.dumps(value, indent=2, ensure_ascii=False)
    cut = f", its first {CHARACTERS:,} characters" if len(shown) > CHARACTERS else ""
    return Preview(kind="json", said=f"JSON{cut}", text=shown[:CHARACTERS])


def _lines(text: str, whole: bool) -> Preview | None:
    """A table of the objects that stand one in a line; None where they do not."""
    lines = text.splitlines() if whole else text.splitlines()[:-1]  # the last one is cut
    first = [line for line in lines[: ROWS + 1] if line.strip()]
    try:
        records = [json.loads(line) for line in first]
    except (ValueError, RecursionError):
        return None
    if len(records) < 2 or not all(isinstance(one, dict) for one in records):
        return None
    columns = list(dict.fromkeys(key for one in records for key in one))
    rows = [[_cell(one[key]) if key in one else "" for key in columns] for one in records]
    return table(_so_many("JSON lines", rows, len(lines), whole), columns, rows)


def _cell(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _separated(text: str, whole: bool) -> Preview | None:
    """A table of separated values; its first row may be data as well."""
    if not whole:
        text = text[: text.rfind("\n") + 1]  # the last line is cut
    first = text.partition("\n")[0]
    separator = max(SEPARATORS, key=first.count)
    try:
        reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator)
        rows = list(itertools.islice(reader, ROWS))
        count = len(rows) + sum(1 for _ in reader)
    except csv.Error:
        return None
    if not rows:
        return None
    columns = [str(number) for number in range(1, max(map(len, rows)) + 1)]
    said = f"{SEPARATORS[separator]}-separated values"
    return table(_so_many(said, rows, count, whole), columns, rows)


def _so_many(what: str, rows: list[list[str]], count: int, whole: bool) -> str:
    of = f"{count:,}" if whole else "many"
    return f"{what}: {min(len(rows), ROWS)} of {of} lines"
