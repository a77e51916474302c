"""Shard this instance's part of the raw records.

python steps/shard/job.py --workload language_model --workload_config '{…}' \\
    --validation_share 0.05 --test_share 0.05 --samples_per_shard 4096
"""

import argparse
import gzip
import hashlib
import json
import logging
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from errors import DataError
from steps.edge import run
from training.data.manifest import write_atomically
from training.data.writer import ShardWriter
from training.workloads import load, read_settings

log = logging.getLogger(__name__)

QUARANTINE_LIMIT = 0.001  # share of the records that may be bad before the job fails
SPLITS = ("train", "validation", "test")


def split_of(key: str, validation_share: float, test_share: float) -> str:
    """The split of a record, from a hash of its key alone: the same on every instance and run."""
    position = int.from_bytes(hashlib.sha256(key.encode()).digest()[:8]) / 2**64
    if position < test_share:
        return "test"
    return "validation" if position < test_share + validation_share else "train"


def read_records(path: Path) -> Iterator[tuple[int, dict[str, Any] | None]]:
    """(line number, record) of a .jsonl or .jsonl.gz file; None for a line that is no record.

    Raises:
        DataError: the file is of another kind, or is cut off.
    """
    if not path.name.endswith((".jsonl", ".jsonl.gz")):
        raise DataError(
            f"{path.name}: is neither .jsonl nor .jsonl.gz; convert it to JSON Lines of "
            '{"key": …, "text": …}, or keep it out of data.input'
        )
    try:
        with (gzip.open if path.suffix == ".gz" else open)(path, "rb") as lines:
            for number, line in enumerate(lines, 1):
                if line.strip():
                    yield number, _record(line)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise DataError(f"{path.name}: is a damaged gzip file: {error}; upload it again") from None


def _record(line: bytes) -> dict[str, Any] | None:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):  # neither JSON nor UTF-8, or nested without end
        return None
    return record if isinstance(record, dict) and isinstance(record.get("key"), str) else None


def shard(options: argparse.Namespace) -> None:
    """Read, split, pack, write; the manifests come last."""
    root: Path = options.root
    cluster = json.loads((root / "config/resourceconfig.json").read_bytes())
    files = sorted(p for p in (root / "processing/input/raw").rglob("*") if p.is_file())
    if not files and len(cluster["hosts"]) == 1:
        raise DataError("0 files in the raw input; upload data under data.input")
    assets = options.tokenizer.parent if options.tokenizer else None
    workload = load(options.workload, read_settings(options.workload_config), assets)
    output = root / "processing/output"
    writers = {
        split: ShardWriter(
            output / split,
            cluster["current_host"],
            width=workload.width,
            dtype=workload.dtype,
            samples_per_shard=options.samples_per_shard,
        )
        for split in SPLITS
    }
    quarantined = _pack(files, writers, workload, options)
    for split, writer in writers.items():
        for name, content in workload.files().items():
            write_atomically(output / split / name, content)
        manifest = writer.close(quarantined=quarantined, workload=workload.info)
        log.info("%s: %d records, %d samples", split, manifest.records, manifest.samples)


def _pack(files: list[Path], writers: dict[str, ShardWriter], workload, options) -> int:
    """Pack every record into its split; the number of records that could not be read.

    Raises:
        DataError: more than QUARANTINE_LIMIT of the records are bad; says which.
    """
    packers = {split: workload.packer() for split in SPLITS}
    bad: list[str] = []
    records = 0
    for path in files:
        for number, record in read_records(path):
            records += 1
            try:
                if record is None:
                    raise DataError('is no JSON object with a string "key"')
                split = split_of(record["key"], options.validation_share, options.test_share)
                writers[split].add(packers[split].add(record))
                writers[split].records += 1
            except (DataError, UnicodeEncodeError) as error:  # the latter: half a surrogate pair
                bad.append(f"{path.name} line {number}: {error}")
                log.warning("quarantined: %s", bad[-1])
    if len(bad) > QUARANTINE_LIMIT * records:
        raise DataError(
            f"{len(bad)} of {records} records are bad, more than {QUARANTINE_LIMIT:.1%}; "
            f"the first: {bad[0]}; every line must be a JSON object with the strings key and text"
        )
    for split, packer in packers.items():
        writers[split].add(packer.flush())
    return len(bad)


def parse(arguments: list[str]) -> argparse.Namespace:
    """The job's arguments."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workload", required=True)
    parser.add_argument("--workload_config", default="{}", help="the workload's settings as JSON")
    parser.add_argument("--validation_share", type=float, default=0.05)
    parser.add_argument("--test_share", type=float, default=0.05)
    parser.add_argument("--samples_per_shard", type=int, default=4096)
    parser.add_argument("--tokenizer", type=Path, help="a Hugging Face tokenizer.json")
    parser.add_argument("--root", type=Path, default=Path("/opt/ml"), help=argparse.SUPPRESS)
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> None:
    options = parse(sys.argv[1:] if arguments is None else arguments)
    run(lambda: shard(options), options.root / "output/message")


if __name__ == "__main__":
    main()
