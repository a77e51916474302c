"""The source of this machine's Python standard library: about 30 MB of real text.

It is written as gzipped JSON Lines of {"key", "text"}; the key is the file's path.
"""

import gzip
import hashlib
import json
import sysconfig
from collections.abc import Iterator
from pathlib import Path

from pipelines.corpora import Corpus
from trainyard.common.errors import DataError

PARTS = 16  # number of files


def build() -> Corpus:
    """Build gzipped JSON Lines files of the standard library's source.

    Raises:
        DataError: this Python has no source.
    """
    files = pack_sources(read_sources(Path(sysconfig.get_paths()["stdlib"])))
    return Corpus(files, "source of the Python standard library, gzipped")


def read_sources(folder: Path) -> Iterator[tuple[str, str]]:
    """Yield (path inside the folder, text) of every Python file, sorted by path.

    Installed packages are left out, and so are the few files that are not UTF-8.

    Raises:
        DataError: the folder holds no Python source.
    """
    has_sources = False
    for path in sorted(folder.rglob("*.py")):
        relative = path.relative_to(folder)
        if "site-packages" in relative.parts:
            continue
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:  # a file that exists to test the parser
            continue
        has_sources = True
        yield relative.as_posix(), text
    if not has_sources:
        raise DataError(
            f"{folder}: holds no Python source; this Python was installed without its library's "
            "source: use another one, or upload data of your own"
        )


def pack_sources(records: Iterator[tuple[str, str]]) -> dict[str, bytes]:
    """Return files with the records (key, text), as ``pack_records`` does."""
    return pack_records({"key": key, "text": text} for key, text in records)


def pack_records(records: Iterator[dict[str, str]]) -> dict[str, bytes]:
    """Return the content of the files ``part-00.jsonl.gz`` …, by name; a record's part depends only
    on its ``key``.
    """
    parts: list[list[str]] = [[] for _ in range(PARTS)]
    for record in records:
        part = int.from_bytes(hashlib.sha256(record["key"].encode()).digest()[:4]) % PARTS
        parts[part].append(json.dumps(record) + "\n")
    # mtime=0: the same library gives the same bytes, so a second upload finds nothing to do.
    return {
        f"part-{index:02d}.jsonl.gz": gzip.compress("".join(lines).encode(), 6, mtime=0)
        for index, lines in enumerate(parts)
    }
