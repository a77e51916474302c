"""Parquet: types, rows that are bad, files that are broken, memory."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from steps.shard.readers import parquet, read_records
from tests.steps.shard.readings import TEXT, read_all, reasons, write
from training.workloads import Column
from trainyard.common.errors import DataError


def table(path: Path, options: dict | None = None, **columns: pa.Array) -> Path:
    pq.write_table(pa.table(columns), path, **(options or {}))
    return path


TEXTS = ["a", None, "naïve ✓", "", "a"]
TEXT_TYPES = [
    pa.string(), pa.large_string(), pa.string_view(), pa.binary(), pa.large_binary(),
    pa.dictionary(pa.int8(), pa.string()), pa.dictionary(pa.int32(), pa.large_string()),
]  # fmt: skip


@pytest.mark.parametrize("kind", TEXT_TYPES, ids=str)
@pytest.mark.parametrize("dictionary", [True, False])
def test_texts(tmp_path: Path, kind: pa.DataType, dictionary: bool):
    path = table(
        tmp_path / "a.parquet", {"use_dictionary": dictionary}, text=pa.array(TEXTS).cast(kind)
    )
    for declared in ("text", "category"):
        rows, lines, bad = read_all(path, {"text": Column(declared, False)})
        assert ([row[0] for row in rows], lines, bad) == (TEXTS, [1, 2, 3, 4, 5], [])


NUMBER_TYPES = {
    pa.uint64(): [0, 2**64 - 1, None, 9007199254740993], pa.int8(): [-128, 127, None],
    pa.float16(): [1.5, None, -0.0], pa.float32(): [0.5, float("nan"), None, float("inf")],
    pa.float64(): [0.1, float("-inf"), 5e-324], pa.decimal128(20, 2): [None, 1],
    pa.dictionary(pa.int8(), pa.int64()): [5, None, 5], pa.null(): [None, None],
}  # fmt: skip


@pytest.mark.parametrize("kind", NUMBER_TYPES, ids=str)
def test_numbers(tmp_path: Path, kind: pa.DataType):
    given = NUMBER_TYPES[kind]
    expected = [
        None if v in (None, float("inf"), float("-inf")) or v != v else float(v) for v in given
    ]
    path = table(tmp_path / "a.parquet", size=pa.array(given, kind))
    values = [row[0] for row in read_all(path, {"size": Column("number", False)})[0]]
    assert list(map(repr, values)) == list(map(repr, expected))
    rows, lines, bad = read_all(path, {"size": Column("number")})
    assert [row[0] for row in rows] == [value for value in expected if value is not None]
    assert [one.line for one in bad] == [i for i, value in enumerate(expected, 1) if value is None]


def test_categories_may_be_integers_and_booleans(tmp_path: Path):
    path = table(tmp_path / "a.parquet", i=pa.array([7, -1, None]), b=pa.array([True, None, False]))
    columns = {"b": Column("category", False), "i": Column("category", False)}
    assert read_all(path, columns)[0] == [("true", "7"), (None, "-1"), ("false", None)]


@pytest.mark.parametrize(
    ("kind", "declared"),
    [
        (pa.int64(), "text"), (pa.float64(), "category"), (pa.bool_(), "number"),
        (pa.string(), "number"), (pa.timestamp("us"), "number"), (pa.timestamp("us"), "category"),
        (pa.list_(pa.string()), "text"), (pa.struct([("text", pa.string())]), "text"),
        (pa.binary(3), "text"),
    ],
    ids=str,
)  # fmt: skip
def test_types_that_cannot_be_read_as_declared(tmp_path: Path, kind: pa.DataType, declared: str):
    path = table(tmp_path / "a.parquet", x=pa.array([None], kind), text=pa.array(["a"]))
    with pytest.raises(
        DataError, match=rf"a\.parquet: column 'x' has the type .*read as {declared}"
    ):
        read_all(path, {"x": Column(declared, False)})
    assert read_all(path)[0] == [("a",)]


def test_columns_that_are_missing_or_stand_twice(tmp_path: Path):
    path = table(tmp_path / "a.parquet", txt=pa.array(["a"]))
    with pytest.raises(DataError, match=r"no column 'text'; is it 'txt'\?"):
        read_all(path)
    twice = pa.Table.from_arrays([pa.array(["a"])] * 3, names=["text", "z", "text"])
    pq.write_table(twice, path)
    with pytest.raises(DataError, match="column 'text' occurs 2 times, as 1, 3"):
        read_all(path)
    assert read_all(path, {"z": Column("text")})[0] == [("a",)]


def test_bad_rows_cost_only_themselves(tmp_path: Path):
    texts = pa.array([b"a", b"na\xefve", None, "naïve".encode(), b"e"])
    invalid = pa.Array.from_buffers(pa.string(), 5, texts.buffers())
    size = pa.array([1.0, 2.0, 3.0, float("nan"), 5.0])
    for options in ({}, {"use_dictionary": False}):
        path = table(tmp_path / "a.parquet", options, text=invalid, size=size, z=pa.array(range(5)))
        columns = {"text": Column("text"), "size": Column("number")}
        rows, lines, bad = read_all(path, columns)
        assert (rows, lines) == ([("a", 1.0), ("e", 5.0)], [1, 5])
        assert reasons(bad) == {
            2: "column 'text' is not UTF-8 (at byte 3)",
            3: "column 'text' is required and has no value",
            4: "column 'size' is required and has no value",
        }
        assert [one.excerpt for one in bad] == [
            "text: 'na\\\\xefve', size: 2.0",
            "text: None, size: 3.0",
            "text: 'naïve', size: None",
        ]


def test_giant_rows_are_bad(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(parquet, "MAX_RECORD_BYTES", 100)
    path = table(tmp_path / "a.parquet", text=pa.array(["a" * 100, "b" * 101, "c"] * 2))
    rows, lines, bad = read_all(path)
    assert lines == [1, 3, 4, 6]
    assert reasons(bad) == dict.fromkeys((2, 5), "column 'text' is longer than 100 bytes")
    assert len(bad[0].excerpt) <= 200


def test_no_rows_and_no_file(tmp_path: Path):
    assert (
        list(read_records(table(tmp_path / "a.parquet", text=pa.array([], pa.string())), TEXT))
        == []
    )
    for content in (b"", b"PAR1", b"PAR1" * 4, b"text\na\n"):
        with pytest.raises(DataError, match=r"b\.parquet: cannot be read as Parquet to its end"):
            read_all(write(tmp_path, "b.parquet", content))


def test_row_groups_and_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(parquet, "CHUNK_BYTES", 1000)
    texts = pa.array([str(i) * (i % 7) for i in range(3000)])
    for options in ({"row_group_size": 70}, {"use_dictionary": False}):
        path = table(tmp_path / "a.parquet", options, text=texts, size=pa.array(range(3000)))
        batches = list(read_records(path, TEXT))
        assert max(batch.records.nbytes for batch in batches) < 3000
        assert [line for batch in batches for line in batch.lines] == list(range(1, 3001))
        assert [row[0] for row in read_all(path)[0]] == texts.to_pylist()


def test_values_repeated_by_a_dictionary_are_not_all_held(tmp_path: Path):
    """The file has one text of 64 KiB once, for 1600 rows. The column beside it is sliced too."""
    keys = [b"%d" % i for i in range(1600)]
    keys[1500] = b"\xff"
    invalid = pa.Array.from_buffers(pa.string(), 1600, pa.array(keys).buffers())
    table = pa.table({"text": pa.array(["x" * (1 << 16)] * 1600), "key": invalid})
    path = tmp_path / "a.parquet"
    pq.write_table(table, path, use_dictionary=["text"])
    assert path.stat().st_size < 1 << 20
    batches = list(read_records(path, TEXT | {"key": Column("text")}))
    assert max(batch.records.nbytes for batch in batches) < 6 << 20
    assert [key for batch in batches for key in batch.records["key"].to_pylist()] == [
        key.decode() for key in keys if key != b"\xff"
    ]
    assert [bad.line for batch in batches for bad in batch.bad_records] == [1501]


def test_damage_is_found_by_the_checksums(tmp_path: Path):
    """A writer that leaves them out (pyarrow's default) is on its own."""
    options = {"write_page_checksum": True, "compression": "none", "use_dictionary": False}
    path = table(tmp_path / "a.parquet", options, text=pa.array(["needle in a haystack"] * 5))
    whole = path.read_bytes()
    place = whole.index(b"needle", whole.index(b"\x14\0\0\0needle"))
    write(tmp_path, "a.parquet", whole[:place] + b"N" + whole[place + 1 :])
    with pytest.raises(DataError, match="cannot be read as Parquet to its end .*CRC"):
        read_all(path)


def test_a_dictionary_in_the_file_stays_one_for_a_category(tmp_path: Path, monkeypatch):
    """It stays one even with more values than the batch has rows, or with invalid UTF-8."""
    values = [b"%d" % (i % 40) for i in range(400)]
    values[7] = values[320] = b"\xff"
    values[9] = None
    texts = pa.array(values, pa.binary())
    invalid = pa.Array.from_buffers(pa.string(), 400, texts.buffers())
    path = table(tmp_path / "a.parquet", {"use_dictionary": True}, text=invalid)
    for rows in (1 << 16, 100, 10):
        monkeypatch.setattr(parquet, "MAX_ROWS", rows)
        columns = {"text": Column("category", required=False)}
        found, lines, bad = read_all(path, columns)
        assert [line for line in range(1, 401) if line not in lines] == [8, 321]
        assert found == [(v and v.decode(),) for v in values if v != b"\xff"]
        assert set(reasons(bad).values()) == {"column 'text' is not UTF-8 (at byte 1)"}
        assert bad[0].excerpt == "text: '\\\\xff'"
        for batch in read_records(path, columns):
            assert len(batch.records["text"].dictionary) <= len(batch.lines) + 1
