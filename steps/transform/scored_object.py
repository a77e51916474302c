"""Score one raw object, part by part: killed and run again, the parts that are written stay.

Each part is a file below ``progress/``: a line with its counts and hash, its scores, its bad
records. From all parts come the object's two files. The result depends only on the object, the
model, the settings and the code.
"""

import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from steps.shard import shard_progress
from steps.shard.quarantine import REASONS
from steps.shard.raw_objects import RawObject
from steps.shard.readers import read
from steps.shard.readers.batch import Bad, Batch, without
from steps.shard.shard_progress import Record
from training.defaults.request_batch import json_values
from training.export.request_handler import Served
from training.workloads import Column
from trainyard.common import atomic_file
from trainyard.common.errors import DataError
from trainyard.common.hashes import file_sha256_or_none, json_sha256, lines_sha256

PART = 4096
"""Most records of a part."""
TOGETHER = 16
"""Records that are asked for in one pass where the workload does not say: ``Simple.at_once``."""


class Scored(Record):
    """An object's result."""

    records: int
    """Number of records: good and bad ones."""
    quarantined: int
    reasons: list[str]
    """Reasons why the first bad records were quarantined."""
    scores: str
    """SHA-256 of the file of scores."""
    quarantine: str | None
    """SHA-256 of the quarantine file; None without one."""


class Part(NamedTuple):
    """Lines of a part."""

    scores: list[bytes]
    bad: list[bytes]


@dataclass(frozen=True, kw_only=True)
class Scoring:
    """Everything but the object that a result depends on."""

    served: Served
    columns: Mapping[str, Column]
    """Columns of a request."""
    keep: Sequence[str]
    identity: Mapping[str, str | int | bool]
    """Model, settings and code."""
    output: Path

    @property
    def progress(self) -> Path:
        """Return the folder of the parts, and of the records of finished objects."""
        return self.output / "progress"

    def files(self, raw: RawObject) -> tuple[Path, Path]:
        """Return the object's file of scores and its quarantine file, which need not exist."""
        name = raw.unit if raw.files else raw.name
        return self.output / f"scores/{name}.jsonl", self.output / f"quarantine/{raw.unit}.jsonl"

    def score(self, raw: RawObject) -> Scored:
        """Score the object, or what is missing of it.

        Raises:
            DataError: the object cannot be read.
        """
        own = {"source": raw.name, "bytes": raw.bytes, "modified": raw.modified}
        identity = {**self.identity, **own}
        scores, quarantine = self.files(raw)
        done = shard_progress.read(Scored, raw.unit, identity, self.progress)
        if done and (file_sha256_or_none(scores), file_sha256_or_none(quarantine)) == (
            done.scores,
            done.quarantine,
        ):
            return done
        scores.parent.mkdir(parents=True, exist_ok=True)
        parts = self.progress / raw.unit
        parts.mkdir(parents=True, exist_ok=True)
        counts, reasons = [0, 0], list[str]()
        quarantine.unlink(missing_ok=True)
        with atomic_file.Draft(scores) as good, atomic_file.Draft(quarantine) as bad:
            for part in self._parts(raw, parts, json_sha256(identity)):
                good.writelines(part.scores)
                bad.writelines(part.bad)
                counts = [counts[0] + len(part.scores), counts[1] + len(part.bad)]
                told = (json.loads(line) for line in part.bad[: REASONS - len(reasons)])
                reasons += [f"line {one['line']}: {one['reason']}" for one in told]
        if not counts[1]:
            quarantine.unlink()
        done = Scored(
            identity=identity,
            records=sum(counts),
            quarantined=counts[1],
            reasons=reasons,
            scores=str(file_sha256_or_none(scores)),
            quarantine=file_sha256_or_none(quarantine),
        )
        shard_progress.write(done, raw.unit, self.progress)
        shutil.rmtree(parts)
        return done

    def _parts(self, raw: RawObject, folder: Path, key: str) -> Iterator[Part]:
        """Yield the parts in the object's order: the written ones, and the others scored."""
        for number, batch in enumerate(self._pieces(raw)):
            path = folder / f"{number:08d}"
            part = _read(path, key)
            if part is None:
                part = self._scored(raw, batch)
                _write(path, key, part)
            if len(part.scores) + len(part.bad) != batch.seen:
                raise DataError(f"{path}: {batch.seen} records in, {len(part.scores)} out")
            yield part

    def _pieces(self, raw: RawObject) -> Iterator[Batch]:
        """Yield the records in batches of at most PART good ones."""
        kept = {name: Column("category", required=False) for name in self.keep}
        for batch in read(raw.path, {**kept, **self.columns}, raw.files):
            for start in range(0, len(batch.records), PART) or [0]:
                bad = [] if start else batch.bad
                good = slice(start, start + PART)
                yield Batch(batch.records[good], batch.lines[good], bad)

    def _scored(self, raw: RawObject, batch: Batch) -> Part:
        """Ask for the records of a batch, as an endpoint is asked."""
        names = batch.records.schema.names
        values = [
            json_values(self.columns.get(name, Column("category")), batch.records.column(name))
            for name in names
        ]
        inputs = [dict(zip(names, row, strict=True)) for row in zip(*values, strict=True)]
        answers = list(self._answers(inputs))
        for one in answers:
            if isinstance(one, Exception) and not isinstance(one, DataError):
                raise one
        reasons = {row: str(one) for row, one in enumerate(answers) if isinstance(one, DataError)}
        asked = [n for n in self.columns if n in self.keep or self.columns[n].kind != "bytes"]
        kept = [name for name in self.keep if name not in self.columns]
        good = [
            _line(
                raw,
                line,
                input={name: one[name] for name in asked},
                **({"kept": {name: one[name] for name in kept}} if kept else {}),
                answer=answer,
            )
            for line, one, answer in zip(batch.lines.tolist(), inputs, answers, strict=True)
            if not isinstance(answer, Exception)
        ]
        bad = without(batch, reasons).bad
        return Part(good, [_bad_line(raw, one) for one in bad])

    def _answers(self, inputs: Sequence[Mapping[str, Any]]) -> Iterator[dict | Exception]:
        workload = self.served.workload
        asked = (workload.request({n: one[n] for n in self.columns}) for one in inputs)
        while together := list(islice(asked, getattr(workload, "at_once", TOGETHER))):
            yield from self.served.answers(together)


def _bad_line(raw: RawObject, one: Bad) -> bytes:
    return _line(raw, one.line, reason=one.reason, excerpt=one.excerpt)


def _line(raw: RawObject, line: int, **more: Any) -> bytes:
    """Return a line about a record, which its place begins."""
    source, number = (raw.files[line - 1], 1) if raw.files else (raw.name, line)
    return json.dumps({"source": source, "line": number, **more}, allow_nan=False).encode() + b"\n"


def _write(path: Path, key: str, part: Part) -> None:
    head = {"key": key, "scores": len(part.scores), "sha256": _sha256(part)}
    atomic_file.write(path, json.dumps(head) + "\n", *part.scores, *part.bad)


def _read(path: Path, key: str) -> Part | None:
    """Return the part; None unless it is whole, and was written with this key."""
    try:
        head, *lines = path.read_bytes().splitlines(keepends=True)
        told = json.loads(head)
    except (FileNotFoundError, ValueError):
        return None
    part = Part(lines[: told["scores"]], lines[told["scores"] :])
    return part if (told["key"], told["sha256"]) == (key, _sha256(part)) else None


def _sha256(part: Part) -> str:
    return lines_sha256(line.decode() for lines in part for line in lines)
