"""Tests of rows that a user's script wrote, against a naive reading, and of errors in them."""

import hashlib
import json
import math
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steps.evaluate import script_columns as files_module
from steps.evaluate.score_table import Scores, write_scores
from steps.evaluate.script_columns import (
    convert_to_gate_columns,
    find_rows_file,
    hash_example_ids,
    read_pieces,
)
from steps.evaluate.script_scoring import SameExampleError, sort_rows
from training.scores import compute_ratios
from trainyard.common.errors import DataError

METRICS = {"accuracy": "higher", "log_loss": "lower"}
numbers = st.floats(-1e6, 1e6, allow_nan=False)
weights = st.floats(0.125, 1e3)
rows = st.lists(
    st.fixed_dictionaries(
        {
            "example": st.one_of(st.integers(), st.text(max_size=8)),
            "group": st.one_of(st.integers(0, 3), st.sampled_from(["a", "b"])),
            "slice.kind": st.sampled_from(["x", "y", None, 7]),
            "accuracy": st.booleans(),
            "log_loss.sum": numbers,
            "log_loss.weight": weights,
        }
    ),
    min_size=1,
    max_size=30,
    unique_by=lambda row: str(row["example"]),
)


def naive_id(value) -> int:
    text = str(value).encode("utf-8", "surrogatepass")
    digest = hashlib.blake2b(text, digest_size=8).digest()
    return int.from_bytes(digest, "little", signed=True)


def jsonl(folder: Path, rows, name: str = "scores") -> Path:
    """Write the rows; a blank line is none."""
    path = folder / f"{name}.jsonl"
    path.write_text("\n" + "".join(json.dumps(row) + "\n" for row in rows))
    return path


def table(path: Path, slices=(), metrics=METRICS) -> Path:
    """The gate's table of the rows in ``path``."""
    out = path.parent / f"{path.suffix[1:]}/challenger.parquet"
    blocks = (convert_to_gate_columns(piece, list(metrics), slices) for piece in read_pieces(path))
    write_scores(out, sort_rows(blocks, path.parent), {"metrics": metrics})
    return out


@given(rows=rows, size=st.integers(1, 7))
def test_the_gates_table_is_a_naive_readings(rows, size, tmp_path_factory):
    folder = tmp_path_factory.mktemp("rows")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(files_module, "ROWS", size)
        read = pq.read_table(table(jsonl(folder, rows), ["kind"])).to_pylist()
    expected = sorted(
        (
            {
                "example": naive_id(row["example"]),
                "group": naive_id(row["group"]),
                "slice.kind": None if row["slice.kind"] is None else str(row["slice.kind"]),
                "accuracy.sum": float(row["accuracy"]),
                "accuracy.weight": 1.0,
                "log_loss.sum": row["log_loss.sum"],
                "log_loss.weight": row["log_loss.weight"],
            }
            for row in rows
        ),
        key=lambda row: row["example"] % 2**64,
    )
    assert read == expected


@settings(max_examples=15, deadline=None)
@given(rows=rows, seed=st.integers(0, 2**32 - 1))
def test_neither_the_form_nor_the_order_matters_and_a_metric_is_its_sums_over_its_weights(
    rows, seed, tmp_path_factory
):
    folder = tmp_path_factory.mktemp("rows")
    order = np.random.default_rng(seed).permutation(len(rows))
    named = [rows[i] for i in order]
    kinds = [None if row["slice.kind"] is None else str(row["slice.kind"]) for row in named]
    columns = {
        "example": pa.array([str(row["example"]) for row in named]),
        "group": pa.array([str(row["group"]) for row in named]),
        "slice.kind": pa.array(kinds, pa.string()).dictionary_encode(),
        **{n: pa.array([row[n] for row in named])
           for n in ("accuracy", "log_loss.sum", "log_loss.weight")},
    }  # fmt: skip
    ours = table(jsonl(folder, rows))
    metrics = compute_ratios(Scores(ours))
    above, below = (math.fsum(r[f"log_loss.{p}"] for r in rows) for p in ("sum", "weight"))
    scale = math.fsum(abs(row["log_loss.sum"]) for row in rows) / below
    assert metrics["log_loss"]["value"] == pytest.approx(above / below, abs=1e-12 * (1 + scale))
    right = sum(row["accuracy"] for row in rows) / len(rows)
    assert metrics["accuracy"]["value"] == pytest.approx(right)
    try:
        pq.write_table(pa.table(columns), folder / "scores.parquet", row_group_size=5)
    except UnicodeEncodeError:  # Parquet's text is UTF-8, JSON's may be half a character
        return
    theirs = table(folder / "scores.parquet")
    assert pq.read_table(ours).to_pylist() == pq.read_table(theirs).to_pylist()


GOOD = {"example": "a", "accuracy": 1, "log_loss": 0.5}
HALF = {"example": 1, "accuracy": 1, "log_loss.sum": 1}
FAULTS = [
    ([GOOD, GOOD | {"example": "b", "log_loss": float("nan")}],
     "scores.jsonl: line 2: column log_loss: is nan; expected a finite number"),
    ([GOOD | {"accuracy": "1"}], "line 1: column accuracy: is '1'; expected a finite number"),
    ([GOOD | {"log_loss": 10**400}], "column log_loss: is 1000"),
    ([GOOD | {"accuracy": None}], "column accuracy: is None"),
    ([HALF | {"log_loss.weight": -1}],
     "column log_loss.weight: is -1; expected a finite number of 0 or more"),
    ([HALF],
     "metric log_loss has columns log_loss.sum; write log_loss alone, or log_loss.sum and"),
    ([{"accuracy": 1, "log_loss": 1}], "has no column example"),
    ([GOOD | {"example": 1.5}], "column example: is 1.5; expected a string or an integer"),
    ([GOOD | {"grup": 1}], "unknown column grup; nearest valid name: group"),
    ([GOOD, {"example": "b", "accuracy": 1}], "line 2: lacks log_loss, unlike the lines before"),
    ([GOOD, "{'example': 1}"], "line 2: is not JSON"),
    ([[1, 2]], "line 1: is [1, 2]; expected an object"),
    ([GOOD | {"probability": 1.5, "label": 1}],
     "column probability: is 1.5; expected a finite number from 0 to 1"),
    ([GOOD | {"probability": 0.5, "label": 2}], "column label: is 2; expected 0 or 1"),
    ([GOOD | {"probability": 0.5}], "only one of probability and label exists"),
]  # fmt: skip


@pytest.mark.parametrize(("rows", "expected"), FAULTS)
def test_a_fault_is_named_by_file_row_column_and_value(rows, expected, tmp_path):
    lines = [row if isinstance(row, str) else json.dumps(row) for row in rows]
    (tmp_path / "scores.jsonl").write_text("\n".join(lines) + "\n")
    with pytest.raises(DataError) as error:
        table(tmp_path / "scores.jsonl")
    assert expected in str(error.value)


def test_two_rows_of_one_example_are_told_and_a_slice_must_be_there(tmp_path):
    path = jsonl(tmp_path, [GOOD | {"example": name} for name in ("a", 7, "b", "7")])
    with pytest.raises(SameExampleError) as error:
        table(path)
    assert sorted(error.value.rows) == [3, 5]
    with pytest.raises(DataError, match="no column slice.kind, and evaluate.slices lists kind"):
        table(path, ["kind"])
    assert hash_example_ids([7, "7", "é"]).tolist() == [naive_id(7), naive_id(7), naive_id("é")]
    assert hash_example_ids([]).dtype == np.int64


def test_a_parquet_file_that_lacks_a_value_or_cannot_be_read_is_named(tmp_path):
    path = tmp_path / "scores.parquet"
    values = {"example": [1, 2], "accuracy": [1.0, None], "log_loss": [0.1, 0.2]}
    pq.write_table(pa.table(values), path)
    with pytest.raises(DataError, match=r"scores.parquet: row 2: column accuracy: is None"):
        table(path)
    rows = pd.DataFrame([GOOD, GOOD | {"example": "b"}, GOOD | {"example": "c"}])
    rows[rows.example != "b"].to_parquet(path)  # pandas stores its index beside the columns
    assert len(pq.read_table(table(path))) == 2
    path.write_bytes(b"PAR1 no")
    with pytest.raises(DataError, match=r"scores.parquet: is not a readable Parquet file"):
        table(path)
    jsonl(tmp_path, [GOOD])
    with pytest.raises(DataError, match=r"scores.jsonl and scores.parquet: both exist"):
        find_rows_file(tmp_path, "scores")
