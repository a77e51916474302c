"""Build an instance's manifests from the progress records; written last, removed first."""

import json
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from steps.shard import shard_progress
from steps.shard.raw_objects import PackingUnit
from steps.shard.shard_plan import EXAMPLES, SPLITS, SUMMARY, Plan
from steps.shard.shard_progress import PackedUnit
from steps.shard.survey import Counts, Survey
from training.data.manifest import Files, Manifest, Raw, Shards, Source, format_manifest
from training.data.shard_writer import list_variable_fields
from trainyard.common import atomic_file
from trainyard.common.errors import DataError

log = logging.getLogger(__name__)


def prepare_output(plan: Plan, hosts: Sequence[str]) -> None:
    """Create the output's folders, and remove files that a killed run of this job left there.

    Raises:
        DataError: the output has files of another job.
    """
    for folder in (*plan.folders, "quarantine"):
        (plan.output / folder).mkdir(parents=True, exist_ok=True)
    refuse_foreign_files(plan, hosts)
    shard_progress.remove_leftovers(plan)


def write_manifests(
    corpus_survey: Survey, packed: Mapping[PackingUnit, PackedUnit], plan: Plan
) -> None:
    """Write the manifests of an instance, and the summary of its bad records."""
    content = summarize_bad_records(corpus_survey.objects)
    atomic_file.write_file(plan.output / f"quarantine/summary-{plan.host}.json", content)
    manifests = build_manifests(corpus_survey, packed, plan)
    write_files(build_file_contents(manifests, plan, plan.host))
    for split in SPLITS:
        log_balance(manifests[split])


def build_manifests(
    corpus_survey: Survey, packed_units: Mapping[PackingUnit, PackedUnit], plan: Plan
) -> dict[str, Manifest]:
    """Build one manifest for each of the plan's folders, with raw objects and units sorted by name.

    The summary's manifest is that of the train split, whose shards are in another folder.
    """
    raw = [
        Raw(
            name=entry.name,
            records=entry.records,
            duplicates=entry.duplicates,
            quarantined=entry.quarantined,
        )
        for entry in sorted(corpus_survey.objects, key=lambda entry: entry.name)
    ]
    units = len(corpus_survey.list_units(plan))
    manifests = {
        table: _build_manifest(raw, units, packed_units, plan, table) for table in plan.tables
    }
    return manifests | ({SUMMARY: manifests["train"]} if plan.summary else {})


def _build_manifest(
    raw: list[Raw],
    units: int,
    packed_units: Mapping[PackingUnit, PackedUnit],
    plan: Plan,
    table: str,
) -> Manifest:
    """Build the manifest of one folder from the progress records of its units."""
    packing = plan.packing
    fields = packing.example_fields if table == EXAMPLES else packing.fields
    shards = Shards(values={name: Files() for name in list_variable_fields(fields)})
    sources = []
    for number, unit in enumerate(sorted(packed_units, key=lambda unit: unit.name)):
        part = packed_units[unit].splits[table]
        sources.append(
            Source(
                name=unit.name,
                records=part.records,
                samples=part.samples,
                statistics=part.statistics,
            )
        )
        shards.file.extend(part.shards.file)
        shards.samples.extend(part.shards.samples)
        shards.source.extend([number] * len(part.shards))
        pairs = [(shards, part.shards)]
        pairs += [(shards.values[name], part.shards.values[name]) for name in shards.values]
        for files, more in pairs:
            files.bytes.extend(more.bytes)
            files.sha256.extend(more.sha256)
    return Manifest(
        split=table if table in SPLITS else "train",
        fields=dict(fields),
        workload=packing.info,
        raw=raw,
        units=units,
        sources=sources,
        shards=shards,
    )


def build_file_contents(
    manifests: Mapping[str, Manifest], plan: Plan, host: str
) -> dict[Path, bytes]:
    """Return {path: content} of the files that complete the output, in the order of writing."""
    out = {}
    # The manifests come last: if a manifest exists, every file that it lists does, too.
    for split in SPLITS:
        for name, content in plan.packing.files().items():
            out[plan.output / split / name] = content
    for folder, manifest in manifests.items():
        path = plan.output / folder / f"manifest-{host}.json"
        out[path] = format_manifest(manifest)
    return out


def write_files(file_contents: Mapping[Path, bytes]) -> None:
    """Write each file, {path: content}, atomically and in the mapping's order."""
    for path, content in file_contents.items():
        atomic_file.write_file(path, content)


def refuse_foreign_files(plan: Plan, hosts: Sequence[str]) -> None:
    """Check that no manifest is of another job, since its files would become part of this dataset.

    Raises:
        DataError: a manifest belongs to an instance of another job.
    """
    own_names = {f"manifest-{host}.json" for host in hosts}
    for folder in plan.folders:
        for path in sorted((plan.output / folder).glob("manifest-*.json")):
            if path.name not in own_names:
                raise DataError(
                    f"{path}: was written by another job (this one's hosts: {', '.join(hosts)}); "
                    "delete it, or name another output folder"
                )


def log_balance(manifest: Manifest) -> None:
    """Log one line with the counts, and how evenly the shards are sized."""
    table = manifest.shards
    columns = [table.bytes, *(files.bytes for files in table.values.values())]
    sizes = [sum(row) / 1e6 for row in zip(*columns, strict=True)]
    records = sum(source.records for source in manifest.sources)
    counts = f"{records} records, {manifest.samples} samples, {len(sizes)} shards"
    if sizes:
        balance = max(sizes) * len(sizes) / sum(sizes)
        counts += f" of {min(sizes):.2f} to {max(sizes):.2f} MB, largest ÷ mean {balance:.2f}"
    log.info("%s: %s", manifest.split, counts)


# Record bad records with their location and the reason; too many of them end the job.

if TYPE_CHECKING:
    from steps.shard.readers import Bad

EARLY = 10_000  # records after which a file that is mostly bad is refused
MAX_OBJECTS = 10  # maximum number of files that a message names
REASONS = 3  # number of reasons kept for each file, the first ones


class Quarantine:
    """Writer of the bad records of one raw object to ``<folder>/<unit>.jsonl``.

    A line is ``{"source": …, "line": …, "reason": …, "excerpt": …}``. Without bad records there is
    no file. ``source`` is the name of the raw object, or of one of its files if each file is a
    record.
    """

    def __init__(self, folder: Path, unit: str, source: str | Sequence[str], limit: float) -> None:
        self.count = 0
        self.reasons: list[str] = []
        self.path = folder / f"{unit}.jsonl"
        self._source, self._limit = source, limit
        self._draft: atomic_file.Draft | None = None

    def add(self, bad_records: Sequence["Bad"], records: int) -> None:
        """Write the records ``bad_records``; ``records`` is the number of the object's records so
        far, good and bad.

        Raises:
            DataError: the object is mostly bad, so it is probably of another format.
        """
        for bad_record in bad_records:
            self._write(bad_record)
        self.count += len(bad_records)
        if records >= EARLY and self.count > max(0.5, self._limit) * records:
            source = self._source if isinstance(self._source, str) else f"{self._source[0]} …"
            raise DataError(
                f"{source}: {self.count:,} of its first {records:,} records are bad "
                f"({'; '.join(self.reasons)}); does its content match its suffix?"
            )

    def _write(self, bad_record: "Bad") -> None:
        """Write one bad record to the file, which is created with the first one."""
        source, number = self._source, bad_record.line
        if not isinstance(source, str):
            source, number = source[number - 1], 1
        if len(self.reasons) < REASONS:
            position = f"line {number}" if isinstance(self._source, str) else source
            self.reasons.append(f"{position}: {bad_record.reason}")
        line = {"source": source, "line": number, "reason": bad_record.reason}
        if self._draft is None:
            self._draft = atomic_file.Draft(self.path)
        self._draft.file.write(json.dumps(line | {"excerpt": bad_record.excerpt}).encode() + b"\n")

    def close(self) -> None:
        """Finish the file, which then appears under its name."""
        if self._draft is not None:
            self._draft.finish()

    def discard(self) -> None:
        """Delete the unfinished file, after the object failed."""
        if self._draft is not None:
            self._draft.discard()


def check_bad_share(
    objects: Sequence[Counts], limit: float, setting: str = "shard.max_bad_share"
) -> None:
    """Check that the share of bad records is at most ``limit``; ``setting``: its name in a recipe.

    Raises:
        DataError: more records are bad; says how many of which objects, and why.
    """
    records = sum(entry.records for entry in objects)
    bad_count = sum(entry.quarantined for entry in objects)
    if bad_count <= limit * records:
        return
    worst = sorted(objects, key=lambda entry: (-entry.quarantined, entry.name))
    worst = [entry for entry in worst if entry.quarantined]
    lines = [
        f"{entry.name}: {entry.quarantined:,} of {entry.records:,} ({'; '.join(entry.reasons)})"
        for entry in worst[:MAX_OBJECTS]
    ]
    more = f"; and {len(worst) - MAX_OBJECTS} more files" if len(worst) > MAX_OBJECTS else ""
    raise DataError(
        f"{bad_count:,} of {records:,} records are bad, more than {setting} {limit:.4%}: "
        f"{'; '.join(lines)}{more}"
    )


def summarize_bad_records(objects: Sequence[Counts]) -> bytes:
    """Return the numbers of bad records as JSON, in total and for each object that has some.

    It is written even if there are none, so that the step's output folder is never empty.
    """
    counts_by_name = {
        entry.name: {
            "records": entry.records,
            "quarantined": entry.quarantined,
            "file": " ".join(entry.units),
        }
        for entry in sorted(objects, key=lambda entry: entry.name)
        if entry.quarantined
    }
    total = {
        "records": sum(entry.records for entry in objects),
        "quarantined": sum(entry.quarantined for entry in objects),
    }
    return json.dumps(total | {"objects": counts_by_name}, indent=1).encode()
