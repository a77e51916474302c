"""Read the scores of single examples, as Evaluate wrote them: two Parquet files, side by side.

The second file is the champion's or a baseline's, which is read in the same way. The files are not
trusted: anything that is missing, damaged, not finite or not of the same examples is a
``GateError``, which becomes a reason. They are read in batches and added up at once.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import parquet

from conditions.gate_check import Direction
from conditions.group_sums import Batch, GroupSums, Wanted, in_order
from trainyard.common.errors import GateError

BATCH = 2**17
"""Rows per batch."""


def read(folder: Path, wanted: Wanted) -> GroupSums:
    """Read the model's table, and that of the wanted champion, baseline or full model.

    Raises:
        GateError: a file is missing, damaged or not what ``Wanted`` says; the two hold other
            examples, in another order or of other weight; a number is missing or not finite.
    """
    scores = GroupSums(wanted)
    names = [wanted.model, *([wanted.other] if wanted.other else [])]
    if wanted.other is None and (folder / "champion.parquet").exists():
        raise GateError("champion.parquet: there are scores of a champion, but no champion")
    for name in names:
        if not (folder / f"{name}.parquet").is_file():
            raise GateError(f"{name}.parquet: is missing; Evaluate writes it")
    try:
        files = [parquet.ParquetFile(folder / f"{n}.parquet", page_checksum_verification=True)
                 for n in names]  # fmt: skip
        scores.description, *others = (
            _description(file, name, wanted) for file, name in zip(files, names, strict=True)
        )
        scores.champion_description = others[0] if others else {}
        if scores.description.get("groups_ordered") is True:
            _columns(files[0], None, {})  # checks the group column's type
            columns = (batch.column("group") for batch in _rows(files[0], ["group"]))
            scores.starts = in_order(column.to_numpy() for column in columns)
        # Not in a generator: one that is left half-way is closed by the garbage collector, in
        # whatever thread it runs, and a pool that is shut down while a thread starts hangs.
        with ThreadPoolExecutor(len(files)) as threads:
            for batch in _batches(files, wanted, threads):
                scores.add(batch)
    except (pa.ArrowException, OSError, ValueError, OverflowError, MemoryError) as error:
        text = " ".join(str(error).split())[:200]
        raise GateError(f"the scores cannot be read: {text}") from None
    _refuse_nonsense(scores)
    return scores


def _refuse_nonsense(scores: GroupSums) -> None:
    """Refuse NaN and infinity, which any row passes on to the sums, and sums without weight."""
    if not scores.examples:
        raise GateError(f"{scores.wanted.model}.parquet: holds no examples")
    for metric, sums in scores.metrics.items():
        if not (np.isfinite(sums.difference).all() and np.isfinite(scores.totals[metric]).all()):
            raise GateError(f"{metric}: a score is not finite")
        if scores.totals[metric][2] <= 0:
            raise GateError(f"{metric}: the weights add up to nothing")


def _description(file: parquet.ParquetFile, model: str, wanted: Wanted) -> dict[str, Any]:
    """Return the file's metadata, after checking that it matches ``wanted``."""
    name = f"{model}.parquet"
    try:
        found = json.loads((file.schema_arrow.metadata or {})[b"trainyard"])
    except (KeyError, ValueError, RecursionError):
        raise GateError(f"{name}: does not say what it is; Evaluate writes its metadata") from None
    if not isinstance(found, dict) or (found.get("format"), found.get("model")) != (1, model):
        raise GateError(f"{name}: is not a table of scores of the {model} in format 1")
    champion = found.get("champion")
    if wanted.champion is not None and champion != wanted.champion:
        raise GateError(f"{name}: is of champion {champion}, the gate was given {wanted.champion}")
    directions = found.get("metrics")
    for metric, direction in wanted.metrics.items():
        stated = directions.get(metric) if isinstance(directions, dict) else None
        if stated != direction:
            raise GateError(
                f"{name}: for {metric}, {stated} values are better; the recipe says {direction}; "
                "a metric that is not a mean over examples has no scores"
            )
    return found


def _batches(
    files: Sequence[parquet.ParquetFile], wanted: Wanted, threads: ThreadPoolExecutor
) -> Iterator[Batch]:
    """Iterate over both files in lockstep.

    Raises:
        GateError: see ``read``.
    """
    streams = [
        _ahead(_rows(file, _columns(file, wanted if place == 0 else None, wanted.metrics)), threads)
        for place, file in enumerate(files)
    ]
    for parts in _in_step(streams, wanted):
        yield _batch(parts, wanted)


def _columns(
    file: parquet.ParquetFile, wanted: Wanted | None, metrics: Mapping[str, Direction]
) -> list[str]:
    """Return the columns to read; ``wanted``: the judged model's, with slices and predictions."""
    names = ["example", "group", *(f"{m}.{part}" for m in metrics for part in ("sum", "weight"))]
    present = file.schema_arrow.names
    if wanted and wanted.slices:
        found = [name for name in present if name.startswith("slice.")]
        if not found:
            raise GateError(f"{wanted.model}.parquet: has no slice; declare some in the recipe")
        names += found
    if wanted and wanted.calibration:
        names += ["probability", "label"]
    for name in names:
        if present.count(name) != 1:
            raise GateError(f"the scores have {present.count(name)} columns {name}; expected one")
        _refuse_type(name, file.schema_arrow.field(name).type)
    return names


def _refuse_type(name: str, found: pa.DataType) -> None:
    expected = {"example": pa.int64(), "group": pa.int64()}.get(name)
    if name.startswith("slice."):
        kind = found.value_type if pa.types.is_dictionary(found) else found
        right = pa.types.is_string(kind) or pa.types.is_large_string(kind)
    elif name == "probability":
        right = pa.types.is_floating(found)
    elif name == "label":
        right = pa.types.is_integer(found)
    else:
        right = found == (expected or pa.float64())
    if not right:
        raise GateError(f"the scores' column {name} is {found}")


def _rows(file: parquet.ParquetFile, columns: list[str]) -> Iterator[pa.RecordBatch]:
    """Iterate over the row groups one by one: else pyarrow 25 keeps the whole file in memory."""
    for number in range(file.num_row_groups):
        for batch in file.iter_batches(BATCH, row_groups=[number], columns=columns):
            for name in columns:
                if batch.column(name).null_count and not name.startswith("slice."):
                    raise GateError(f"the scores' column {name} lacks values")
            yield batch


def _ahead(
    batches: Iterator[pa.RecordBatch], threads: ThreadPoolExecutor
) -> Iterator[pa.RecordBatch]:
    """Iterate over the batches; the next one is decoded while the current one is added up."""
    following = threads.submit(next, batches, None)
    while (batch := following.result()) is not None:
        following = threads.submit(next, batches, None)
        yield batch


def _in_step(
    streams: Sequence[Iterator[pa.RecordBatch]], wanted: Wanted
) -> Iterator[list[pa.RecordBatch]]:
    """Iterate over batches of equal lengths, however the files are cut.

    Raises:
        GateError: one stream ends before another.
    """
    heads = [next(stream, None) for stream in streams]
    while len(here := [head for head in heads if head is not None]) == len(heads):
        rows = min(map(len, here))
        if rows:
            yield [head.slice(0, rows) for head in here]
        rests = [head.slice(rows) for head in here]
        pairs = zip(streams, rests, strict=True)
        heads = [rest if len(rest) else next(stream, None) for stream, rest in pairs]
    if here:
        raise GateError(
            f"{wanted.other}.parquet: holds another number of examples than {wanted.model}.parquet"
        )


def _batch(parts: Sequence[pa.RecordBatch], wanted: Wanted) -> Batch:
    first, other = parts[0], parts[-1]
    same = ["example", "group", *(f"{metric}.weight" for metric in wanted.metrics)]
    _refuse_others(parts, same, wanted)
    metrics = {}
    for metric in wanted.metrics:
        weight = _floats(first, f"{metric}.weight")
        if not (weight >= 0).all():
            raise GateError(f"{metric}: a weight is negative or not a number")
        metrics[metric] = (_floats(first, f"{metric}.sum"), _floats(other, f"{metric}.sum"), weight)
    slices = {
        name.removeprefix("slice."): _dictionary(first.column(name))
        for name in first.schema.names
        if name.startswith("slice.")
    }
    predictions = (_floats(first, "probability"), _floats(first, "label"))\
        if wanted.calibration else None  # fmt: skip
    groups = first.column("group").to_numpy()
    return Batch(groups=groups, metrics=metrics, slices=slices, predictions=predictions)


def _refuse_others(parts: Sequence[pa.RecordBatch], names: Sequence[str], wanted: Wanted) -> None:
    """Both models must have been scored on the same examples: same ids, groups and weights."""
    for part in parts[1:]:
        for name in names:
            if not part.column(name).equals(parts[0].column(name)):
                raise GateError(
                    f"{wanted.other}.parquet: its column {name} differs from "
                    f"{wanted.model}.parquet's; the two models were not scored on the same examples"
                )


def _floats(batch: pa.RecordBatch, name: str) -> Any:
    return batch.column(name).to_numpy(zero_copy_only=False)


def _dictionary(column: pa.Array) -> pa.DictionaryArray:
    return column if isinstance(column, pa.DictionaryArray) else column.dictionary_encode()
