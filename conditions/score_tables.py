"""The scores of single examples, as Evaluate wrote them: two Parquet tables, joined by example.

The second table is the champion's, or a baseline's. The files are not trusted:
anything that is missing, damaged, not finite or not of the same examples is a ``GateError``, which
becomes a reason. Only the columns to compare are held in memory, at 8 bytes a number.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyarrow import parquet

from conditions.calibration_error import BLOCKS as CALIBRATION_BLOCKS
from conditions.calibration_error import estimate_calibration_error
from conditions.gate_check import Direction
from conditions.improvement import Groups, sum_into_blocks
from conditions.mean_tests import Floats
from trainyard.common.errors import GateError

CHALLENGER, CHAMPION = "challenger", "champion"
"""Tables of scores: of the judged model, and of the one that it is compared with."""
BASELINE = "baseline-"
"""Prefix of the name of a baseline's table of scores."""
MAX_SLICES = 1000
"""Maximum number of values of all slice columns together."""
NO_VALUE = "(none)"
"""Name of the slice of the examples that have no value."""
MOST_GROUPS = 2**12
"""If there are more groups, they are joined at random to this many. The joined groups' sums are
also independent, and the time to compute limits does not grow with the test split."""
OTHER = " of the other"
"""Suffix of the second table's columns in the joined table."""

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class TableRequest:
    """Request for a part of the tables of scores."""

    metrics: Mapping[str, Direction]
    """Metrics to compare with the champion's."""
    champion: str | None
    """ARN of the champion; None without one: then only the model's scores are read."""
    other: str | None = None
    """Name of the table of scores that is read in addition to the model's."""
    slices: bool = False
    calibration: bool = False
    range: Mapping[str, float] = field(default_factory=dict)
    """Largest difference of two values of a metric, by metric, according to the recipe."""
    clip: Mapping[str, float] = field(default_factory=dict)
    """Limit to which a group's difference is clipped, by metric."""
    level: float = 0.05
    """Significance level for which the bets of the exact test are chosen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceSums:
    """The examples of one slice, summed over groups."""

    slice: str
    """``column=value``."""
    examples: int
    groups: Groups


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreTables:
    """The joined tables: one row for each example, with both models' sums."""

    request: TableRequest
    rows: pa.Table
    description: Mapping[str, Any]
    """Metadata of the model's table."""
    other_description: Mapping[str, Any]
    totals: Mapping[str, tuple[float, float, float]]
    """(The model's sum, the other model's sum, the weight) of each metric, by name."""
    groups: int

    @property
    def examples(self) -> int:
        return self.rows.num_rows

    @property
    def in_order(self) -> bool:
        """Return whether groups with neighbouring numbers may be alike, and so not independent."""
        return self.description.get("groups_ordered") is True

    def compute_group_sums(self, metric: str) -> Groups:
        """Return the metric's difference and weight, summed over independent groups."""
        sums = _sum_by_keys(self._compute_differences(metric), ["group"])
        return self._sum_groups(metric, *_to_arrays(sums, "group", "difference", "weight"))

    def iter_slices(self, metric: str) -> Iterator[SliceSums]:
        """Yield the slices of all slice columns.

        Raises:
            GateError: the columns have more than ``MAX_SLICES`` values.
        """
        columns = [name for name in self.rows.column_names if name.startswith("slice.")]
        value_count = 0
        for column in columns:
            name = column.removeprefix("slice.")
            table = self._compute_differences(metric).append_column("slice", self.rows[column])
            sums = _sum_by_keys(table, ["slice", "group"]).sort_by("slice")
            values = sums["slice"].combine_chunks().dictionary_encode()
            codes = values.indices.to_numpy(zero_copy_only=False)
            value_count += len(values.dictionary)
            if value_count > MAX_SLICES:
                raise GateError(
                    f"the slices have more than {MAX_SLICES} values; {column} is an id, not a slice"
                )
            arrays = _to_arrays(sums, "group", "difference", "weight", "count")
            for code, value in enumerate(values.dictionary.to_pylist()):
                group, difference, weight, count = (array[codes == code] for array in arrays)
                yield SliceSums(
                    slice=f"{name}={value}",
                    examples=int(count.sum()),
                    groups=self._sum_groups(metric, group, difference, weight),
                )

    def measure_calibration(self, confidence: float) -> tuple[float, float]:
        """Return the expected calibration error and its one-sided upper limit.

        Raises:
            GateError: a probability or a label is out of range.
        """
        group, probability, label = _to_arrays(self.rows, "group", "probability", "label")
        blocks = _hash_ids(group) % np.uint64(CALIBRATION_BLOCKS)
        return estimate_calibration_error(
            blocks.astype(np.int64), probability.astype(float), label.astype(float), confidence
        )

    def _compute_differences(self, metric: str) -> pa.Table:
        """Return a table with the group, difference and weight of each example.

        The difference is positive if the model is better than the other one.
        """
        sign = 1 if self.request.metrics[metric] == "higher" else -1
        own_sums, other = self.rows[f"{metric}.sum"], self.rows[f"{metric}.sum{OTHER}"]
        difference = pc.multiply(pc.subtract(own_sums, other), float(sign))
        weight = self.rows[f"{metric}.weight"]
        return pa.table({"group": self.rows["group"], "difference": difference, "weight": weight})

    def _sum_groups(self, metric: str, group: Ints, difference: Floats, weight: Floats) -> Groups:
        """Return the sums of independent groups: clipped, and joined if ordered or too many."""
        counts = weight > 0
        # Clip before the groups are joined, because the range is that of one group.
        group, difference, weight = group[counts], difference[counts], weight[counts]
        largest = self._find_largest_difference(metric)
        clip = self.request.clip.get(metric)
        if clip is not None:
            difference = np.clip(difference, -clip * weight, clip * weight)
        if self.in_order:
            order = np.argsort(group)
            difference, weight = sum_into_blocks(difference[order], weight[order])
        elif len(group) > MOST_GROUPS:
            # Sorted by a hash of the id, because groups with neighbouring ids may be alike.
            order = np.argsort(_hash_ids(group))
            starts = np.arange(MOST_GROUPS) * len(group) // MOST_GROUPS
            difference = np.add.reduceat(difference[order], starts)
            weight = np.add.reduceat(weight[order], starts)
        return Groups(
            difference=difference, weight=weight, largest=largest, level=self.request.level
        )

    def _find_largest_difference(self, metric: str) -> float | None:
        """Return the largest possible difference of a group per unit of weight; None if unknown."""
        # Neighbours that may be alike are not independent bets.
        if self.in_order:
            return None
        ranges = {**self.request.range, **self.request.clip}
        # A workload's own range holds for each example. A group of many examples is far inside that
        # range, so that no bet would win. For such groups the recipe has to state a range.
        if metric not in ranges and self.groups == self.examples:
            stated_ranges = self.description.get("ranges")
            ranges = stated_ranges if isinstance(stated_ranges, dict) else {}
        return ranges.get(metric)


def read_score_tables(folder: Path, request: TableRequest) -> ScoreTables:
    """Read the score table of the model, and of the model that it is compared with, if any.

    Raises:
        GateError: a file is missing, damaged or not what ``TableRequest`` says; an example is in
            several groups of a table; the tables have different examples, or an example has
            different groups or weights in them; a number is missing, not finite, or beyond the
            declared range.
    """
    names = [CHALLENGER, *([request.other] if request.other else [])]
    if request.other is None and (folder / "champion.parquet").exists():
        raise GateError("champion.parquet: there are scores of a champion, but no champion")
    for name in names:
        if not (folder / f"{name}.parquet").is_file():
            raise GateError(f"{name}.parquet: is missing; Evaluate writes it")
    try:
        pairs = [_read_table(folder, name, request) for name in names]
        tables = [table for table, _ in pairs]
        if len(tables) > 1:
            rows = _join_tables(tables, request)
        else:
            # Without a second table, the model's own sums are used for it.
            rows = tables[0]
            for metric in request.metrics:
                rows = rows.append_column(f"{metric}.sum{OTHER}", rows[f"{metric}.sum"])
            rows = _convert_slices_to_text(rows)
    except (pa.ArrowException, OSError, ValueError, OverflowError, MemoryError) as error:
        text = " ".join(str(error).split())[:200]
        raise GateError(f"the scores cannot be read: {text}") from None
    read_tables = ScoreTables(
        request=request,
        rows=rows,
        description=pairs[0][1],
        other_description=pairs[1][1] if len(pairs) > 1 else {},
        totals={metric: _sum_metric(rows, metric) for metric in request.metrics},
        groups=pc.count_distinct(rows["group"]).as_py(),
    )
    for metric in request.metrics:
        _refuse_beyond_range(read_tables, metric)
    return read_tables


def _read_table(folder: Path, name: str, request: TableRequest) -> tuple[pa.Table, dict[str, Any]]:
    """Return the requested columns, and the file's metadata."""
    file = parquet.ParquetFile(folder / f"{name}.parquet", page_checksum_verification=True)
    description = _read_description(file.schema_arrow, name, request)
    columns = _list_columns(file.schema_arrow, name, request)
    table = file.read(columns)
    if not table.num_rows:
        raise GateError(f"{name}.parquet: holds no examples")
    for column in columns:
        if table[column].null_count and not column.startswith("slice."):
            raise GateError(f"the scores' column {column} lacks values")
    examples = pc.count_distinct(table["example"]).as_py()
    if examples != table.num_rows:
        table = _merge_copies(table, name, examples)
    return table, description


def _merge_copies(table: pa.Table, name: str, examples: int) -> pa.Table:
    """Return the table with one row for each example.

    Copies of a record, such as equal rows of a data table, are added up.

    Raises:
        GateError: an example is in several groups, so it would count as evidence more than once.
    """
    sums = [(c, "sum") for c in table.column_names if c.endswith((".sum", ".weight"))]
    other_columns = [c for c in table.column_names if not c.endswith((".sum", ".weight"))]
    firsts = [(c, "first") for c in other_columns if c not in ("example", "group")]
    for column in [c for c in other_columns if c.startswith("slice.")]:
        # Arrow has no aggregation "first" of a dictionary column, so it is cast to text.
        index = table.column_names.index(column)
        table = table.set_column(index, column, table[column].cast(pa.string()))
    # Without threads, because with them the rows have no order, and so no first one.
    merged_table = table.group_by(["example", "group"], use_threads=False).aggregate(sums + firsts)
    if merged_table.num_rows != examples:
        raise GateError(
            f"{name}.parquet: one example is in several groups, and would count as evidence more "
            "than once: give every example a unique name, and leave out copies"
        )
    names = [f"{column}_{how}" for column, how in sums + firsts]
    back = dict(zip(names, (column for column, _ in sums + firsts), strict=True))
    return merged_table.rename_columns(
        [back.get(column, column) for column in merged_table.column_names]
    )


def _read_description(schema: pa.Schema, model: str, request: TableRequest) -> dict[str, Any]:
    """Return the file's metadata after checking that it matches ``request``."""
    name = f"{model}.parquet"
    try:
        metadata = json.loads((schema.metadata or {})[b"trainyard"])
    except (KeyError, ValueError, RecursionError):
        raise GateError(f"{name}: lacks the metadata trainyard, which Evaluate writes") from None
    kind = (metadata.get("format"), metadata.get("model")) if isinstance(metadata, dict) else None
    if not isinstance(metadata, dict) or kind != (1, model):
        raise GateError(f"{name}: is not a table of scores of the {model} in format 1")
    champion = metadata.get("champion")
    if request.champion is not None and champion != request.champion:
        raise GateError(
            f"{name}: holds scores of champion {champion}, but the gate was given "
            f"{request.champion}"
        )
    directions = metadata.get("metrics")
    for metric, direction in request.metrics.items():
        stated_direction = directions.get(metric) if isinstance(directions, dict) else None
        if stated_direction != direction:
            raise GateError(
                f"{name}: for {metric}, {stated_direction} values are better; the recipe says "
                f"{direction}; a metric that is not a mean over examples has no scores"
            )
    return metadata


def _list_columns(schema: pa.Schema, name: str, request: TableRequest) -> list[str]:
    """Return the columns to read. Slices and predictions are only in the judged model's table."""
    metrics = request.metrics
    columns = ["example", "group", *(f"{m}.{part}" for m in metrics for part in ("sum", "weight"))]
    if name == CHALLENGER and request.slices:
        slices = [column for column in schema.names if column.startswith("slice.")]
        if not slices:
            raise GateError(f"{name}.parquet: has no slice; declare some in the recipe")
        columns += slices
    if name == CHALLENGER and request.calibration:
        columns += ["probability", "label"]
    for column in columns:
        if schema.names.count(column) != 1:
            count = schema.names.count(column)
            raise GateError(f"the scores have {count} columns {column}; expected one")
        _refuse_type(column, schema.field(column).type)
    return columns


def _refuse_type(name: str, stored_type: pa.DataType) -> None:
    """Raise GateError if a column of the scores has the wrong type."""
    expected_type = {"example": pa.int64(), "group": pa.int64()}.get(name)
    if name.startswith("slice."):
        kind = stored_type.value_type if pa.types.is_dictionary(stored_type) else stored_type
        right = pa.types.is_string(kind) or pa.types.is_large_string(kind)
    elif name == "probability":
        right = pa.types.is_floating(stored_type)
    elif name == "label":
        right = pa.types.is_integer(stored_type)
    else:
        right = stored_type == (expected_type or pa.float64())
    if not right:
        raise GateError(f"the scores' column {name} is {stored_type}")


def _join_tables(tables: list[pa.Table], request: TableRequest) -> pa.Table:
    """Join the rows of both tables, which must have the same examples, groups and weights."""
    own_table, other = tables
    own_table = _convert_slices_to_text(own_table)
    # Without threads, which would leave the rows in any order.
    rows = own_table.join(
        other, "example", join_type="inner", right_suffix=OTHER, use_threads=False
    )
    if not rows.num_rows == own_table.num_rows == other.num_rows:
        raise GateError(
            f"{request.other}.parquet: holds {other.num_rows} examples, {rows.num_rows} of the "
            f"{own_table.num_rows} of {CHALLENGER}.parquet; the two models were not scored on the "
            "same examples"
        )
    for name in ("group", *(f"{metric}.weight" for metric in request.metrics)):
        if not rows[name].equals(rows[f"{name}{OTHER}"]):
            raise GateError(
                f"{request.other}.parquet: its column {name} differs from {CHALLENGER}.parquet's; "
                "the two models were not scored on the same examples"
            )
    return rows


def _convert_slices_to_text(table: pa.Table) -> pa.Table:
    """Return the table with its slice columns converted to text."""
    for index, name in enumerate(table.column_names):
        if name.startswith("slice."):
            text = pc.fill_null(table[name].cast(pa.string()), NO_VALUE)
            table = table.set_column(index, name, text)
    return table


def _sum_metric(rows: pa.Table, metric: str) -> tuple[float, float, float]:
    """Return a metric's sums: the model's, the other model's, and the weights.

    Raises:
        GateError: a weight is negative, or a sum is not finite. Any bad row makes the sums bad.
    """
    columns = (f"{metric}.sum", f"{metric}.sum{OTHER}", f"{metric}.weight")
    own_total, other, weight = (float(pc.sum(rows[name]).as_py()) for name in columns)
    if not (pc.min(rows[f"{metric}.weight"]).as_py() >= 0 and np.isfinite(weight)):
        raise GateError(f"{metric}: a weight is negative or not a number")
    if not np.isfinite([own_total, other]).all():
        raise GateError(f"{metric}: a score is not finite")
    if weight <= 0:
        raise GateError(f"{metric}: the weights add up to 0")
    return own_total, other, weight


def _refuse_beyond_range(tables: ScoreTables, metric: str) -> None:
    """Check that no example's difference is beyond the declared range of the metric."""
    largest = tables.request.range.get(metric)
    if largest is None and metric not in tables.request.clip:
        largest = tables._find_largest_difference(metric)
    if largest is None:
        return
    difference, weight = _to_arrays(tables._compute_differences(metric), "difference", "weight")
    excess = np.abs(difference) - largest * weight
    worst = int(np.argmax(excess))
    if excess[worst] > 1e-6 * largest * weight[worst]:
        raise GateError(
            f"{metric}: an example's values differ by {abs(difference[worst]):.6g} on a weight of "
            f"{weight[worst]:g}, but their declared range is {largest:g}; correct gate.range"
        )


def _sum_by_keys(table: pa.Table, keys: list[str]) -> pa.Table:
    """Return the sums over rows with equal keys, and the number of these rows."""
    sums = table.group_by(keys, use_threads=False).aggregate(
        [("difference", "sum"), ("weight", "sum"), ("weight", "count")]
    )
    return sums.rename_columns([*keys, "difference", "weight", "count"])


def _to_arrays(table: pa.Table, *columns: str) -> list[NDArray[Any]]:
    return [table[name].to_numpy() for name in columns]


def _hash_ids(groups: Ints) -> NDArray[np.uint64]:
    """Return a hash of each group's id: id × 2⁶⁴ ÷ the golden ratio, mixed (Knuth, 6.4)."""
    golden = np.uint64(0x9E3779B97F4A7C15)
    mixed_ids = groups.astype(np.int64).view(np.uint64) * golden
    mixed_ids ^= mixed_ids >> np.uint64(32)
    return (mixed_ids * golden) >> np.uint64(32)
