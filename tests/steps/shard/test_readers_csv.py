"""CSV and TSV: headers, quotes, missing values, and where a record ends."""

import csv
import io
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steps.shard.readers.text import Dialect
from tests.steps.shard.readings import MIXED, TEXT, limits, read_all, read_lines, reasons, write
from training.workloads import Column
from trainyard.common.errors import DataError

NUMBER = {"size": Column("number", False)}


def test_values_and_missing_values(tmp_path: Path):
    content = 'z,size,kind,text\n1,2.5,NA,"null"\n2,NA,,""\n3,,7,a b \n4, 1e3\t,true,NaN\n'
    rows, lines, bad = read_all(write(tmp_path, "a.csv", content), MIXED)
    assert rows == [
        ("null", "NA", 2.5),
        (None, None, None),
        ("a b ", "7", None),
        ("NaN", "true", 1000.0),
    ]
    assert (lines, bad) == ([1, 2, 3, 4], [])


def test_required_values_that_are_missing_are_bad(tmp_path: Path):
    columns = {"text": Column("text"), "size": Column("number")}
    content = 'text,size\na,1\n"",2\n,3\nb,NA\nc,inf\nd,nan\ne,1e999\nf,\ng,5\n'
    rows, lines, bad = read_all(write(tmp_path, "a.csv", content), columns)
    assert (rows, lines) == ([("a", 1.0), ("g", 5.0)], [1, 9])
    missing = ["text", "text", *["size"] * 5]
    reason = "column '{}' is required and has no value"
    assert reasons(bad) == {n: reason.format(name) for n, name in enumerate(missing, 2)}
    assert bad[2].excerpt == "b,NA"


NUMBERS = {
    "+1": 1.0, "1.": 1.0, ".5": 0.5, "007": 7.0, "-0": -0.0, "9007199254740993": 9007199254740992.0,
    "9" * 400: None, "1e-400": 0.0, "-Infinity": None, "nan(1)": None, "#N/A": None, "null": None,
    '"5"': 5.0, '""': None,
}  # fmt: skip


@pytest.mark.parametrize("beside", ["", "x,1\n"])
def test_numbers(tmp_path: Path, beside: str):
    content = "size,z\n" + beside + "".join(f"{number},1\n" for number in NUMBERS)
    rows, _, bad = read_all(write(tmp_path, "a.csv", content), NUMBER)
    assert list(map(repr, (row[0] for row in rows))) == list(map(repr, NUMBERS.values()))
    assert len(bad) == len(beside) // 4


def test_what_is_no_number_is_bad(tmp_path: Path):
    texts = ["x", "1_000", "0x10", "1e", "--1", "true", "1 2", "١", "None", "."]
    content = "size,z\n" + "".join(f"1,a\n{text},a\n" for text in texts)
    rows, _, bad = read_all(write(tmp_path, "a.csv", content), NUMBER)
    assert rows == [(1.0,)] * len(texts)
    assert list(reasons(bad).items()) == [
        (2 * n, f"column 'size' is {text!a}, expected a number") for n, text in enumerate(texts, 1)
    ]


@pytest.mark.filterwarnings("error::pytest.PytestUnraisableExceptionWarning")
def test_rows_of_another_length_or_encoding_are_bad(tmp_path: Path):
    """Quietly; the encoding is looked at where it matters."""
    content = b"text,z\na,1\nb\nc,1,2\n \n\n\xff\nd,1\n"
    rows, lines, bad = read_all(write(tmp_path, "a.csv", content), TEXT)
    assert (rows, lines) == ([("a",), ("d",)], [1, 6])
    assert list(reasons(bad).items())[:3] == [
        (2, "has 1 fields, the header has 2"),
        (3, "has 3 fields, the header has 2"),
        (4, "has 1 fields, the header has 2"),
    ]
    assert bad[3].excerpt == "\\xff"
    content = b"text,z\nna\xc3\xafve,1\nna\xefve,2\na,\xff\nb\0,3\nc,\0\n\xef\xbb\xbfd,4\n"
    rows, lines, bad = read_all(write(tmp_path, "a.csv", content), TEXT)
    assert (rows, lines) == ([("naïve",), ("a",), ("\ufeffd",)], [1, 3, 6])
    assert reasons(bad)[2] == "column 'text' is not UTF-8 (at byte 3)"
    assert "NUL" in reasons(bad)[4] and "NUL" in reasons(bad)[5]


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_line_ends_and_quotes(tmp_path: Path, end: str):
    rows = [
        ["text", "z"], ["a\nb\r\nc\rd", '"'], ['say "hi", then\n', ""], ['5" nail', "x"],
        ["", '""'], ["last", ",\n,"],
    ]  # fmt: skip
    sink = io.StringIO()
    csv.writer(sink, lineterminator=end).writerows(rows)
    content = sink.getvalue().replace('"5"" nail"', '5" nail')
    for name, text in (("a.csv", content), ("b.csv", content.removesuffix(end))):
        found, lines, bad = read_all(write(tmp_path, name, text), {"text": Column("text", False)})
        assert [row[0] or "" for row in found] == [row[0] for row in rows[1:]]
        assert (lines, bad) == ([1, 2, 3, 4, 5], [])


def test_a_records_line_is_that_of_the_file(tmp_path: Path):
    """Whatever ends lines, stands before the header, goes on over lines, or is bad."""
    rows = ["", '"z",text', "1,a", "", "", "2,b", '"3\n",c', "4", '5,"d\r\n\r\n"', "6,e"]
    for end in ("\n", "\r\n", "\r"):
        content = end.join(rows) + end
        path = write(tmp_path, "a.csv", content)
        begins = {row: 1 + len(content[: content.index(row)].splitlines()) for row in rows if row}
        for small in ({}, *({"chunk": size, "piece": size} for size in (1, 3, 16))):
            with limits(**small):
                _, lines, bad = read_lines(path, TEXT)
            assert lines == [begins[row] for row in rows[2:] if row and row != "4"], (end, small)
            assert [one.line for one in bad] == [begins["4"]]


def test_a_line_of_a_giant_is_counted(tmp_path: Path):
    """Also where the record that is passed over has line ends itself."""
    giant = '1,"' + "g\n" * 60 + '"\n'
    path = write(tmp_path, "a.csv", f"z,text\n{giant}2,a\n")
    for chunk in (1, 16, 50, 1000):
        with limits(chunk=chunk, piece=chunk, record=100):
            _, lines, bad = read_lines(path, TEXT)
        assert ([one.line for one in bad], lines) == ([2], [63]), chunk


def test_header_only_and_blank_lines(tmp_path: Path):
    for content in ("text,z", "\r\n\ntext\r\n\r\n\r\n"):
        assert read_all(write(tmp_path, "a.csv", content), TEXT) == ([], [], [])
    path = write(tmp_path, "c.csv", '\n\n"te\nxt"\n\n\nx\n\n')
    assert read_all(path, {"te\nxt": Column("text")}) == ([("x",)], [1], [])
    path = write(tmp_path, "a.csv", "z,text,z,,\n1,a,2,3,4\n")  # others may be twice or nameless
    assert read_all(path)[0] == [("a",)]


@pytest.mark.parametrize("rest", ["", "x,1\n" * 30])
def test_a_quote_that_is_never_closed_costs_its_line(tmp_path: Path, rest: str):
    """Pyarrow and Python's ``csv`` take the whole rest of the file for its field."""
    path = write(tmp_path, "a.csv", f'text,z\na,1\n"b,1\nc,2\n{rest}d,3')
    rows, lines, bad = read_all(path)
    extra = rest.count("\n")
    assert rows == [("a",), ("c",)] + [("x",)] * extra + [("d",)]
    assert lines == [1, *range(3, 5 + extra)]
    assert (reasons(bad), bad[0].excerpt) == ({2: "a quote is never closed"}, '"b,1')
    message = r"a\.csv: the record in line 3 has a quote that is never closed"
    if rest:
        with limits(chunk=20, piece=10, record=100), pytest.raises(DataError, match=message):
            read_all(path)


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_a_stray_quote_costs_its_line_and_not_all_up_to_the_next(tmp_path: Path, end: str):
    lines = ["text,z", '"a,1', *["x,1"] * 30, 'b,"c"', 'd,"e', 'f"', "g,2"]
    rows, numbers, bad = read_all(write(tmp_path, "a.csv", end.join(lines)), TEXT)
    assert rows == [("x",)] * 30 + [("b",), ("d",), ("g",)]
    assert numbers == [*range(2, 33), 33, 34]
    reason = "has 1 fields, the header has 2; a quoted field in it continues over line ends"
    assert (reasons(bad), bad[0].excerpt) == ({1: reason}, '"a,1')


HEADERS = {
    "txt,z": r"has no column 'text'; is it 'txt'\? Its columns are 'txt', 'z'",
    "a;b": r"has no column 'text'\. Its columns are 'a;b'",
    "Text": "has no column 'text'; is it 'Text'",
    "text,z,text": r"column 'text' occurs 2 times, as 1, 3",
    "text,\xff": "its header has .* expected UTF-8",
    'text,"z': "the header, has no end .*is a quote not closed",
}


@pytest.mark.parametrize("header", HEADERS)
def test_headers_that_cannot_be_used(tmp_path: Path, header: str):
    path = write(tmp_path, "a.csv", f"{header}\nx,y\n".encode("latin-1"))
    with pytest.raises(DataError, match=r"a\.csv: .*" + HEADERS[header]):
        read_all(path)


def test_header_may_be_long(tmp_path: Path):
    names = [f"column {i}" for i in range(5000)]
    content = ",".join([*names, "text"]) + "\n" + "," * 5000 + "x\n"
    path = write(tmp_path, "a.csv", content)
    assert read_all(path)[0] == [("x",)]
    with limits(chunk=100):
        assert read_all(path)[0] == [("x",)]
    with limits(chunk=100, record=1000), pytest.raises(DataError, match="header, has no end"):
        read_all(path)
    with pytest.raises(DataError, match=r"no column 'column'; .*\[\.\.\.\]") as error:
        read_all(path, {"column": Column("text")})
    assert len(str(error.value)) < 1000


CSV_TEXT = st.text(alphabet='",\n\ra', max_size=12).map(str.encode)


@given(beginning=CSV_TEXT, rest=CSV_TEXT)
def test_a_giant_record_may_be_forgotten_but_for_its_state(beginning: bytes, rest: bytes):
    dialect = Dialect(",")
    if not beginning or dialect.find_complete_end(beginning + b"\n", 0, len(beginning) + 1) is None:
        beginning = b"a" + beginning
    if dialect.find_end(beginning, 0, len(beginning))[0] < len(beginning):
        return
    if beginning.endswith((b"\n", b"\r")) and dialect.find_end(beginning, 0, len(beginning))[1]:
        return
    short = dialect.shorten_record(b"xy" + beginning + b"z", 2, 2 + len(beginning))
    assert len(short) <= 2
    end, closed = dialect.find_end(beginning + rest, 0, len(beginning + rest))
    short_end = (end - len(beginning) + len(short), closed)
    assert dialect.find_end(short + rest, 0, len(short + rest)) == short_end


@pytest.mark.parametrize("tails", [(4, 100), (100, 100)])
def test_a_line_end_in_quotes_is_no_probable_end(tails: tuple, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("steps.shard.readers.text.TAILS_BYTES", tails)
    data = b'x"a\nb",c\nd,"e\nf\n'
    assert Dialect(",").find_probable_end(data, 1, len(data)) == len(b'x"a\nb",c\n')
    assert Dialect(",").find_probable_end(data, 1, 5) == 1
