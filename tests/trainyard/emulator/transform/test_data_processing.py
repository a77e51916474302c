"""DataProcessing: filters and joins, and jobs that cannot have them."""

import pytest

from trainyard.emulator.transform.data_processing import DataProcessing

CSV = {"ContentType": "text/csv", "SplitType": "Line"}
LINES = {"ContentType": "application/jsonlines", "SplitType": "Line"}


def through(asked: dict, source: dict, record: bytes, answer: bytes) -> tuple[bytes, bytes]:
    output = {"Accept": source["ContentType"], "AssembleWith": "Line"}
    processing = DataProcessing(asked, source, output)
    return processing.asked(record), processing.result(record, answer)


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
        ({"InputFilter": "$..x"}, CSV, {}, "no operator"),
    ],
)  # fmt: skip
def test_a_job_that_cannot_have_it_is_refused(asked, source, output, says):
    with pytest.raises(ValueError, match=says):
        DataProcessing(asked, source, output)


def test_a_record_of_another_kind_is_named():
    with pytest.raises(ValueError, match="no application/jsonlines"):
        through({"InputFilter": "$.x"}, LINES, b"not json", b"1")
