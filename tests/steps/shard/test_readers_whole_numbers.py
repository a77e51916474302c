"""Whole numbers of a column of integers: exact out of every format, or a bad record."""

import csv
import io
import json
import re
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from steps.shard.record_hashes import hash_column
from tests.steps.shard.readings import limits, number_records, read_all, reasons, tar, write
from tests.steps.shard.test_readers_agree import LIMITS, from_file
from training.workloads import Column

USERS = [9007199254740992, 9007199254740993, 2**63 - 1, -(2**63)]
DTYPES = st.sampled_from(["uint8", "int8", "uint16", "int32", "int64", "uint64"])
EDGES = [s * 2**b + d for b in (0, 7, 8, 31, 53, 63, 64) for s in (1, -1) for d in (-1, 0, 1)]
WHOLE = st.none() | st.sampled_from(EDGES) | st.integers(-(2**70), 2**70)
NULLABLE = {"n": Column("number", False, dtype="int64")}


def fits(value: int | None, dtype: str) -> bool:
    info = np.iinfo(dtype)
    return value is None or info.min <= value <= info.max


def as_json(values: list) -> bytes:
    return "".join(json.dumps({"n": value, "m": 1}) + "\n" for value in values).encode()


def as_csv(values: list) -> bytes:
    file = io.StringIO()
    csv.writer(file, lineterminator="\n").writerows([("n", "m"), *((v, 1) for v in values)])
    return file.getvalue().encode()


def as_parquet(array: pa.Array) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"n": array}), sink)
    return sink.getvalue().to_pybytes()


def as_decimals(values: list) -> bytes:
    decimals = [None if value is None else Decimal(value) for value in values]
    return as_parquet(pa.array(decimals, pa.decimal256(40, 3)))


TEXTS: dict[str, Callable[[list], bytes]] = {"a.jsonl": as_json, "a.csv": as_csv}


def check(reading: tuple, values: list, dtype: str, lists: bool = False) -> None:
    """Check that each value came exactly, or its line and the value are named."""
    rows, lines, bad = reading
    expected = [v for v in values if fits(v, dtype)]
    assert [row[0] for row in rows] == ([[v] for v in expected] if lists else expected)
    flat = [v for (row,) in rows for v in (row if lists else [row])]
    assert {type(v) for v in flat} <= {int, type(None)}
    assert lines == [line for line, v in enumerate(values, 1) if fits(v, dtype)]
    assert [record.line for record in bad] == [
        n for n in range(1, len(values) + 1) if n not in lines
    ]
    for record in bad:
        number = re.escape(str(values[record.line - 1]))
        assert re.search(rf"{number}(\.0+)?, expected a whole number from", record.reason)
        assert dtype in record.reason


@pytest.mark.long
@given(st.lists(WHOLE, min_size=1, max_size=6), DTYPES, LIMITS)
def test_text_formats_give_the_number_or_name_it(values: list, dtype: str, small: dict):
    columns = {"n": Column("number", False, dtype=dtype)}
    for name, content in TEXTS.items():
        check(number_records(name, from_file(name, content(values), columns)), values, dtype)
        with limits(**small):
            check(number_records(name, from_file(name, content(values), columns)), values, dtype)


@pytest.mark.long
@given(st.lists(WHOLE, min_size=1, max_size=6), DTYPES)
def test_lists_give_the_numbers_or_name_one(values: list, dtype: str):
    columns = {"n": Column("list", dtype=dtype)}
    values = [0 if value is None else value for value in values]
    lists = [[value] for value in values]
    check(from_file("a.jsonl", as_json(lists), columns), values, dtype, lists=True)
    found = number_records("a.csv", from_file("a.csv", as_csv(lists), columns))
    check(found, values, dtype, lists=True)
    inside = [value for value in values if fits(value, "int64")]
    stored = [None, *([value] for value in inside)]
    for kind in (pa.list_(pa.int64()), pa.large_list(pa.int64()), pa.list_(pa.decimal128(30, 1))):
        array = pa.array(stored, pa.list_(pa.int64())).cast(kind)
        optional = {"n": Column("list", False, dtype=dtype)}
        rows, lines, bad = from_file("a.parquet", as_parquet(array), optional)
        assert rows[0] == (None,)
        shifted = [type(record)(record.line - 1, record.reason, record.excerpt) for record in bad]
        check((rows[1:], [n - 1 for n in lines[1:]], shifted), inside, dtype, lists=True)


@pytest.mark.long
@given(st.lists(WHOLE, min_size=1, max_size=6), DTYPES, st.sampled_from([pa.int64(), pa.uint64()]))
def test_parquet_gives_the_number_or_names_it(values: list, dtype: str, kind: pa.DataType):
    columns = {"n": Column("number", False, dtype=dtype)}
    check(from_file("a.parquet", as_decimals(values), columns), values, dtype)
    inside = [v for v in values if fits(v, str(kind))]
    plain = pa.array(inside, kind)
    for array in (plain, plain.dictionary_encode(), plain.cast(pa.decimal128(20, 0), safe=False)):
        check(from_file("a.parquet", as_parquet(array), columns), inside, dtype)


WRITTEN = {
    "1e3": 1000, "12.0": 12, "-0.0": 0, "-0": 0, "1.5e1": 15, "12.5": None,
    "0.99999999999999999999999": None, "1e-400": None, "2.4e-104": None, "0e-500": 0,
    "9007199254740991.0": 2**53 - 1, "9007199254740993.0": None, "9.007199254740993e15": None,
    "1e18": None, "1e999999999999999999999": None, "1" + "0" * 400: None,
}  # fmt: skip


@pytest.mark.parametrize("name", TEXTS)
def test_a_float_is_taken_where_each_whole_number_is_a_float(tmp_path: Path, name: str):
    """Beyond 2**53 a writer that went by floats (pandas, with gaps in the column) has rounded."""
    lines = {"a.jsonl": '{{"n": {}}}', "a.csv": "{},1"}[name]
    head = "n,m\n" if name == "a.csv" else ""
    content = head + "".join(lines.format(text) + "\n" for text in WRITTEN)
    rows, _, bad = read_all(write(tmp_path, name, content), NULLABLE)
    assert [row[0] for row in rows] == [v for v in WRITTEN.values() if v is not None]
    assert len(bad) == list(WRITTEN.values()).count(None)
    for record in bad:
        assert list(WRITTEN)[record.line - 1][:40] in record.reason
    reason = reasons(bad)[1 + list(WRITTEN).index("9007199254740993.0")]
    assert "below 2**53" in reason
    assert "as a float" in reason


@pytest.mark.parametrize(
    ("kind", "bits"), [(pa.float64(), 53), (pa.float32(), 24), (pa.float16(), 11)]
)
def test_a_float_column_of_parquet_is_taken_up_to_its_own_precision(tmp_path, kind, bits):
    values = [2.0**bits - 1, None, float("nan"), -(2.0**bits), 0.5, 3.0]
    path = write(tmp_path, "a.parquet", as_parquet(pa.array(np.array(values, float)).cast(kind)))
    rows, lines, bad = read_all(path, NULLABLE)
    assert rows == [(2**bits - 1,), (None,), (None,), (3,)]
    assert lines == [1, 2, 3, 6]
    assert f"below 2**{bits}" in reasons(bad)[4]
    assert "is 0.5, expected a whole number from" in reasons(bad)[5]


def test_a_member_of_a_tar_archive_is_exact(tmp_path: Path):
    path = write(tmp_path, "a.tar", tar({f"{n}.cls": str(v) for n, v in enumerate(USERS)}))
    rows, _, _ = read_all(path, {"cls": Column("number", dtype="int64")})
    assert rows == [(user,) for user in USERS]


def test_text_that_only_some_parsers_take(tmp_path: Path):
    """PyArrow's CSV reader takes 0x1F for 31 in a column of integers."""
    texts = ["0x1F", "0X1f", "1_0", " +7", "\t7", "007", "inf", "true"]
    content = "".join(f"{text},0xabc\n5,1\n" for text in texts)
    rows, _, bad = read_all(write(tmp_path, "a.csv", f"n,m\n{content}"), NULLABLE)
    assert rows == [(5,), (5,), (5,), (7,), (5,), (7,), (5,), (7,), (5,), (None,), (5,), (5,)]
    assert [one.line for one in bad] == [1, 3, 5, 15]


def test_lists_that_a_float_would_merge_have_hashes_of_their_own():
    lists = pa.array([[USERS[0]], [USERS[1]]], pa.list_(pa.int64()))
    assert len(set(hash_column(lists).tolist())) == 2
