"""Hashes and splits: functions of the values alone, whatever batch or machine they come in."""

import hashlib

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pandas.util import hash_array

from steps.shard.duplicate_records import mark_kept_records
from steps.shard.record_hashes import (
    LONG,
    assign_splits,
    combine_hashes,
    compute_split,
    hash_column,
)
from steps.shard.shard_plan import SPLITS

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
long_texts = st.integers(LONG - 3, LONG + 3).map(lambda size: "é" + "x" * (size - 2))
strings = st.lists(st.none() | texts | long_texts, max_size=20)
numbers = st.lists(st.none() | st.floats(), max_size=20)


def test_known_values_keep_their_hashes():
    """They hold for other versions of pandas too: other hashes would change the splits of the same
    data. Long strings hash by SHA-256 from 512 bytes on.
    """
    found = hash_column(pa.array(["", "a", "file-7.py", "é", "x" * 1000, None], pa.string()))
    assert [f"{value:016x}" for value in found] == [
        "186da64456263a46", "c1999a454057bfd0", "1379b42be83d13cd", "eaa82851ccf8e8e7",
        "03baa5944435f844", "9e3779b97f4a7c15",
    ]  # fmt: skip
    found = hash_column(pa.array([1.0, -2.5, None]))
    assert [f"{value:016x}" for value in found] == [
        "2a20cd80798dae26", "413ce7131314a95e", "469bf2dcc1aa179b",
    ]  # fmt: skip
    text = "é" * (512 // 2)
    digest = int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little")
    assert hash_column(pa.array([text]))[0] == digest
    assert hash_column(pa.array(["short", text, text]))[1:].tolist() == [digest] * 2
    text = "x" * 511
    assert hash_column(pa.array([text]))[0] == hash_array(np.array([text], object))[0]


@given(values=strings, other=strings)
def test_a_string_has_its_hash_in_every_batch(values, other):
    column = pa.array(values, pa.string())
    alone = [hash_column(pa.array([value], pa.string()))[0] for value in values]
    assert hash_column(column).tolist() == alone
    # a slice of a longer array, as filters and readers make them
    padded = pa.array([*other, *values, *other], pa.string()).slice(len(other), len(values))
    assert hash_column(padded).tolist() == alone
    assert len(set(alone)) == len(set(values))


@given(values=numbers)
def test_a_number_has_its_hash_in_every_batch(values):
    alone = [hash_column(pa.array([value], pa.float64()))[0] for value in values]
    assert hash_column(pa.array(values, pa.float64())).tolist() == alone
    missing = {hash_ for hash_, value in zip(alone, values, strict=True)
               if value is None or np.isnan(value)}  # fmt: skip
    assert len(missing) <= 1
    assert hash_column(pa.array([0.0, -0.0]))[0] == hash_column(pa.array([-0.0]))[0]


@given(rows=st.lists(st.tuples(texts, st.floats(allow_nan=False), st.none() | texts), max_size=20))
def test_records_have_equal_hashes_when_they_are_equal_in_all_columns(rows):
    schema = pa.schema({"a": pa.string(), "b": pa.float64(), "c": pa.string()})
    batch = pa.RecordBatch.from_pylist(
        [dict(zip("abc", row, strict=True)) for row in rows], schema=schema
    )
    hashes = combine_hashes([hash_column(column) for column in batch.columns])
    distinct = len(set(rows))
    assert len(set(hashes.tolist())) == distinct
    assert dict(zip(rows, hashes, strict=True)) == dict(zip(rows[::-1], hashes[::-1], strict=True))
    a, b = hash_column(pa.array(["x", "y"])), hash_column(pa.array(["y", "x"]))
    first, second = combine_hashes([a, b])  # columns do not stand for each other
    assert first != second
    assert combine_hashes([a])[0] == combine_hashes([b])[1] == a[0]


@given(key=texts, a=st.floats(0, 0.24), b=st.floats(0, 0.24))
def test_the_split_follows_from_the_key_alone(key, a, b):
    assert compute_split(key, a, b) == compute_split(key, a, b) in SPLITS
    assert compute_split(key, 0, 0) == "train"
    # a larger test share takes from the others and never gives back
    if compute_split(key, a, b) == "test":
        assert compute_split(key, a, b + 0.5) == "test"
    with pytest.raises(ValueError, match="leave nothing to train on"):
        compute_split(key, 0.5, 0.5)


@pytest.mark.parametrize("key", [str, float, lambda n: f"{n}" + "x" * LONG, lambda n: f"{n:b}"])
def test_the_shares_are_kept(key):
    hashes = hash_column(pa.array([key(number) for number in range(1, 20_001)]))
    counts = np.bincount(assign_splits(hashes, 0.1, 0.3), minlength=3) / len(hashes)
    assert dict(zip(SPLITS, counts, strict=True)) == pytest.approx(
        {"train": 0.6, "validation": 0.1, "test": 0.3}, abs=0.01
    )


# tests that one of equal records stays: the same one, whatever their order and parts


records = st.lists(st.tuples(*[st.integers(0, 9)] * 3), max_size=60)


def stay(rows: list[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
    if not rows:
        return []
    order, tie, rank = np.array(rows, np.uint64).T
    kept = mark_kept_records(order, tie, rank)
    return [row for row, one in zip(rows, kept, strict=True) if one]


@given(records)
def test_of_equal_ones_the_lowest_stays(rows):
    expected = {order: min(row for row in rows if row[0] == order) for order, _, _ in rows}
    assert sorted(stay(rows)) == sorted(expected.values())


@given(records, st.data())
def test_neither_order_nor_parts_change_what_stays(rows, data):
    cut = data.draw(st.integers(0, len(rows)))
    shuffled = data.draw(st.permutations(rows))
    in_parts = stay([*stay(shuffled[:cut]), *stay(shuffled[cut:])])
    assert sorted(in_parts) == sorted(stay(rows))
