"""Plain text, line by line."""

from pathlib import Path

import pytest

from tests.steps.shard.readings import MIXED, TEXT, read_all, reasons, write
from training.workloads import Column
from trainyard.common.errors import DataError


def test_lines_keep_all_but_their_end(tmp_path: Path):
    path = write(tmp_path, "a.txt", "  a \n\n \t\nb\r\n\u00a0\nc\u2028d\x0be\n\ufefff\nlast\r")
    rows, lines, bad = read_all(path)
    texts = ["  a ", "b", "\u00a0", "c\u2028d\x0be", "\ufefff", "last"]
    assert rows == [(text,) for text in texts]
    assert lines == [1, 4, 5, 6, 7, 8]
    assert bad == []


def test_mixed_encodings_and_nul_bytes_cost_their_lines(tmp_path: Path):
    good = "naïve ✓\n".encode()
    path = write(tmp_path, "a.txt", good + b"na\xefve\n" + good + b"torn\0\0\0\n" + good)
    rows, lines, bad = read_all(path)
    assert rows == [("naïve ✓",)] * 3
    assert lines == [1, 3, 5]
    assert reasons(bad)[2] == "the record is not UTF-8 (at byte 3)"
    assert "NUL" in reasons(bad)[4]
    assert bad[0].excerpt == "na\\xefve"
    path = write(tmp_path, "a.txt", b"\xff" + "🙂".encode() * 1000)
    [bad] = read_all(path)[2]  # short, and can be written
    assert bad.excerpt == "\\xff" + "🙂" * 196
    bad.excerpt.encode()


def test_other_columns_are_null_or_refused(tmp_path: Path):
    path = write(tmp_path, "a.txt", "a\n")
    assert read_all(path, MIXED)[0] == [("a", None, None)]
    assert read_all(path, {"text": Column("category")})[0] == [("a",)]
    with pytest.raises(DataError, match=r"a\.txt: .*none for 'key', which is required"):
        read_all(path, TEXT | {"key": Column("category")})
    for columns in ({"body": Column("text")}, {"text": Column("number")}):
        with pytest.raises(DataError, match=r"one column, 'text', of kind text or category"):
            read_all(path, columns)
