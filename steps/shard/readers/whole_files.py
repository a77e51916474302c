"""Read folders of files, each a record: images and sounds, as in ImageFolder.

A record has three columns: ``path`` (below data.input), ``bytes`` (all of the file) and ``label``
(the first folder of the path, in a mixture the one below its input's; none for a file in no
folder). Its number is the file's place among those that are read together.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from steps.shard.readers import raw_bytes
from steps.shard.readers.batch import Bad, Batch
from steps.shard.readers.column_values import BadRecord, field_value, present
from steps.shard.readers.rows import Row, batches, check_names
from trainyard.common.errors import DataError

if TYPE_CHECKING:
    from training.workloads import Column

COLUMNS = ("path", "bytes", "label")


def read_files(
    folder: Path, names: Sequence[str], columns: Mapping[str, "Column"], depth: int = 0
) -> Iterator[Batch]:
    """Yield these files below ``folder``; the label is the folder below the first ``depth`` ones.

    Raises:
        DataError: a declared column is not one of ``COLUMNS``; a file cannot be read.
    """
    check_names(folder / names[0], COLUMNS, columns)
    for name, column in columns.items():
        if (column.kind == "bytes") != (name == "bytes"):
            raise DataError(
                f"{folder / names[0]}: column {name!r} is declared as {column.kind}; in a whole "
                "file the column 'bytes' is bytes, and 'path' and 'label' are text or category"
            )
    rows = (_row(folder, number, name, columns, depth) for number, name in enumerate(names, 1))
    yield from batches(rows, columns)


def _row(
    folder: Path, number: int, name: str, columns: Mapping[str, "Column"], depth: int
) -> Row | Bad:
    path = folder / name
    try:
        if not 0 < path.stat().st_size <= raw_bytes.MAX_RECORD_BYTES:
            size = path.stat().st_size
            return Bad(
                number, f"has {size} bytes, expected 1 to {raw_bytes.MAX_RECORD_BYTES}", name
            )
        content = path.read_bytes()
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error}; copy it again") from error
    folders = name.split("/")[depth:-1]
    fields: dict[str, Any] = {"path": name.encode(), "label": "".join(folders[:1]).encode()}
    try:
        values = [
            content
            if key == "bytes"
            else present(key, column, field_value(key, column, fields[key]))
            for key, column in columns.items()
        ]
    except BadRecord as error:
        return Bad(number, str(error), name)
    return Row(number, values, len(content))
