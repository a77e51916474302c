"""Raw data to shard while it is being disturbed: several objects, several kinds."""

import gzip
import json
import random
from pathlib import Path

import pyarrow as pa
from pyarrow import csv, parquet

WORDS = "shard kill disk torn write again never half read once whole byte node sum".split()
OBJECTS = 6
RECORDS = 800  # in each object
BAD = b'{"key": "cut off", "te'


def write_corpus(folder: Path, seed: int) -> None:
    """JSON Lines (plain, gzip, zstd), CSV and Parquet; with duplicates, and a bad record."""
    source = random.Random(seed)
    folder.mkdir(parents=True)
    for number in range(OBJECTS):
        records = [_record(source, number, row) for row in range(RECORDS)]
        records += records[: RECORDS // 50]
        _WRITERS[number % len(_WRITERS)](folder / f"part-{number}", records)


def _record(source: random.Random, number: int, row: int) -> dict[str, str]:
    words = " ".join(source.choices(WORDS, k=source.randint(5, 200)))
    return {"key": f"{number}/{row // 3}", "text": f"{number} {row} {words}"}


def _lines(records: list[dict[str, str]]) -> bytes:
    return "".join(json.dumps(record) + "\n" for record in records).encode()


def _plain(stem: Path, records: list[dict[str, str]]) -> None:
    stem.with_suffix(".jsonl").write_bytes(_lines(records) + BAD + b"\n")


def _gzip(stem: Path, records: list[dict[str, str]]) -> None:
    stem.with_suffix(".jsonl.gz").write_bytes(gzip.compress(_lines(records), mtime=0))


def _zstd(stem: Path, records: list[dict[str, str]]) -> None:
    content = pa.compress(_lines(records), codec="zstd", asbytes=True)
    stem.with_suffix(".jsonl.zst").write_bytes(content)


def _csv(stem: Path, records: list[dict[str, str]]) -> None:
    csv.write_csv(pa.Table.from_pylist(records), stem.with_suffix(".csv"))


def _parquet(stem: Path, records: list[dict[str, str]]) -> None:
    parquet.write_table(pa.Table.from_pylist(records), stem.with_suffix(".parquet"))


_WRITERS = (_gzip, _csv, _parquet, _zstd, _plain)
