"""One model scored by the script: its archive opened, the script run, the gate's tables written."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from steps.evaluate.document import Artifact, Metric
from steps.evaluate.scores import Scores, write
from steps.evaluate.unpacked import evidence, files_of
from steps.evaluate_script import told
from steps.evaluate_script.columns import scored
from steps.evaluate_script.files import found, pieces, row_name
from steps.evaluate_script.ordered import SameExampleError, ordered
from steps.evaluate_script.script import Script
from training.scores import Metrics, ratios
from trainyard.common.errors import DataError
from trainyard.common.nearest import nearest

BASELINE = "baseline"


@dataclass(frozen=True, slots=True)
class Scored:
    """A model that the script has been run on."""

    files: Path
    """The folder with its files."""
    output: Path
    """What the script wrote."""
    table: Path
    """The gate's."""
    artifact: Artifact
    metrics: dict[str, Metric]
    means: tuple[str, ...]
    """The metrics that its rows have."""
    grouped: bool
    """Whether its rows have groups of their own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scoring:
    """What both models are scored with."""

    root: Path
    """/opt/ml"""
    script: Script
    metrics: Mapping[str, str]
    """Metric → which values are better."""
    slices: Sequence[str]
    """Those that the rows must have."""
    champion: str | None
    """Its ARN; None where there is none."""
    test_fingerprint: str

    def of(self, name: str, archive_folder: Path) -> Scored:
        """Run the script on the model whose archive lies in the folder.

        Args:
            name: ``challenger`` or ``champion``: the table's.

        Raises:
            DataError: the archive is damaged, the script failed, or its rows are not what they
                should be.
        """
        print(f"scoring the {name}", flush=True)
        work = self.root / "processing/work" / name
        work.mkdir(parents=True)
        files, output = files_of(archive_folder, work / "model"), work / "output"
        artifact = evidence(archive_folder)
        self.script.run(files, output)
        source = found(output, "scores")
        if source is None:
            raise DataError(
                f"{self.script.entry}: left no scores.jsonl and no scores.parquet in "
                "$SM_OUTPUT_DATA_DIR; write one, a row an example"
            )
        given = _columns(source)
        means = tuple(metric for metric in self.metrics if {metric, f"{metric}.sum"} & {*given})
        others = told.metrics(output, [metric for metric in self.metrics if metric not in means])
        _check_complete(source.name, self.metrics, {*means, *others}, given)
        table = self._table(name)
        measured: dict[str, Any] = {**self._written(source, table, artifact["sha256"]), **others}
        return Scored(
            files=files,
            output=output,
            table=table,
            artifact=artifact,
            metrics={metric: measured[metric] for metric in self.metrics},
            means=means,
            grouped="group" in given,
        )

    def baselines(
        self, challenger: Scored, names: Iterable[str]
    ) -> dict[str, dict[str, float | None]]:
        """Baseline → metric → value, of those that the script wrote beside the challenger's rows.

        Raises:
            DataError: one of ``names`` is not there, or its rows lack a metric.
        """
        values: dict[str, dict[str, float | None]] = {}
        for name in names:
            source = found(challenger.output, f"{BASELINE}.{name}")
            if source is None:
                raise DataError(
                    f"{self.script.entry}: left no {BASELINE}.{name}.jsonl or .parquet in "
                    "$SM_OUTPUT_DATA_DIR, and evaluate.baselines lists it; write one like "
                    "scores.jsonl, or remove it there and in gate.below_baseline"
                )
            _check_complete(source.name, challenger.means, _means(_columns(source)), ())
            measured = self._written(source, self._table(f"{BASELINE}-{name}"), None)
            values[name] = {metric: one["value"] for metric, one in measured.items()}
        return values

    def _table(self, name: str) -> Path:
        return self.root / f"processing/output/scores/{name}.parquet"

    def _written(self, source: Path, table: Path, artifact: str | None) -> Metrics:
        """Write the gate's table of the script's rows; the metrics are read off it.

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
        blocks = (scored(piece, list(self.metrics), self.slices) for piece in pieces(source))
        try:
            write(table, ordered(blocks, source.parent), header)
        except SameExampleError as error:
            rows = " and ".join(map(str, sorted(error.rows)))
            names = " and ".join(sorted({repr(_example(source, row)) for row in error.rows}))
            raise DataError(
                f"{source.name}: {row_name(source)}s {rows}: column example: both are {names}; one "
                "row an example: add up what belongs to one, or name its parts differently"
            ) from None
        return ratios(Scores(table))


def _example(source: Path, row: int) -> Any:
    """The example of a row that is known to be there."""
    return next(
        piece.columns["example"][piece.numbers.index(row)]
        for piece in pieces(source)
        if row in piece.numbers
    )


def _columns(source: Path) -> list[str]:
    first = next(pieces(source), None)
    if first is None:
        raise DataError(f"{source.name}: holds no row; the test data gave no example to score")
    return list(first.columns)


def _means(columns: Iterable[str]) -> set[str]:
    return {name.removesuffix(".sum") for name in columns}


def _check_complete(
    file: str, metrics: Iterable[str], there: Iterable[str], given: Sequence[str]
) -> None:
    """``given``: the columns, of which one may be a metric's misspelt name."""
    for metric in metrics:
        if metric not in there:
            raise DataError(
                f"{file}: has no column {metric}, which evaluate.metrics lists, nor {metric}.sum "
                f"and {metric}.weight"
                + (
                    f", and metrics.json has no {metric}; {nearest(metric, list(given))}"
                    if given
                    else ", as the model's rows have"
                )
            )
