"""JSON Lines: what is a record, and what its values are."""

import json
import math
from pathlib import Path

import pytest

from tests.steps.shard.readings import TEXT, read_all, reasons, write
from training.workloads import Column

REQUIRED = {"text": Column("text"), "kind": Column("category"), "size": Column("number")}
GOOD = b'{"text": "good"}'
DEEP = b"[" * 5_000 + b"]" * 5_000

BAD = {
    b"{'text': 'a'}": "not JSON: Expecting property name enclosed in double quotes (at",
    b'{"text": "a"} {"text": "b"}': "not JSON: Extra data",
    b'{"text": "a"': "not JSON",
    b'{"text": "a\tb"}': "not JSON: Invalid control character",
    b'{"text": "a", "z": 01}': "not JSON",
    b'\xef\xbb\xbf{"text": "a"}': "not JSON",
    b'["text"]': "JSON, but not an object",
    b"null": "JSON, but not an object",
    b'{"text": "na\xefve"}': "the record is not UTF-8 (at byte 13)",
    b'{"text": "a", "z": "\xff"}': "not UTF-8",
    b'{"text": "a"}\0': "NUL",
    b"\0\0\0\0": "NUL",
    b'{"text": "\\ud83d"}': "half of a surrogate pair",
    b'{"text": "\\ude00\\ud83d"}': "half of a surrogate pair",
    b'{"text": 5}': "column 'text' is 5, expected a string",
    b'{"text": true}': "column 'text' is True, expected a string",
    b'{"text": {"text": "a"}}': "expected a string",
    b'{"text": null}': "column 'text' is required and has no value",
    b"{}": "column 'text' is required and has no value",
    b'{"text": "a", "te\\u0078t": "b"}': "key 'text' occurs twice",
    b'{"text": "a", "text": null}': "key 'text' occurs twice",
    b'{"text": ' + DEEP + b"}": "nested too deeply",
    b'{"text": "' + b"x" * 500: "not JSON",
}


@pytest.mark.parametrize("line", BAD, ids=[line[:20].decode("latin-1") for line in BAD])
def test_a_bad_line_costs_only_itself(tmp_path: Path, line: bytes):
    path = write(tmp_path, "a.jsonl", b"\n".join([GOOD, b"", line, GOOD]))
    rows, lines, bad = read_all(path)
    assert rows == [("good",)] * 2
    assert lines == [1, 4]
    assert list(reasons(bad)) == [3]
    assert BAD[line] in reasons(bad)[3]
    assert bad[0].excerpt.startswith(line[:4].decode("utf-8", "backslashreplace"))
    assert len(bad[0].excerpt) <= 200


def test_an_object_over_two_lines_is_two_bad_lines(tmp_path: Path):
    """Pyarrow alone takes it, and two objects in one line, so that the count is right again."""
    path = write(tmp_path, "a.jsonl", b'{"text": "a"}{"text": "b"}\n{"text":\n"c"}\n')
    rows, _, bad = read_all(path)
    assert rows == []
    assert list(reasons(bad)) == [1, 2, 3]


def test_white_space_and_unicode_in_lines(tmp_path: Path):
    texts = ["\u2028", "\x7f", 'a\\b/"\n\r\t', "\0", "🙂", "", "\ufeff"]
    lines = [json.dumps({"text": text}) for text in texts]
    lines += [json.dumps({"text": text}, ensure_ascii=False) for text in texts]
    spaced = "\r\n".join([*lines, ' \t{ "text" :\t"x" } ', "\t \r", '{"text":"y"}\r'])
    rows = read_all(write(tmp_path, "a.jsonl", spaced))[0]
    assert [row[0] for row in rows] == [*texts, *texts, "x", "y"]


@pytest.mark.parametrize("line", [b'{"text": "a", "z": %b}' % DEEP, b'{"text": "a", "z": Inf}'])
@pytest.mark.parametrize("beside", [GOOD, b"bad"])
def test_what_only_pyarrow_reads_is_read_beside_good_and_bad_lines(
    tmp_path: Path, line: bytes, beside: bytes
):
    rows, _, _ = read_all(write(tmp_path, "a.jsonl", line + b"\n" + beside + b"\n"))
    assert rows[0] == ("a",)


LARGE = 123456789012345678901234567890
NUMBERS = {
    "0": 0.0, "-0": -0.0, "-0.0": -0.0, "1e3": 1000.0, "1E-2": 0.01, "0.1": 0.1,
    "9007199254740993": 9007199254740992.0, "9223372036854775808": 2.0**63,
    "1" + "0" * 5000: None, str(LARGE): float(LARGE),
    "2.2250738585072011e-308": 2.2250738585072011e-308, "5e-324": 5e-324, "1e-400": 0.0,
    "1e400": None, "-1e400": None, "NaN": None, "Infinity": None, "-Infinity": None, "null": None,
}  # fmt: skip


@pytest.mark.parametrize("beside", ["", "bad\n"])
def test_numbers(tmp_path: Path, beside: str):
    content = beside + "".join(f'{{"size": {number}}}\n' for number in NUMBERS)
    columns = {"size": Column("number", False)}
    values = [row[0] for row in read_all(write(tmp_path, "a.jsonl", content), columns)[0]]
    assert values == list(NUMBERS.values())
    assert math.copysign(1, values[1]) == -1

    required = {"size": Column("number")}
    rows, _, bad = read_all(write(tmp_path, "b.jsonl", content), required)
    assert [row[0] for row in rows] == [value for value in NUMBERS.values() if value is not None]
    assert len(bad) == list(NUMBERS.values()).count(None) + len(beside) // 4


def test_categories_are_strings_integers_or_booleans(tmp_path: Path):
    given = ["7", "-0", "-12", "18446744073709551616", "true", "false", '"7"', '"NA"', '""', "null"]
    texts = ["7", "0", "-12", "18446744073709551616", "true", "false", "7", "NA", "", None]
    columns = {"kind": Column("category", False)}
    for values, expected in [(given, texts), (given[:3], texts[:3]), (given[4:6], texts[4:6])]:
        for missing in ([], ["null"]):
            content = "\n".join(f'{{"kind": {value}}}' for value in missing + values)
            rows, _, bad = read_all(write(tmp_path, "a.jsonl", content), columns)
            assert [row[0] for row in rows] == [None] * len(missing) + expected
            assert bad == []


@pytest.mark.parametrize(
    ("value", "column", "reason"),
    [
        ("1.5", "kind", "column 'kind' is 1.5, expected a string, an integer, true or false"),
        ("1e3", "kind", "expected a string, an integer"),
        ("[1]", "kind", "expected a string, an integer"),
        ('"\\udc00"', "kind", "half of a surrogate pair"),
        ('"5"', "size", "column 'size' is '5', expected a number"),
        ("true", "size", "column 'size' is True, expected a number"),
        ('{"size": 1}', "size", "expected a number"),
        ('"' + "x" * 500 + '"', "size", "column 'size' is '" + "x" * 39 + "…, expected a number"),
    ],
)
def test_wrong_types_are_bad(tmp_path: Path, value: str, column: str, reason: str):
    good = {"text": "a", "kind": 1, "size": 2}
    line = json.dumps(good | {column: None}).replace("null", value)
    path = write(tmp_path, "a.jsonl", "\n".join([json.dumps(good), line, json.dumps(good)]))
    rows, _, bad = read_all(path, REQUIRED)
    assert rows == [("a", "1", 2.0)] * 2
    assert reason in reasons(bad)[2]


def test_many_bad_lines_among_many_good_ones(tmp_path: Path):
    content = "".join(f'{{"text": "{i}"}}\n' if i % 997 else f"bad {i}\n" for i in range(20_000))
    rows, lines, bad = read_all(write(tmp_path, "a.jsonl", content), TEXT)
    assert [row[0] for row in rows] == [str(i) for i in range(20_000) if i % 997]
    assert lines == [i + 1 for i in range(20_000) if i % 997]
    expected = [(i + 1, f"bad {i}") for i in range(0, 20_000, 997)]
    assert [(one.line, one.excerpt) for one in bad] == expected


@pytest.mark.parametrize("good", [0, 3])
def test_a_bad_line_larger_than_any_piece(tmp_path: Path, good: int):
    lines = [GOOD] * good + [b'{"text": "' + b"x" * (1 << 20)]
    rows, _, bad = read_all(write(tmp_path, "a.jsonl", b"\n".join(lines)))
    assert (len(rows), [one.line for one in bad]) == (good, [good + 1])
