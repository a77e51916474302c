"""Reading in the tests: write a file, read all of it; and the readers with small limits."""

import gzip
import io
import tarfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from steps.shard.readers import Bad, Batch, csv, raw_bytes, read_records, text
from steps.shard.readers.batch import build_schema, merge_batches
from training.workloads import Column

TEXT = {"text": Column("text")}
MIXED = {
    "text": Column("text", False),
    "kind": Column("category", False),
    "size": Column("number", False),
}

Reading = tuple[list[tuple], list[int], list[Bad]]


def compress_content(content: bytes, suffix: str) -> bytes:
    """Compress the content as the end of the suffix asks: ``.gz``, ``.zst``, or not at all."""
    if suffix.endswith(".gz"):
        return gzip.compress(content, 1)
    zstd = suffix.endswith(".zst")
    return pa.Codec("zstd").compress(content, asbytes=True) if zstd else content


def plain(suffix: str) -> str:
    """Return the suffix without the compression."""
    return suffix.removesuffix(".gz").removesuffix(".zst")


def write(folder: Path, name: str, content: bytes | str) -> Path:
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def tar(members: Mapping[str, bytes | str]) -> bytes:
    """An archive of these files."""
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as archive:
        for name, content in members.items():
            raw_content = content.encode() if isinstance(content, str) else content
            entry = tarfile.TarInfo(name)
            entry.size = len(raw_content)
            archive.addfile(entry, io.BytesIO(raw_content))
    return file.getvalue()


def read_all(path: Path, columns: Mapping[str, Column] = TEXT) -> Reading:
    """Rows, their places, and what is bad."""
    return number_records(path.name, read_lines(path, columns))


def number_records(name: str, reading: Reading) -> Reading:
    """Number the records of CSV and TSV from 1, where the reader gives their lines."""
    rows, lines, bad = reading
    if plain(name.lower()).endswith((".csv", ".tsv")):
        order = sorted([*lines, *(one.line for one in bad)])
        place = {line: number for number, line in enumerate(order, 1)}
        assert len(place) == len(order), "two records that begin in one line"
        lines = [place[line] for line in lines]
        bad = [replace(one, line=place[one.line]) for one in bad]
    return rows, lines, bad


def read_lines(path: Path, columns: Mapping[str, Column] = TEXT) -> Reading:
    """Rows, their lines, and what is bad."""
    batches = list(read_records(path, columns))
    for batch in batches:
        batch.records.validate(full=True)
        assert batch.records.schema == build_schema(columns)
        assert len(batch.lines) == len(batch.records)
        assert len(batch.lines) or batch.bad_records, "an empty batch"
    return convert_batch(merge_batches(batches)) if batches else ([], [], [])


def convert_batch(batch: Batch) -> Reading:
    rows = list(zip(*(column.to_pylist() for column in batch.records.columns), strict=True))
    return rows, batch.lines.tolist(), batch.bad_records


def reasons(bad: list[Bad]) -> dict[int, str]:
    return {one.line: one.reason for one in bad}


@contextmanager
def limits(chunk: int = 4 << 20, piece: int = 32 << 10, record: int = 64 << 20) -> Iterator[None]:
    """Other limits than the real ones: ends of chunks and pieces then fall everywhere."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(raw_bytes, "CHUNK_BYTES", chunk)
        for module in (raw_bytes, csv, text):
            patch.setattr(module, "PIECE_BYTES", piece)
        for module in (raw_bytes, csv):
            patch.setattr(module, "MAX_RECORD_BYTES", record)
        patch.setattr(text, "TAILS_BYTES", (piece, 4 * piece))
        yield
