"""Read raw data of many formats into record batches, and name the bad records.

========================= ============================ ==========================================
suffix                    a record                     its number in ``Batch.lines``, ``Bad.line``
========================= ============================ ==========================================
.txt                      a non-blank line             line, from 1
.jsonl .ndjson            a non-blank line             line, from 1
.csv .tsv                 a row after the header       line in which it begins, from 1
.parquet                  a row                        row, from 1
.tar                      files of one name, as        sample, from 1
                          in WebDataset
.jpg .png .webp .wav …    the file                     its position among those read together
========================= ============================ ==========================================

All except Parquet and whole files may be compressed: ``.gz`` or ``.zst`` follows the suffix. Case
does not matter. Text is UTF-8; a byte order mark at the start of a file is dropped.

Values that are allowed, in every format (``steps.shard.readers.column_values`` has the details):

text      a string
category  a string, integer or boolean; given as text (``7``, ``true``)
number    a number, given as float64. A value that is not finite (NaN, Infinity, 1e999) is missing.
          A value that the samples cannot hold (``Column.limit``) makes the record bad. If
          ``Column.dtype`` is an integer: a whole number, given exactly in that type; otherwise the
          record is bad. One written as a float (``12.0``, ``1e3``, a float in Parquet) is accepted
          below 2**53, because the program that wrote it may have rounded larger ones
bytes     base64 in JSON Lines, CSV and TSV; binary in Parquet, or an Image or Audio of Hugging
          Face's datasets (a struct with ``bytes``); a whole file, or a member of a tar archive
list      a JSON array of numbers in JSON Lines, and as text in CSV and TSV; a list in Parquet;
          given like numbers. An element that is not a finite number makes the record bad
timestamp ISO 8601, in UTC if it has no offset; in Parquet also a timestamp or a date; given as
          int64, microseconds since 1970 in UTC

A missing value is null if its column is not required, and makes the record bad if it is. A bad
record does not affect the others. A defect of the whole file (truncated, UTF-16, missing column)
raises ``DataError``, even if batches have already been yielded.

Each module here that has ``SUFFIXES``, ``COMPRESSIBLE`` and ``read`` adds a format.

Clean data is parsed by pyarrow's vectorised parsers. A piece of a file that they refuse is read
again record by record. Both ways accept the same records and give the same values.
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

__all__ = ["FORMATS", "Bad", "Batch", "read_records", "check_suffixes"]

Reader = Callable[[Path, Mapping[str, "Column"]], Iterator[Batch]]


def _iter_formats() -> Iterator[tuple[str, Reader]]:
    """Yield (suffix, reader) for each suffix, with and without compression, of the modules here."""
    for module_info in iter_modules(__path__):
        module = import_module(f"{__name__}.{module_info.name}")
        for suffix in getattr(module, "SUFFIXES", ()):
            for end in ("", *(COMPRESSION if module.COMPRESSIBLE else ())):
                yield suffix + end, module.read


FORMATS = dict(_iter_formats())
"""Reader of each known suffix."""


def read_records(
    path: Path, columns: Mapping[str, "Column"], files: Sequence[str] = (), depth: int = 0
) -> Iterator[Batch]:
    """Yield the file's records in order, in batches of about 4 MiB of raw data or of one record.

    ``Batch.records`` has the declared columns, in that order, with the types of
    ``column_packing.choose_record_type``. A category's dictionary may contain values that no record
    has. A file without records yields no batch. With ``files``, read these files below the folder
    ``path``, each as one record (``text.read_files``). The first ``depth`` folders of their paths
    are not labels.

    Raises:
        DataError: the suffix is unknown (raised at once); the file cannot be read, or a declared
            column is missing in it (raised while reading).
    """
    if files:
        return check_limits(read_files(path, files, columns, depth), columns)
    name = path.name.lower()
    for suffix, reader in FORMATS.items():
        if name.endswith(suffix):
            return check_limits(reader(path, columns), columns)
    raise _make_suffix_error([str(path)])


def check_suffixes(names: Iterable[str]) -> None:
    """Check that the suffixes of these files are known, before any file is read.

    Files that are one record each are not passed to it.

    Raises:
        DataError: a file's suffix is unknown; names the first such file, and how many there are.
    """
    if unknown := [name for name in names if not name.lower().endswith((*FORMATS,))]:
        raise _make_suffix_error(sorted(unknown))


def _make_suffix_error(names: Sequence[str]) -> DataError:
    """Return the error for files with unknown suffixes; it names the first one."""
    more = f" and {len(names) - 1} more files" if len(names) > 1 else ""
    return DataError(
        f"{names[0]}{more}: raw data with this suffix cannot be read; known suffixes: "
        f"{', '.join(FORMATS)}. Convert it, rename it to match its content, or keep it out of "
        "data.input; a name that begins with _ is left out"
    )
