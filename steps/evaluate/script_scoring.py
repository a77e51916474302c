"""Score one model with the user's script: open its archive, run the script, write the gate's table.

A script may write any number of rows in any order. They are distributed over PARTS files by the
highest bits of ``example``, and each file is sorted separately. So memory holds 1/PARTS of the
rows.
"""

import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from steps.evaluate import script_report
from steps.evaluate.evaluation_document import Artifact, Metric
from steps.evaluate.model_folder import find_model_folder, fingerprint_model
from steps.evaluate.score_table import TYPES, Scores, write_scores
from steps.evaluate.script_columns import (
    ROW,
    convert_to_gate_columns,
    find_rows_file,
    name_row_unit,
    read_pieces,
)
from steps.evaluate.script_process import Script
from training.scores import Block, Metrics, compute_ratios
from trainyard.common.errors import DataError, suggest_nearest

BITS = 6
PARTS = 1 << BITS


class SameExampleError(DataError):
    """Two rows have the same example; ``rows`` are their numbers."""

    def __init__(self, first: int, second: int) -> None:
        super().__init__(f"rows {first} and {second} name one example")
        self.rows = (first, second)


def sort_rows(blocks: Iterable[Block], scratch: Path) -> Iterator[Block]:
    """Yield the rows sorted by ``example``, without the column ROW.

    Args:
        scratch: a folder on a disk with space for a copy of all rows.

    Raises:
        SameExampleError: an example occurs twice.
    """
    with tempfile.TemporaryDirectory(dir=scratch) as name:
        parts = [Path(name) / f"{part}.rows" for part in range(PARTS)]
        _spill_rows(blocks, parts)
        yield from map(_sort_part, filter(Path.exists, parts))


def _spill_rows(blocks: Iterable[Block], parts: list[Path]) -> None:
    """Distribute the rows over the files ``parts`` by the highest bits of ``example``."""
    with ExitStack() as stack:
        writers: dict[int, pa.RecordBatchStreamWriter] = {}
        for block in blocks:
            # By the highest bits, as unsigned numbers, so that the order of the files is that of
            # the ids.
            number = block["example"].view(np.uint64) >> np.uint64(64 - BITS)
            order = np.argsort(number, kind="stable")
            batch = pa.record_batch(
                {n: _build_column(n, values[order]) for n, values in block.items()}
            )
            begin = 0
            for part, rows in enumerate(np.bincount(number.astype(np.int64), minlength=PARTS)):
                if rows and part not in writers:
                    file = stack.enter_context(parts[part].open("wb"))
                    writer = pa.ipc.new_stream(file, batch.schema)
                    writers[part] = stack.enter_context(writer)
                if rows:
                    writers[part].write_batch(batch.slice(begin, rows))
                begin += rows


def _sort_part(path: Path) -> Block:
    """Return a file's rows sorted by ``example``; raise SameExampleError for a repeated one."""
    with path.open("rb") as file, pa.ipc.open_stream(file) as stream:
        table = stream.read_all()
    block = {name: table.column(name).to_numpy() for name in table.column_names}
    order = np.argsort(block["example"].view(np.uint64), kind="stable")
    block = {name: values[order] for name, values in block.items()}
    rows, example = block.pop(ROW), block["example"]
    if (duplicate_indices := np.flatnonzero(example[1:] == example[:-1])).size:
        raise SameExampleError(int(rows[duplicate_indices[0]]), int(rows[duplicate_indices[0] + 1]))
    return block


def _build_column(name: str, values: np.ndarray) -> pa.Array:
    if name.startswith("slice."):
        return pa.array(values, pa.string())
    return pa.array(values, pa.int64() if name == ROW else TYPES.get(name, pa.float64()))


BASELINE = "baseline"


@dataclass(frozen=True, slots=True)
class ScoredModel:
    """A model that was scored by the script."""

    files: Path
    """Folder with the model's files."""
    output: Path
    """Folder to which the script wrote."""
    source: Path
    """File of its rows in that folder."""
    table: Path
    """File of the gate's table."""
    artifact: Artifact
    metrics: dict[str, Metric]
    means: tuple[str, ...]
    """Metrics that its rows have, and of which a mean is computed."""
    grouped: bool
    """Whether its rows have groups of their own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scoring:
    """Settings for scoring models with a script."""

    root: Path
    """Folder of the job, /opt/ml."""
    script: Script
    metrics: Mapping[str, str]
    """Mapping of metric to ``lower`` or ``higher``, whichever values are better."""
    slices: Sequence[str]
    """Slices that the rows must have."""
    champion: str | None
    """ARN of the champion; None if there is none."""
    test_fingerprint: str

    def score_model(self, name: str, archive_folder: Path) -> ScoredModel:
        """Run the script on the model whose archive is in the folder, and write its table of
        scores.

        Args:
            name: name of the table: ``challenger`` or ``champion``.

        Raises:
            DataError: the archive is damaged, the script failed, or its rows are not as required.
        """
        print(f"scoring the {name}", flush=True)
        work = self.root / "processing/work" / name
        work.mkdir(parents=True)
        files, output = find_model_folder(archive_folder, work / "model"), work / "output"
        artifact = fingerprint_model(archive_folder)
        self.script.run(files, output)
        source = find_rows_file(output, "scores")
        if source is None:
            raise DataError(
                f"{self.script.entry}: wrote neither scores.jsonl nor scores.parquet to "
                "$SM_OUTPUT_DATA_DIR; write one, with a row per example"
            )
        columns = _list_columns(source)
        means = tuple(metric for metric in self.metrics if {metric, f"{metric}.sum"} & {*columns})
        others = script_report.read_metrics(
            output, [metric for metric in self.metrics if metric not in means]
        )
        _check_complete(source.name, self.metrics, {*means, *others}, columns)
        table = self._build_table_path(name)
        own_metrics = self._write_table(source, table, artifact["sha256"])
        metrics: dict[str, Any] = {**own_metrics, **others}
        return ScoredModel(
            files=files,
            output=output,
            source=source,
            table=table,
            artifact=artifact,
            metrics={metric: metrics[metric] for metric in self.metrics},
            means=means,
            grouped="group" in columns,
        )

    def compute_baselines(
        self, challenger: ScoredModel, names: Iterable[str]
    ) -> dict[str, dict[str, float | None]]:
        """Return the metrics, {baseline: {metric: value}}, of the baselines that the script wrote
        with the challenger's rows; write their tables of scores.

        Raises:
            DataError: a baseline of ``names`` is missing, or a metric is missing from its rows.
        """
        values: dict[str, dict[str, float | None]] = {}
        for name in names:
            source = find_rows_file(challenger.output, f"{BASELINE}.{name}")
            if source is None:
                raise DataError(
                    f"{self.script.entry}: wrote no {BASELINE}.{name}.jsonl or .parquet to "
                    "$SM_OUTPUT_DATA_DIR, but evaluate.baselines lists it; write one like "
                    "scores.jsonl, or remove it there and in gate.below_baseline"
                )
            means = {column.removesuffix(".sum") for column in _list_columns(source)}
            _check_complete(source.name, challenger.means, means, ())
            metrics = self._write_table(source, self._build_table_path(f"{BASELINE}-{name}"), None)
            values[name] = {metric: entry["value"] for metric, entry in metrics.items()}
        return values

    def _build_table_path(self, name: str) -> Path:
        return self.root / f"processing/output/scores/{name}.parquet"

    def _write_table(self, source: Path, table: Path, artifact: str | None) -> Metrics:
        """Write the script's rows as the gate's table; return the metrics computed from it.

        ``artifact``: SHA-256 of the model's archive.
        """
        header = {
            "model": table.stem,
            "champion": self.champion,
            "test_fingerprint": self.test_fingerprint,
            "artifact_sha256": artifact,
            "metrics": dict(self.metrics),
            "groups_ordered": False,
        }
        blocks = (
            convert_to_gate_columns(piece, list(self.metrics), self.slices)
            for piece in read_pieces(source)
        )
        try:
            write_scores(table, sort_rows(blocks, self.root / "processing/work"), header)
        except SameExampleError as error:
            raise _describe_duplicate(source, error) from None
        return compute_ratios(Scores(table))


def _describe_duplicate(source: Path, error: SameExampleError) -> DataError:
    """Return the error about a repeated example, with its name and both rows."""
    rows = " and ".join(map(str, sorted(error.rows)))
    names = " and ".join(sorted({repr(_find_example(source, row)) for row in error.rows}))
    return DataError(
        f"{source.name}: {name_row_unit(source)}s {rows}: column example: both are {names}; one "
        "row per example: add up what belongs to one, or name its parts differently"
    )


def _find_example(source: Path, row: int) -> Any:
    """Return the value of column ``example`` in row number ``row``, which must exist."""
    return next(
        piece.columns["example"][piece.numbers.index(row)]
        for piece in read_pieces(source)
        if row in piece.numbers
    )


def _list_columns(source: Path) -> list[str]:
    """Return the names of the file's columns; raise DataError if it has no row."""
    first = next(read_pieces(source), None)
    if first is None:
        raise DataError(f"{source.name}: contains no rows; the test data has no example to score")
    return list(first.columns)


def _check_complete(
    file: str, metrics: Iterable[str], names: Iterable[str], columns: Sequence[str]
) -> None:
    """Raise DataError unless ``names`` contains every metric.

    ``columns``: the rows' columns, among which the error suggests the nearest name.
    """
    for metric in metrics:
        if metric not in names:
            raise DataError(
                f"{file}: has no column {metric}, which evaluate.metrics lists, nor {metric}.sum "
                f"and {metric}.weight"
                + (
                    f", and metrics.json has no {metric}; {suggest_nearest(metric, list(columns))}"
                    if columns
                    else ", as the model's rows have"
                )
            )
