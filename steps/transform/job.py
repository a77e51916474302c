"""Score records with a trained model, as an endpoint with it would respond.

python -m steps.transform.job [--keep NAME …] [--max_bad_share 0.01]

Every input record is in the output, either in ``scores`` with the model's response, or in
``quarantine`` with the reason. Each file appears only when it is complete, and the summary last.
"""

import argparse
import json
import logging
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from steps.evaluate.model_folder import find_model_folder, fingerprint_model
from steps.job_arguments import parse_typed_arguments
from steps.job_main import run
from steps.shard import raw_objects
from steps.shard import ray_cluster as job_instances
from steps.shard.manifests import REASONS, check_bad_share
from steps.shard.raw_objects import RawObject
from steps.shard.readers import check_suffixes, read_records
from steps.shard.readers.batch import Batch, reject_records
from steps.shard.survey import Counts
from steps.transform.settings import TransformSettings
from training.cpu_cores import limit_torch_threads
from training.defaults.request_batch import to_json_values
from training.export.inference import ServedModel, load_served_model
from training.weights.starting_weights import BASE
from training.workloads import Column
from trainyard.common import atomic_file
from trainyard.common.errors import DataError
from trainyard.common.hashes import hash_json

# Score one raw object, part by part, so that memory does not grow with the number of records.

PART = 4096
"""Maximum number of records of a part."""
REQUESTS_PER_PASS = 16
"""Records per forward pass if the workload does not say how many (``Simple.at_once``)."""


class OutputLines(NamedTuple):
    """Output lines for one batch of records."""

    scores: list[bytes]
    quarantined_lines: list[bytes]


@dataclass(frozen=True, kw_only=True)
class Scoring:
    """The model and settings on which the scores of a raw object depend."""

    served_model: ServedModel
    columns: Mapping[str, Column]
    """Columns of a request to the model."""
    keep: Sequence[str]
    output: Path

    def build_output_paths(self, raw: RawObject) -> tuple[Path, Path]:
        """Return the paths of the object's files of scores and of quarantined records."""
        name = raw.unit if raw.files else raw.name
        return self.output / f"scores/{name}.jsonl", self.output / f"quarantine/{raw.unit}.jsonl"

    def score_object(self, raw: RawObject) -> Counts:
        """Score the object, and write its two files; they appear only when they are complete.

        Raises:
            DataError: the object cannot be read.
        """
        scores, quarantine = self.build_output_paths(raw)
        scores.parent.mkdir(parents=True, exist_ok=True)
        records = quarantine_count = 0
        reasons: list[str] = []
        with (
            atomic_file.Draft(scores) as scores_draft,
            atomic_file.Draft(quarantine) as quarantine_draft,
        ):
            for batch in self._read_pieces(raw):
                part = self._score_batch(raw, batch)
                if len(part.scores) + len(part.quarantined_lines) != batch.record_count:
                    raise DataError(
                        f"{raw.name}: {batch.record_count} records in, {len(part.scores)} out"
                    )
                scores_draft.writelines(part.scores)
                quarantine_draft.writelines(part.quarantined_lines)
                records += batch.record_count
                quarantine_count += len(part.quarantined_lines)
                bad_lines = map(json.loads, part.quarantined_lines[: REASONS - len(reasons)])
                reasons += [f"line {line['line']}: {line['reason']}" for line in bad_lines]
        if not quarantine_count:
            quarantine.unlink()
        return Counts(
            name=raw.name, records=records, duplicates=0, quarantined=quarantine_count,
            reasons=reasons, units=[],
        )  # fmt: skip

    def _read_pieces(self, raw: RawObject) -> Iterator[Batch]:
        """Yield the records in batches of at most PART good ones."""
        # A column that is both kept and in the request has the request's kind, so that comes last.
        kept_columns = {name: Column("category", required=False) for name in self.keep}
        for batch in read_records(raw.path, {**kept_columns, **self.columns}, raw.files):
            # If there are no good records, yield one batch anyway, because of the bad ones.
            for start in range(0, len(batch.records), PART) or [0]:
                bad_records = [] if start else batch.bad_records
                rows = slice(start, start + PART)
                yield Batch(batch.records[rows], batch.lines[rows], bad_records)

    def _score_batch(self, raw: RawObject, batch: Batch) -> OutputLines:
        """Return a batch's output lines; its records are scored like requests to an endpoint."""
        names = batch.records.schema.names
        values = [
            to_json_values(self.columns.get(name, Column("category")), batch.records.column(name))
            for name in names
        ]
        inputs = [dict(zip(names, row, strict=True)) for row in zip(*values, strict=True)]
        workload = self.served_model.workload
        requests = (workload.request({n: row[n] for n in self.columns}) for row in inputs)
        pass_size = getattr(workload, "at_once", REQUESTS_PER_PASS)
        answers: list[dict | Exception] = []
        while pass_requests := list(islice(requests, pass_size)):
            answers.extend(self.served_model.answer_all(pass_requests))
        # A DataError means that the record is bad, so it is quarantined. Any other error is a
        # defect of the model or the code.
        for answer in answers:
            if isinstance(answer, Exception) and not isinstance(answer, DataError):
                raise answer
        reasons = {
            row: str(answer) for row, answer in enumerate(answers) if isinstance(answer, DataError)
        }
        input_names = [n for n in self.columns if n in self.keep or self.columns[n].kind != "bytes"]
        kept_names = [name for name in self.keep if name not in self.columns]
        score_lines = [
            _format_line(
                raw,
                line,
                input={name: row[name] for name in input_names},
                **({"kept": {name: row[name] for name in kept_names}} if kept_names else {}),
                answer=answer,
            )
            for line, row, answer in zip(batch.lines.tolist(), inputs, answers, strict=True)
            if not isinstance(answer, Exception)
        ]
        bad_lines = [
            _format_line(raw, bad_record.line, reason=bad_record.reason, excerpt=bad_record.excerpt)
            for bad_record in reject_records(batch, reasons).bad_records
        ]
        return OutputLines(score_lines, bad_lines)


def _format_line(raw: RawObject, line: int, **more: Any) -> bytes:
    """Return an output line about a record, which begins with its file and line number."""
    source, number = (raw.files[line - 1], 1) if raw.files else (raw.name, line)
    return json.dumps({"source": source, "line": number, **more}, allow_nan=False).encode() + b"\n"


log = logging.getLogger(__name__)


def transform_files(options: argparse.Namespace) -> None:
    """Score every file, and write the summary last.

    Raises:
        DataError: there are no files, one of them cannot be read, or too many records are bad.
    """
    limit_torch_threads()
    inputs, instances = (
        options.root / "processing/input",
        job_instances.read_instances(options.root),
    )
    scoring = _load_scoring(options)
    objects = raw_objects.find_raw_objects(inputs / "records", hash_json([*scoring.columns]))
    check_suffixes(raw.name for raw in objects if not raw.files)
    # With fewer files than instances, some instances have no file.
    if not objects and len(instances.hosts) == 1:
        raise DataError("0 files in the records; upload some under transform.input")
    counts = []
    for raw in objects:
        counts.append(result := scoring.score_object(raw))
        log.info("%s: %d records, %d of them bad", raw.name, result.records, result.quarantined)
    check_bad_share(counts, options.max_bad_share, "transform.max_bad_share")
    records, bad_count = (sum(getattr(c, n) for c in counts) for n in ("records", "quarantined"))
    summary = {"records": records, "scored": records - bad_count, "quarantined": bad_count}
    summary["objects"] = {
        raw.name: {"records": result.records, "quarantined": result.quarantined}
        | {path.parent.name: path.name for path in scoring.build_output_paths(raw) if path.exists()}
        for raw, result in sorted(zip(objects, counts, strict=True), key=lambda pair: pair[0].name)
    }
    model = options.root / "processing/input/model"
    summary["model_sha256"] = fingerprint_model(model)["sha256"]
    path = scoring.output / f"quarantine/summary-{instances.host}.json"
    atomic_file.write_file(path, json.dumps(summary, indent=1))


def _load_scoring(options: argparse.Namespace) -> Scoring:
    """Load the model, and create the output folders."""
    inputs, output = options.root / "processing/input", options.root / "processing/output"
    for folder in ("scores", "quarantine"):
        (output / folder).mkdir(parents=True, exist_ok=True)
    base = inputs / BASE if (inputs / BASE).is_dir() else None
    served_model = load_served_model(
        find_model_folder(inputs / "model", options.root / "unpacked"), base
    )
    workload = served_model.workload
    if not hasattr(workload, "request"):
        name = type(workload).__module__.rpartition(".")[0]
        raise DataError(f"workload {name} cannot score records: give its Workload a request()")
    return Scoring(
        served_model=served_model,
        columns=workload.request_columns,
        keep=options.keep,
        output=output,
    )


def parse_arguments(arguments: list[str]) -> argparse.Namespace:
    """Parse the job's arguments."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--root", type=Path, default=Path("/opt/ml"), help=argparse.SUPPRESS)
    return parse_typed_arguments(parser, arguments, TransformSettings)


def main(arguments: list[str] | None = None) -> None:
    options = parse_arguments(sys.argv[1:] if arguments is None else arguments)
    run(lambda: transform_files(options), options.root / "output/message")


if __name__ == "__main__":
    main()
