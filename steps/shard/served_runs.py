"""Give the records of this instance's sorted runs to the instances that survey and pack them."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from steps.shard import sorted_runs
from steps.shard.shard_progress import RunFile
from steps.shard.survey import ranges


class ServedRuns:
    """Sorted runs, each with the first folder of its records ("" where it does not matter)."""

    def __init__(self, scratch: Path, runs: Sequence[tuple[str, RunFile]]) -> None:
        self.marked = False
        """True if it is known which records are left out."""
        self._folders = [folder for folder, _ in runs]
        self._paths = [scratch / run.name for _, run in runs]
        self._starts = np.cumsum([0, *(run.records for _, run in runs)])
        self._out: np.ndarray | None = None
        """Whether each record is left out, all runs after one another; None: no one is."""
        self._mask = scratch / "left-out"

    def schema(self, keys: bool) -> pa.Schema:
        """Return the schema of the keys, or of keys and content."""
        if keys:
            return sorted_runs.NO_KEYS.schema
        return sorted_runs.opened(self._paths[0]).schema if self._paths else pa.schema([])

    def keys(self, count: int, first: int, last: int) -> Iterator[tuple[pa.RecordBatch, bytes]]:
        """Yield keys, and the number of records of each run, for the ranges of hashes from
        ``first`` to before ``last`` of ``count``.
        """
        for batch, counts in sorted_runs.keys(self._paths, ranges(count, first, last)):
            yield batch, counts.tobytes()

    def mark(self, count: int, first: int, last: int, mask: bytes) -> None:
        """Leave records out: ``mask`` has a bit for each that ``keys`` yields; each range begins a
        byte.
        """
        if not any(mask):
            return
        if self._out is None:  # a file, since there may be more records than memory
            self._out = np.memmap(self._mask, bool, "w+", shape=int(self._starts[-1]))
        bits, place = np.frombuffer(mask, np.uint8), 0
        for low, high in ranges(count, first, last):
            spans = [sorted_runs.opened(path).places(low, high) for path in self._paths]
            records = sum(stop - start for start, stop in spans)
            out = np.unpackbits(bits[place : place + -(-records // 8)], count=records)
            place, at = place + -(-records // 8), 0
            for before, (start, stop) in zip(self._starts.tolist(), spans, strict=False):
                self._out[before + start : before + stop] = out[at : at + stop - start]
                at += stop - start

    def content(self, folder: str, low: int, high: int) -> Iterator[pa.RecordBatch]:
        """Yield keys and content of the records of a first folder in a range of hashes that are
        not left out, run by run.
        """
        for number, path in enumerate(self._paths):
            if self._folders[number] != folder:
                continue
            run = sorted_runs.opened(path)
            start, stop = run.places(low, high)
            if start == stop:
                continue
            records = run.between(low, high)
            if self._out is not None:
                before = int(self._starts[number])
                out = np.asarray(self._out[before + start : before + stop])
                if out.any():
                    records = records.filter(pa.array(~out))
            yield records
            run.forget()
