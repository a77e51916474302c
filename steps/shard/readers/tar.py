"""Read tar archives as WebDataset writes them: consecutive files with the same key are a sample.

``0001.jpg`` and ``0001.cls`` are one record, with the columns ``jpg``, ``cls`` and ``__key__``,
which is ``0001``. The key is the file's path up to the first dot of its name. A column ``jpg;png``
is the first of these two that a sample has. A member is read as bytes, or as UTF-8 text of the
declared kind. A record's number is that of its sample, from 1.
"""

import re
import tarfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from steps.shard.readers import raw_bytes
from steps.shard.readers.batch import Bad, Batch
from steps.shard.readers.column_values import BadRecord, convert_field, require_value
from steps.shard.readers.rows import Row, gather_batches
from trainyard.common.errors import DataError

if TYPE_CHECKING:
    from training.workloads import Column

SUFFIXES = (".tar",)
COMPRESSIBLE = True  # whether .gz or .zst may follow

Zeros = tarfile.EOFHeaderError  # type: ignore[missing-attribute]  # missing in the type stubs
KEY = "__key__"
NAME = re.compile(r"((?:.*/)?[^./][^.]*)\.([^/]*)")
RESERVED_MEMBER = re.compile(r"(^|/)__[^/]*__($|/)")
"""Pattern of members that are WebDataset's own metadata, not data."""


def read(path: Path, columns: Mapping[str, "Column"]) -> Iterator[Batch]:
    """Yield the samples in the archive's order.

    Raises:
        DataError: the file is not a tar archive, is truncated or damaged.
    """
    compression = raw_bytes.COMPRESSION.get(path.suffix.lower())
    try:
        with pa.input_stream(str(path), compression=compression) as stream:
            with tarfile.open(fileobj=stream, mode="r|", tarinfo=_Header) as archive:
                yield from gather_batches(_iter_rows(archive, columns), columns)
            while stream.read(raw_bytes.CHUNK_BYTES):
                pass  # read to the end, so that the checksum of a compressed file is verified
    except (OSError, EOFError, pa.ArrowException, tarfile.TarError) as error:
        raise DataError(
            f"{path}: cannot be read as tar to its end ({error}); it was truncated or damaged: "
            "create it again, or copy it again"
        ) from error


class _Header(tarfile.TarInfo):
    """A member's header. It raises ``EOFError`` if a header is damaged or the archive is truncated.

    ``tarfile`` itself would treat this as the end of the archive.
    """

    @classmethod
    def fromtarfile(cls, tarfile_: tarfile.TarFile) -> "_Header":
        """Return the next header; raise EOFError if it is damaged or truncated."""
        offset = tarfile_.offset
        try:
            return super().fromtarfile(tarfile_)
        except tarfile.HeaderError as error:
            if not offset or isinstance(error, Zeros):  # zeros mark the end of an archive
                raise
            raise EOFError(
                f"at byte {offset} is neither a member nor the end of the archive"
            ) from error


@dataclass
class Sample:
    """The archive's members with one key."""

    key: str
    contents: dict[str, bytes] = field(default_factory=dict)
    """Mapping of suffix to content, for members whose suffix is declared as a column."""
    names: list[str] = field(default_factory=list)
    """Suffixes of all members."""
    reason: str = ""
    """Reason why the sample is bad."""

    def to_row(self, number: int, columns: Mapping[str, "Column"]) -> Row | Bad:
        """Return the sample as a row, or as a bad record with the reason."""
        try:
            if self.reason:
                raise BadRecord(self.reason)
            values = [self._read_value(name, column) for name, column in columns.items()]
        except BadRecord as error:
            return Bad(number, f"{error}; the sample has {', '.join(self.names)}", self.key)
        return Row(number, values, sum(map(len, self.contents.values())))

    def add_member(self, suffix: str, archive: tarfile.TarFile, member: tarfile.TarInfo) -> None:
        """Add the content of a member with a declared suffix.

        If it occurs twice or is too long, the sample becomes bad.
        """
        file = archive.extractfile(member)
        if suffix in self.names:
            self.reason = f"member {member.name!r} occurs twice"
        elif file and member.size <= raw_bytes.MAX_RECORD_BYTES:
            self.contents[suffix] = file.read()
        else:
            self.reason = (
                f"member {member.name!r} is longer than {raw_bytes.MAX_RECORD_BYTES} bytes"
            )

    def _read_value(self, name: str, column: "Column") -> Any:
        """Return the value of a column, or None if the sample has no member for it."""
        if name == KEY:
            content: bytes | None = self.key.encode()
        else:
            content = next(
                (self.contents[e] for e in _list_suffixes(name) if e in self.contents), None
            )
        if content is None or column.kind == "bytes":
            return require_value(name, column, content)
        content = content.rstrip(b"\r\n") if column.kind == "text" else content.strip()
        return require_value(name, column, convert_field(name, column, content))


def _iter_rows(archive: tarfile.TarFile, columns: Mapping[str, "Column"]) -> Iterator[Row | Bad]:
    """Yield the archive's samples, as rows or bad records."""
    declared_ends = {end for name in columns for end in _list_suffixes(name)}
    sample, number = None, 0
    for member in archive:
        archive.members = []  # type: ignore[missing-attribute]  # else tarfile keeps every header
        match = NAME.fullmatch(member.name)
        if not member.isreg() or match is None or RESERVED_MEMBER.search(member.name):
            continue
        key, end = match[1], match[2].lower()
        if sample is None or key != sample.key:
            if sample is not None:
                yield sample.to_row(number, columns)
            sample, number = Sample(key), number + 1
        if end in declared_ends:
            sample.add_member(end, archive, member)
        sample.names.append(end)
    if sample is not None:
        yield sample.to_row(number, columns)


def _list_suffixes(column: str) -> list[str]:
    """Return the suffixes in a column's name, such as ``jpg;png``, from which it can be read."""
    return column.lower().split(";")
