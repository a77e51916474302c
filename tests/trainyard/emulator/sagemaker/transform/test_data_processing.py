"""DataProcessing: filters and joins, and jobs that cannot have them."""

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainyard.emulator.sagemaker.transform.object_transform import (
    DataProcessing,
    PathError,
    TooLarge,
    compile_filter,
    iter_batches,
    iter_records,
    split_answer,
)

CSV = {"ContentType": "text/csv", "SplitType": "Line"}
LINES = {"ContentType": "application/jsonlines", "SplitType": "Line"}


def through(asked: dict, source: dict, record: bytes, answer: bytes) -> tuple[bytes, bytes]:
    output = {"Accept": source["ContentType"], "AssembleWith": "Line"}
    processing = DataProcessing(asked, source, output)
    return processing.filter_input(record), processing.build_result(record, answer)


@pytest.mark.parametrize(
    ("asked", "source", "record", "answer", "expected"),
    [
        ({}, CSV, b"a,1,2", b"0.5", (b"a,1,2", b"0.5")),
        ({"InputFilter": "$[1:]"}, CSV, b"a,1,2", b"0.5", (b"1,2", b"0.5")),
        ({"InputFilter": "$[1:]", "JoinSource": "Input"}, CSV, b'"a, b",1,2', b"0.5",
         (b"1,2", b'"a, b",1,2,0.5')),
        ({"JoinSource": "Input", "OutputFilter": "$[0,-1]"}, CSV, b'"a, b",1,2', b"0.5",
         (b'"a, b",1,2', b'"a, b",0.5')),
        ({"OutputFilter": "$[1]"}, CSV, b"a", b"0.5,0.6", (b"a", b"0.6")),
        ({"InputFilter": "$.x", "JoinSource": "Input"}, LINES, b'{"id": 1, "x": [2]}', b"[3]",
         (b"[2]", b'{"id": 1, "x": [2], "SageMakerOutput": [3]}')),
        ({"JoinSource": "Input"}, LINES, b"[2]", b"[3]",
         (b"[2]", b'{"SageMakerInput": [2], "SageMakerOutput": [3]}')),
        ({"JoinSource": "Input", "OutputFilter": "$['id','SageMakerOutput']"}, LINES,
         b'{"id": 1, "x": 2}', b"3", (b'{"id": 1, "x": 2}', b'{"id": 1, "SageMakerOutput": 3}')),
    ],
)  # fmt: skip
def test_a_record_is_filtered_joined_and_filtered_again(asked, source, record, answer, expected):
    assert through(asked, source, record, answer) == expected


@pytest.mark.parametrize(
    ("asked", "source", "output", "says"),
    [
        ({"JoinSource": "Input"}, CSV, {"Accept": "application/json", "AssembleWith": "Line"},
         "Accept"),
        ({"JoinSource": "Input"}, CSV, {"Accept": "text/csv"}, "AssembleWith None"),
        ({"InputFilter": "$[1:]"}, {"ContentType": "image/png"}, {}, "ContentType 'image/png'"),
        ({"InputFilter": "$..x"}, CSV, {}, "not an operator"),
    ],
)  # fmt: skip
def test_a_job_that_cannot_have_it_is_refused(asked, source, output, says):
    with pytest.raises(ValueError, match=says):
        DataProcessing(asked, source, output)


RECORD = {"id": 7, "features": [1, 2, 3, 4, 5, 6], "more": {"a": 1, "b": 2}}
ROW = ["x", "1", "2", "3"]


@pytest.mark.parametrize(
    ("path", "record", "expected"),
    [
        ("$", RECORD, RECORD),
        ("$.more.b", RECORD, 2),
        ("$['id']", RECORD, 7),
        ("$['id','features']", RECORD, {"id": 7, "features": RECORD["features"]}),
        ("$.more.['a','b']", RECORD, {"a": 1, "b": 2}),
        ("$.more.*", RECORD, [1, 2]),
        ("$.features[*]", RECORD, RECORD["features"]),
        ("$[1:]", ROW, ["1", "2", "3"]),
        ("$[:-1]", ROW, ["x", "1", "2"]),
        ("$[-1]", ROW, "3"),
        ("$[0,2:]", ROW, ["x", "2", "3"]),
        ("$.features[2:5]", RECORD, [3, 4, 5]),
    ],
)
def test_a_filter_takes_what_its_path_says(path, record, expected):
    assert compile_filter(path)(record) == expected


@pytest.mark.parametrize(
    ("path", "record", "says"),
    [
        ("features", {}, "expected a JSONPath"),
        ("$" + ".a" * 40, {}, "expected a JSONPath of at most"),
        ("$..x", {}, "not an operator"),
        ("$['a'", {}, "not an operator"),
        ("$[?(@.a)]", {}, "neither names in quotes nor numbers"),
        ("$.no", RECORD, "'no' is missing"),
        ("$[9]", ROW, "outside an array of 4"),
        ("$[0]", RECORD, "not an array"),
    ],
)
def test_what_is_no_path_and_a_record_that_it_does_not_fit_are_refused(path, record, says):
    with pytest.raises(PathError, match=says):
        compile_filter(path)(record)


def test_a_record_of_another_kind_is_named():
    with pytest.raises(ValueError, match="not application/jsonlines"):
        through({"InputFilter": "$.x"}, LINES, b"not json", b"1")


LINES_test_records = st.lists(st.binary(max_size=9).filter(lambda b: b"\n" not in b), min_size=1)


@given(LINES_test_records, st.booleans(), st.integers(9, 40))
def test_batches_keep_every_record_in_its_order_and_fit(lines, many, limit):
    found = list(iter_batches(lines, many, limit))
    assert [record for batch in found for record in batch] == lines
    assert all(len(b"\n".join(batch)) <= limit for batch in found)
    assert many or all(len(batch) == 1 for batch in found)
    if many:  # none could have taken the next one's first record
        for one, two in zip(found, found[1:], strict=False):
            assert len(b"\n".join([*one, two[0]])) > limit


@given(LINES_test_records)
def test_a_line_is_a_record_with_or_without_an_end(lines):
    text = b"\n".join(lines) + b"\n"
    assert list(iter_records(io.BytesIO(text), "Line")) == lines
    assert list(iter_records(io.BytesIO(text), "None")) == [text]


def test_a_record_that_is_too_large_is_named():
    with pytest.raises(TooLarge, match="record 1 has 5 bytes"):
        list(iter_batches([b"a", b"aaaaa"], True, 4))


@pytest.mark.parametrize(
    ("answer", "kind", "asked", "expected"),
    [
        (b"1\n2\n", "text/csv", 2, [b"1", b"2"]),
        (b"1\n2", "text/csv; charset=utf-8", 2, [b"1", b"2"]),
        (b"[1, [2]]", "application/json", 2, [b"1", b"[2]"]),
        (b'{"predictions": [1, 2]}', "application/json", 2, [b"1", b"2"]),
        (b'{"a": 1}\n{"a": 2}', "application/json", 2, [b'{"a": 1}', b'{"a": 2}']),
        (b"[1, 2]", "application/json", 1, [b"[1, 2]"]),
    ],
)
def test_an_answer_falls_into_its_records(answer, kind, asked, expected):
    assert split_answer(answer, kind, asked) == expected
