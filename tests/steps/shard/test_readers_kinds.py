"""Columns of bytes, lists of numbers and timestamps: the same values out of every format."""

import base64
import csv
import io
import json
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from steps.shard.readers import json_lines
from steps.shard.readers.csv import Table
from steps.shard.readers.text import Dialect
from steps.shard.record_hashes import hash_column
from tests.steps.shard.readings import read_all, reasons, write
from tests.steps.shard.test_readers_agree import LIMITS, block, by_rows, check_alike, from_file
from training.workloads import Column

pytestmark = pytest.mark.long

COLUMNS = {
    "image": Column("bytes", required=False),
    "box": Column("list", required=False),
    "taken": Column("timestamp", required=False),
}
BEGIN = datetime(1970, 1, 1, tzinfo=UTC)
TIMES = st.datetimes(
    datetime(1, 1, 2), datetime(9999, 12, 30), timezones=st.sampled_from([UTC, timezone(
        timedelta(hours=5, minutes=30))])
)  # fmt: skip
FLOATS = st.floats(allow_nan=False, allow_infinity=False)
RECORDS = st.lists(
    st.tuples(
        st.none() | st.binary(min_size=1, max_size=40),
        st.none() | st.lists(FLOATS, max_size=4),
        st.none() | TIMES,
    ),
    min_size=1,
    max_size=8,
)
Record = tuple[bytes | None, list[float] | None, datetime | None]


def convert_records(records: list[Record]) -> list[tuple]:
    def micros(moment: datetime | None) -> int | None:
        return None if moment is None else (moment - BEGIN) // timedelta(microseconds=1)

    return [(image, box, micros(taken)) for image, box, taken in records]


def texts(record: Record) -> dict:
    image, box, taken = record
    return {
        "image": None if image is None else base64.b64encode(image).decode(),
        "box": box,
        "taken": None if taken is None else taken.isoformat(),
    }


def as_json(records: list[Record]) -> bytes:
    return "".join(json.dumps(texts(record)) + "\n" for record in records).encode()


def as_csv(records: list[Record]) -> bytes:
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(["n", *COLUMNS])
    for record in records:
        row = texts(record)
        row["box"] = None if row["box"] is None else json.dumps(row["box"])
        writer.writerow([0, *row.values()])
    return file.getvalue().encode()


def as_parquet(records: list[Record]) -> bytes:
    columns = zip(*records, strict=True)
    types = (pa.binary(), pa.list_(pa.float64()), pa.timestamp("us", "UTC"))
    arrays = [pa.array(list(c), kind) for c, kind in zip(columns, types, strict=True)]
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table(dict(zip(COLUMNS, arrays, strict=True))), sink)
    return sink.getvalue().to_pybytes()


WRITERS = {"a.jsonl": as_json, "a.csv": as_csv, "a.parquet": as_parquet}


@given(RECORDS)
def test_every_format_gives_what_was_written(records: list[Record]):
    for name, content in WRITERS.items():
        rows, _, bad = from_file(name, content(records), COLUMNS)
        assert (rows, bad) == (convert_records(records), []), name


TIMESTAMPS = [
    "2013-01-31", "2013-01-31T12:00", "2013-01-31 12:00:00.1234567+0530", "1969-12-31T23:59:59.9Z",
    "2013-02-30", "2013-01-31T25:00", "12", "2013-W05-4", "0000-01-01", "2013-01-31x12:00", "",
]  # fmt: skip
LISTS = ["[1, 2.5]", "[]", "[1e999]", "[null]", '["1"]', "[[1]]", '{"a": 1}', "null", '"[1]"', "3"]
CELLS = {
    "image": ['"QUI="', '"QUI"', '"Q*I="', '""', "7", "null", '"✓"'],
    "box": [*LISTS, "[9007199254740993]", "[NaN]", "[true]"],
    "taken": [*(json.dumps(one) for one in TIMESTAMPS), "1359590400", "null"],
}
OBJECTS = st.fixed_dictionaries({}, optional={k: st.sampled_from(v) for k, v in CELLS.items()}).map(
    lambda found: "{" + ",".join(f'"{key}":{value}' for key, value in found.items()) + "}"
)
LENGTHS = st.sampled_from([COLUMNS, COLUMNS | {"box": Column("list", length=2)}])


@given(st.lists(OBJECTS, max_size=5), LENGTHS, LIMITS)
def test_json_lines_read_fast_and_exactly_alike(objects: list[str], columns: dict, small: dict):
    content = "\n".join(["{}", *objects]).encode()
    exact = json_lines.parse_exactly(block(content), columns)
    check_alike(
        "a.jsonl", content, columns, small, exact, json_lines.parse_fast(block(content), columns)
    )


def cells(name: str) -> st.SearchStrategy[str]:
    found = [json.loads(one) if one.startswith('"') else one for one in CELLS[name]]
    return st.sampled_from(found)


@given(st.lists(st.tuples(*map(cells, CELLS)), max_size=5), LENGTHS, LIMITS)
def test_csv_reads_fast_and_exactly_alike(rows: list[tuple], columns: dict, small: dict):
    file = io.StringIO()
    csv.writer(file, lineterminator="\n").writerows([(*row, "z") for row in rows])
    content = file.getvalue().encode()
    table = Table(Dialect(","), (*CELLS, "z"), columns)
    exact = by_rows(table, content)
    fast = table.parse_fast(bytearray(content + b"\n"), 0, len(content), 2)
    header = ",".join((*CELLS, "z\n")).encode()
    check_alike("a.csv", header + content, columns, small, exact, fast)


def test_what_is_bad_is_named_with_its_column_and_value(tmp_path: Path):
    columns = {"image": Column("bytes"), "box": Column("list", length=2), "taken": COLUMNS["taken"]}
    lines = [
        '{"image": "QUI=", "box": [1, 2], "taken": "2013-01-31"}',
        '{"image": "QUI", "box": [1, 2]}',
        '{"image": "QUI=", "box": [1, 2, 3]}',
        '{"image": "QUI=", "box": [1, null]}',
        '{"image": "QUI=", "box": [1, 2], "taken": "31.1.2013"}',
        '{"image": "QUI=", "box": [1, 2], "taken": 1359590400}',
        '{"box": [1, 2]}',
    ]
    rows, _, bad = read_all(write(tmp_path, "a.jsonl", "\n".join(lines)), columns)
    assert rows == [(b"AB", [1.0, 2.0], 1359590400_000000)]
    assert [reason.split(":")[0] for reason in reasons(bad).values()] == [
        "column 'image' is 'QUI', expected base64, padded (RFC 4648)",
        "column 'box' has 3 numbers, expected 2",
        "column 'box' contains None at index 1, expected a finite number",
        "column 'taken' is '31.1.2013', expected a time in ISO 8601 such as 2013-01-31T12",
        "column 'taken' is 1359590400, expected a string",
        "column 'image' is required and has no value",
    ]


def parquet(folder: Path, **columns: pa.Array) -> Path:
    pq.write_table(pa.table(columns), folder / "a.parquet", row_group_size=2)
    return folder / "a.parquet"


@pytest.mark.parametrize(("unit", "many"), [("s", 10**6), ("ms", 1000), ("us", 1), ("ns", 0.001)])
def test_moments_of_every_unit_become_microseconds(tmp_path: Path, unit: str, many: float):
    ticks = np.array([-1, 0, 7, 10**9], np.int64)
    path = parquet(tmp_path, taken=pa.array(ticks, pa.timestamp(unit, "Asia/Kolkata")))
    rows, _, bad = read_all(path, {"taken": Column("timestamp")})
    micros = ticks * many if many >= 1 else ticks // 1000
    assert ([row for (row,) in rows], bad) == (micros.tolist(), [])


def test_a_moment_beyond_the_years_is_bad_and_dates_are_midnights(tmp_path: Path):
    ticks = pa.array([2**62, None, 5], pa.timestamp("ms"))
    rows, lines, bad = read_all(parquet(tmp_path, t=ticks), {"t": Column("timestamp", False)})
    assert (rows, lines) == ([(None,), (5000,)], [2, 3])
    said = "column 't' is 4611686018427387904 ms from 1970, expected a time in the years"
    assert said in bad[0].reason
    days = pa.array([datetime(1970, 1, 2)], pa.date32())
    assert read_all(parquet(tmp_path, t=days), {"t": Column("timestamp")})[0] == [(86400 * 10**6,)]


def test_lists_and_bytes_of_other_arrow_types(tmp_path: Path):
    columns = {"box": Column("list"), "image": Column("bytes")}
    image = pa.array([{"bytes": b"a", "path": "x.png"}, {"bytes": None, "path": "y.png"}] * 2)
    for kind in (pa.list_(pa.int32(), 2), pa.large_list(pa.float32()), pa.list_(pa.int8())):
        box = pa.array([[1, 2], [3, 4], [5, 6], [7, 8]], kind)
        rows, _, bad = read_all(parquet(tmp_path, box=box, image=image), columns)
        assert rows == [([1.0, 2.0], b"a"), ([5.0, 6.0], b"a")]
        assert reasons(bad) == {n: "column 'image' is required and has no value" for n in (2, 4)}


def test_batches_of_large_values_are_small(tmp_path: Path):
    """Rows of a megabyte come a few at a time, whatever struct they lie in."""
    image = pa.array([{"bytes": bytes(10**6), "path": str(i)} for i in range(20)])
    pq.write_table(pa.table({"image": image}), tmp_path / "a.parquet", compression="none",
                   use_dictionary=False)  # fmt: skip
    from steps.shard.readers import read_records

    batches = list(read_records(tmp_path / "a.parquet", {"image": Column("bytes")}))
    assert max(batch.records.nbytes for batch in batches) < 6 * 10**6
    assert sum(len(batch.records) for batch in batches) == 20


def test_a_column_may_refuse_bytes(tmp_path: Path):
    columns = {"image": Column("bytes", False, refuse=lambda v: "is odd" if len(v) % 2 else None)}
    content = as_json([(b"ab", None, None), (b"abc", None, None), (None, None, None)])
    rows, lines, bad = read_all(write(tmp_path, "a.jsonl", content), columns)
    assert (rows, lines) == ([(b"ab",), (None,)], [1, 3])
    assert reasons(bad) == {2: "column 'image' is odd"}


def test_a_list_with_a_number_beyond_the_limit_is_bad(tmp_path: Path):
    columns = {"box": Column("list", limit=100)}
    content = '{"box": [1, 2]}\n{"box": []}\n{"box": [3, -100, 1000]}\n'
    rows, _, bad = read_all(write(tmp_path, "a.jsonl", content), columns)
    assert rows == [([1.0, 2.0],), ([],)]
    assert reasons(bad)[3].startswith("column 'box' is -100, too large for the samples (100 and")


@given(RECORDS, st.integers(0, 3))
def test_equal_values_have_equal_hashes_wherever_they_lie(records: list[Record], cut: int):
    for number, kind in enumerate((pa.binary(), pa.list_(pa.float64()), pa.int64())):
        values = [row[number] for row in convert_records(records)]
        whole = hash_column(pa.array(values, kind))
        assert (whole[cut:] == hash_column(pa.array(values, kind)[cut:])).all()
        assert (whole[cut:] == hash_column(pa.array(values[cut:], kind))).all()
        bits = [repr(value) for value in values]
        assert len(set(whole.tolist())) == len(set(bits))
