"""What is in an archive or a compressed object: members with their sizes, tensors, the bytes."""

import io
import itertools
import json
import tarfile
import zipfile
import zlib

from trainyard.console.objects.reading import BYTES, Beginning
from trainyard.console.objects.seekable import Seekable, TooMuch
from trainyard.console.objects.shown import Preview

INFLATED = 64 << 20
"""Bytes that a compressed beginning may become: a small file may hold very many zeros."""

MEMBERS = 500
"""Members of an archive that are listed."""

GZIP = b"\x1f\x8b"


def inflated(data: bytes) -> tuple[bytes, bool] | None:
    """What the compressed bytes are, all members of them, and whether that is all of it.

    None where they are not compressed by gzip, whatever they begin with.
    """
    found, rest = b"", data
    while rest.startswith(GZIP) and len(found) < INFLATED:
        machine = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)
        try:
            found += machine.decompress(rest, INFLATED - len(found))
        except zlib.error:
            return (found, False) if found else None
        if not machine.eof:
            return found, False
        rest = machine.unused_data
    return found, not rest.startswith(GZIP)


def tar(data: bytes, name: str, whole: bool) -> Preview | None:
    """The members of a tar archive, as far as its beginning tells them; None where it is none."""
    is_empty = name.endswith((".tar", ".tar.gz", ".tgz")) and not data.strip(b"\0")
    if data[257:262] != b"ustar" and not is_empty:
        return None
    members, is_ended = _members(data)
    of = "" if is_ended and whole else f"; of its first {BYTES >> 20} MiB, others come behind"
    return _archive(f"tar archive, {len(members)} members{of}", members)


def _members(data: bytes) -> tuple[list[tuple[str, int]], bool]:
    """Name and size of each member whose header is there, and whether the archive's end is."""
    found: list[tuple[str, int]] = []
    try:
        with tarfile.open(fileobj=io.BytesIO(data), mode="r|") as archive:
            for member in itertools.islice(archive, MEMBERS):
                found.append((member.name, member.size))
            return found, len(found) < MEMBERS
    except (tarfile.TarError, EOFError, ValueError, OverflowError):
        return found, False


def zipped(found: Beginning) -> Preview | None:
    """The members of a zip archive, such as PyTorch and NumPy write; None where it is none.

    Raises:
        ServiceError: AWS refuses.
    """
    try:
        with zipfile.ZipFile(io.BufferedReader(Seekable(found))) as archive:
            members = [(one.filename, one.file_size) for one in archive.infolist()]
    except (zipfile.BadZipFile, TooMuch, ValueError, NotImplementedError):
        return None
    cut = f", of which the first {MEMBERS} are shown" if len(members) > MEMBERS else ""
    return _archive(f"zip archive, {len(members)} members{cut}", members[:MEMBERS])


def _archive(said: str, members: list[tuple[str, int]]) -> Preview:
    rows = tuple((name, f"{size}") for name, size in members)
    return Preview(kind="archive", said=said, columns=("member", "bytes"), rows=rows)


def safetensors(found: Beginning) -> Preview | None:
    """Its tensors with their types and shapes, by its header; None where it has none here."""
    length = int.from_bytes(found.data[:8], "little")
    if not found.data[8:9] == b"{" or 8 + length > min(len(found.data), found.size):
        return None
    try:
        header = json.loads(found.data[8 : 8 + length])
        tensors = {name: one for name, one in header.items() if name != "__metadata__"}
        rows = tuple(_tensor(name, one) for name, one in tensors.items())
    except (ValueError, RecursionError, KeyError, TypeError, AttributeError):
        return None
    cut = f", of which the first {MEMBERS} are shown" if len(rows) > MEMBERS else ""
    return Preview(
        kind="archive",
        said=f"safetensors, {len(rows)} tensors{cut}",
        columns=("tensor", "type", "shape", "bytes"),
        rows=rows[:MEMBERS],
    )


def _tensor(name: str, one: dict) -> tuple[str, ...]:
    """github.com/huggingface/safetensors, Format: dtype, shape, data_offsets [begin, end)."""
    begin, end = one["data_offsets"]
    return name, str(one["dtype"]), " × ".join(map(str, one["shape"])), f"{end - begin}"
