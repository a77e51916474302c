"""Write down bad records with their place and the reason; too many of them end the job."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from steps.shard.survey import Counts
from trainyard.common import atomic_file
from trainyard.common.errors import DataError

if TYPE_CHECKING:
    from steps.shard.readers import Bad

EARLY = 10_000  # records after which a file that is mostly bad is given up
MAX_OBJECTS = 10  # most files named in a message
REASONS = 3  # first reasons kept for each file


class Quarantine:
    """The bad records of one raw object, streamed into ``<folder>/<unit>.jsonl``.

    A line is ``{"source": …, "line": …, "reason": …, "excerpt": …}``. Without bad records there is
    no file.
    ``source`` is the raw object's name, or its files' names, if each file is a record.
    """

    def __init__(self, folder: Path, unit: str, source: str | Sequence[str], limit: float) -> None:
        self.count = 0
        self.reasons: list[str] = []
        self.path = folder / f"{unit}.jsonl"
        self._source, self._limit = source, limit
        self._draft: atomic_file.Draft | None = None

    def add(self, bad: Sequence["Bad"], records: int) -> None:
        """Write ``bad`` down. ``records``: good and bad ones of the object so far.

        Raises:
            DataError: the object is mostly bad: most likely it is of another kind.
        """
        for bad_record in bad:
            self._write(bad_record)
        self.count += len(bad)
        if records >= EARLY and self.count > max(0.5, self._limit) * records:
            raise DataError(
                f"{self._name}: {self.count:,} of its first {records:,} records are bad "
                f"({'; '.join(self.reasons)}); is it of the kind that its name says?"
            )

    @property
    def _name(self) -> str:
        return self._source if isinstance(self._source, str) else f"{self._source[0]} …"

    def _write(self, bad_record: "Bad") -> None:
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
        """Close the file, which then appears under its name."""
        if self._draft is not None:
            self._draft.finish()

    def discard(self) -> None:
        """Delete the file after the object failed."""
        if self._draft is not None:
            self._draft.discard()


def check_share(
    objects: Sequence[Counts], limit: float, setting: str = "shard.max_bad_share"
) -> None:
    """Check that few enough of the records are bad; ``setting`` is the limit's name in a recipe.

    Raises:
        DataError: more than ``limit`` of them are; says how many of which objects, and why.
    """
    records = sum(entry.records for entry in objects)
    bad = sum(entry.quarantined for entry in objects)
    if bad <= limit * records:
        return
    worst = sorted(objects, key=lambda entry: (-entry.quarantined, entry.name))
    worst = [entry for entry in worst if entry.quarantined]
    lines = [
        f"{entry.name}: {entry.quarantined:,} of {entry.records:,} ({'; '.join(entry.reasons)})"
        for entry in worst[:MAX_OBJECTS]
    ]
    more = f"; and {len(worst) - MAX_OBJECTS} more files" if len(worst) > MAX_OBJECTS else ""
    raise DataError(
        f"{bad:,} of {records:,} records are bad, more than {setting} {limit:.4%}: "
        f"{'; '.join(lines)}{more}"
    )


def summary(objects: Sequence[Counts]) -> bytes:
    """Return JSON of the number of bad records, for each object that has some.

    It is written even without bad records, so that the step's output folder is never empty.
    """
    bad = {
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
    return json.dumps(total | {"objects": bad}, indent=1).encode()
