"""Read raw data of many formats into record batches; bad records are named.

========================= ============================ ==========================================
suffix                    a record                     its number in ``Batch.lines``, ``Bad.line``
========================= ============================ ==========================================
.txt                      a non-blank line             line, from 1
.jsonl .ndjson            a non-blank line             line, from 1
.csv .tsv                 a row after the header       line in which it begins, from 1
.parquet                  a row                        row, from 1
.tar                      files of one name, as        sample, from 1
                          in WebDataset
.jpg .png .webp .wav …    the file                     its place among those read together
========================= ============================ ==========================================

All except Parquet and whole files may be compressed: ``.gz`` or ``.zst`` follows the suffix. Case
does not matter. Text is UTF-8; a byte order mark at the start of a file is dropped.

Values that are allowed, in every format (``steps.shard.readers.column_values`` has the details):

text      a string
category  a string, integer or boolean; given as text (``7``, ``true``)
number    a number, given as float64; a value that is not finite (NaN, Infinity, 1e999) is missing,
          one that the samples cannot hold (``Column.limit``) makes the record bad. Where
          ``Column.dtype`` is an integer, a whole number, given in that type: exact, or the record
          is bad. Written as a float (``12.0``, ``1e3``, a float in Parquet) it is taken below
          2**53: from there on its writer may have rounded it
bytes     base64 in JSON Lines, CSV and TSV; binary in Parquet, or an Image or Audio of Hugging
          Face's datasets (a struct with ``bytes``); a whole file, or a member of a tar archive
list      a JSON array of numbers in JSON Lines, and as text in CSV and TSV; a list in Parquet;
          given like numbers. An element that is not a finite number makes the record bad
timestamp ISO 8601, without an offset in UTC; in Parquet also a timestamp or a date; given as
          int64, microseconds since 1970 in UTC

A missing value is null where its column is not required, and makes the record bad where it is. A
bad record costs only itself. A defect of the whole file (cut off, UTF-16, missing column)
raises ``DataError``, even when batches were given already.

A format is a module with ``SUFFIXES``, ``COMPRESSED`` and ``read``; it is found by that.

Clean data goes through pyarrow's vectorised parsers. A piece of a file that they refuse is read
again record by record; both ways accept the same records and give the same values.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import TYPE_CHECKING

from steps.shard.readers.batch import Bad, Batch
from steps.shard.readers.column_values import check_limits
from steps.shard.readers.raw_bytes import COMPRESSION
from steps.shard.readers.text import read_files
from trainyard.common.errors import DataError

if TYPE_CHECKING:
    from training.workloads import Column

__all__ = ["FORMATS", "Bad", "Batch", "read", "refuse_unknown"]

Reader = Callable[[Path, Mapping[str, "Column"]], Iterator[Batch]]


def _formats() -> Iterator[tuple[str, Reader]]:
    """Yield (suffix, reader) of each module here that has ``SUFFIXES``, compressed suffixes
    included.
    """
    for module_info in iter_modules(__path__):
        module = import_module(f"{__name__}.{module_info.name}")
        for suffix in getattr(module, "SUFFIXES", ()):
            for end in ("", *(COMPRESSION if module.COMPRESSIBLE else ())):
                yield suffix + end, module.read


FORMATS = dict(_formats())
"""Known suffix → its reader."""


def read(
    path: Path, columns: Mapping[str, "Column"], files: Sequence[str] = (), depth: int = 0
) -> Iterator[Batch]:
    """Yield the file's records in its order, in batches of about 4 MiB of raw data, or one record.

    ``records`` of a batch has the declared columns, in that order, in the types of
    ``column_types.record_type``. A category's dictionary may hold values of no record. A file
    without records gives no batch. With ``files``, these below the folder ``path`` are read, each
    as a record (``whole_files``); the first ``depth`` folders of their paths are not labels.

    Raises:
        DataError: a suffix is unknown (at once); a file cannot be read as a whole, or
            lacks a declared column (while reading).
    """
    if files:
        return check_limits(read_files(path, files, columns, depth), columns)
    name = path.name.lower()
    for suffix, reader in FORMATS.items():
        if name.endswith(suffix):
            return check_limits(reader(path, columns), columns)
    raise _unknown([str(path)])


def refuse_unknown(names: Iterable[str]) -> None:
    """Check the names of files, but those that are one record each, before any is read.

    Raises:
        DataError: a file's suffix is unknown; names the first, and how many there are.
    """
    if unknown := [name for name in names if not name.lower().endswith((*FORMATS,))]:
        raise _unknown(sorted(unknown))


def _unknown(names: Sequence[str]) -> DataError:
    more = f" and {len(names) - 1} more files" if len(names) > 1 else ""
    return DataError(
        f"{names[0]}{more}: raw data of this suffix cannot be read; known are "
        f"{', '.join(FORMATS)}. Convert it, name it by its content, or keep it out of "
        "data.input; a name that begins with _ is left out"
    )
