"""The corpus of published answers: its rows are well-formed, and a wrong one is noticed."""

import tempfile
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import pytest

from benchmarks.harness import show_outcomes
from tests.published.asking import Asker, difference
from tests.published.rows import File, RowError, files, read
from trainyard.emulator.server import serve_emulator

WRONG = """
kind: seeded
source: none
always:
- s3.create_bucket: {Bucket: $file}
- s3.put_object: {Bucket: $file, Key: k, Body: text}
rows:
- {ask: {s3.get_object: {Bucket: $file, Key: k}}, answer: {Body: text}}
- {ask: {s3.get_object: {Bucket: $file, Key: k}}, answer: {Body: other}}
- {ask: {s3.get_object: {Bucket: $file, Key: k}}, answer: {Body: null}}
- {ask: {s3.get_object: {Bucket: $file, Key: k}}, answer: {Body: text}, status: 206}
- {ask: {s3.get_object: {Bucket: $file, Key: k}}, error: NoSuchKey}
- {ask: {s3.get_object: {Bucket: $file, Key: none}}, answer: {Body: text}}
- {ask: {s3.get_object: {Bucket: $file, Key: none}}, error: NoSuchBucket}
- {ask: {s3.get_object: {Bucket: $file, Key: none}}, error: "NoSuchKey: another message"}
- {given: [s3.head_object: {Bucket: $file, Key: none}], ask: {s3.list_buckets: {}}, answer: {Buckets: []}}
- {ask: {s3.get_object: {Bucket: $file, Key: k}}, answer: {Body: text}, argued: no reason}
- {ask: {s3.get_object: {Bucket: $file, Key: k}}, answer: {Body: other}, argued: a reason}
"""  # noqa: E501


OUTCOMES = ("agree", "differ", "argued", "cannot be asked")


def ask_files(chosen: Iterable[File]) -> list[dict[str, str]]:
    """Ask a fresh emulator for every row of the files."""
    with (
        tempfile.TemporaryDirectory(prefix="published-") as state,
        serve_emulator(Path(state)) as endpoint,
    ):
        asker = Asker(endpoint)
        return [row for file in chosen for row in asker.judge_rows(file, file.rows)]


def test_rows_that_are_wrong_are_noticed():
    found = ask_files([read("seeded", WRONG)])
    assert [each["outcome"] for each in found] == ["agree", *["differ"] * 9, "argued"]


@pytest.mark.parametrize(
    "row",
    [
        "{ask: {s3.list_buckets: {}}}",
        "{ask: {s3.list_buckets: {}}, answer: {}}",
        "{ask: {s3.list_buckets: {}}, answer: {Name: '~ '}}",
        "{ask: {s3.list_buckets: {}, s3.head_bucket: {}}, error: NoSuchBucket}",
        "{ask: {s3.list_buckets: {}}, error: NoSuchBucket, because: it is}",
    ],
)
def test_a_row_that_cannot_fail_is_refused(row):
    with pytest.raises(RowError):
        read("seeded", f"kind: seeded\nsource: none\nrows:\n- {row}\n")


@pytest.mark.parametrize(
    ("expected", "got", "same"),
    [
        ({"a": [1, {"b": "x"}]}, {"a": [1, {"b": "x", "c": 2}], "d": 3}, True),
        ({"a": [1]}, {"a": [1, 2]}, False),
        ({"a": {"~has": {"b": 2}}}, {"a": [{"b": 1}, {"b": 2}]}, True),
        ({"a": {"~has": {"b": 3}}}, {"a": [{"b": 1}, {"b": 2}]}, False),
        ({"a": {"~json": {"b": 1}}}, {"a": '{"b": 1}'}, True),
        ({"a": {"~json": {"b": 1}}}, {"a": "{"}, False),
        ("~ ^x+$", "xx", True),
        ("~ ^x+$", None, False),
        (True, 1, False),
        (1, True, False),
        ({"a": None}, {}, True),
        ({"a": None}, {"a": 1}, False),
    ],
)
def test_what_is_published_is_part_of_the_answer(expected, got, same):
    assert (difference(expected, got) == "") is same


@pytest.mark.long
def test_the_emulator_answers_as_is_published():
    """Also prints the outcomes of each kind of source: python -m pytest -s. The corpus is as large
    as the documents say.
    """
    kinds = Counter(row.kind for file in files() for row in file.rows)
    assert kinds.total() >= 400
    assert len(kinds) >= 10
    assert max(kinds.values()) <= 60
    found = ask_files(files())
    show_outcomes(found, sorted({each["group"] for each in found}), OUTCOMES)
    counts = Counter(each["outcome"] for each in found)
    assert not [each for each in found if each["outcome"] == "differ"]
    # argued ones count as differing among those that could be asked
    assert counts["agree"] / (counts["agree"] + counts["argued"]) >= 0.95
