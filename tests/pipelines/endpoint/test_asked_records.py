"""Records come from captured requests as endpoints write them, and from files."""

import csv
import functools
import gzip
import io
import json
import operator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pipelines.endpoint import answer_quality
from pipelines.endpoint.answer_quality import (
    RecordedRequest,
    Source,
    add_captured_request,
    read_captures,
    read_record_files,
)
from pipelines.endpoint.period import compute_text_features
from tests.pipelines.upserting import clean_aws
from trainyard.common.errors import DataError
from trainyard.emulator.sagemaker.endpoints.invocations import Capture
from trainyard.emulator.sagemaker.endpoints.serving_instance import Answer

pytestmark = pytest.mark.long

CONFIG = {
    "InitialSamplingPercentage": 100,
    "CaptureOptions": [{"CaptureMode": "Input"}, {"CaptureMode": "Output"}],
    "CaptureContentTypeHeader": {"JsonContentTypes": ["application/json"]},
}


@pytest.fixture
def s3(emulator, monkeypatch: pytest.MonkeyPatch) -> Any:
    return clean_aws(emulator.env, monkeypatch)[0]


def put(s3: Any, key: str, body: bytes) -> None:
    s3.put_object(Bucket="bkt", Key=key, Body=body)


def line(asked: bytes, kind: str = "application/json", answer: bytes = b'{"p": 0.5}') -> str:
    """What the emulator's endpoint captures of a request, now."""
    reply = Answer(200, answer, "application/json")
    return Capture(None, "e", CONFIG)._format_line(asked, kind, reply, "")


def test_captured_lines_are_read_whatever_their_encoding(s3: Any):
    record, other = {"a": 1, "b": None}, {"a": 2}
    lines = [line(json.dumps({"record": record}).encode()),
             line(json.dumps(other).encode(), "application/octet-stream", b"\xff"),
             line(b"1,2", "text/csv"), line(b"[1]"), "{"]  # fmt: skip
    now = datetime.now(UTC)
    put(s3, f"c/e/v-1/{now:%Y/%m/%d/%H}/x.jsonl", "\n".join(lines).encode())
    put(s3, f"c/other/v-1/{now:%Y/%m/%d/%H}/x.jsonl", lines[0].encode())
    week = timedelta(days=7)
    found = read_captures(s3, "s3://bkt/c/e", now - week, now + timedelta(minutes=1))
    kept = [replace(asked, captured_at=None) for asked in found.requests]
    assert kept == [RecordedRequest(record, {"p": 0.5}, "v-1"), RecordedRequest(other, None, "v-1")]
    assert found.number == 2 and found.unread == 3
    assert read_captures(s3, "s3://bkt/c/e", now - week, now - timedelta(minutes=1)).number == 0


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.floats() | st.sampled_from([10**400, "", "JSON", "1", "é"]),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(st.sampled_from(["data", "encoding", "eventId", "a"]), inner, max_size=2)
    ),
    max_leaves=5,
)
PLACES = ("", "captureData", "captureData.endpointInput", "captureData.endpointInput.data",
          "captureData.endpointInput.encoding", "captureData.endpointOutput",
          "captureData.endpointOutput.data", "eventMetadata", "eventMetadata.eventId",
          "eventMetadata.inferenceTime")  # fmt: skip


@given(place=st.sampled_from(PLACES), value=ANYTHING)
@example(place="", value=[])
def test_a_line_is_a_request_or_counts_as_unread_whatever_stands_in_it(place: str, value: Any):
    event = {"": json.loads(line(b'{"a": 1}', answer=b'{"p": 0.5}'))}
    *path, last = ["", *filter(None, place.split("."))]
    functools.reduce(operator.getitem, path, event)[last] = value
    source, now = Source(truth_source=Source()), datetime.now(UTC)
    period = now - timedelta(days=1), now + timedelta(days=1)
    add_captured_request(source, json.dumps(event[""]).encode(), "v-1", period, {"1": 1.0})
    assert (source.number, source.unread, bool(source.unread_reason)) in {
        (1, 0, False),
        (0, 1, True),
    }


def read_captured_file(s3: Any, endpoint: str, body: bytes) -> Source:
    """What is read of a file that was captured now."""
    now = datetime.now(UTC)
    put(s3, f"{endpoint}/v-1/{now:%Y/%m/%d/%H}/x.jsonl", body)
    root = f"s3://bkt/{endpoint}"
    return read_captures(s3, root, now - timedelta(days=1), now + timedelta(minutes=1))


@pytest.mark.parametrize("raw", [b"[]", b"[" * 100_000, b"\xff", b'{"eventMetadata": []}'])
def test_a_line_that_is_no_event_is_counted(s3: Any, raw: bytes):
    source = read_captured_file(s3, "n/e", raw + b"\n" + line(b'{"a": 1}').encode())
    assert (source.number, source.unread) == (1, 1)


def test_a_line_ends_at_a_line_feed_alone(s3: Any):
    """A text may hold U+2028, where Python's str.splitlines ends a line."""
    text = '{"a": "x\u2028y"}'
    event = json.dumps(json.loads(line(text.encode())), ensure_ascii=False)
    put(s3, "u/a.jsonl", text.encode())
    sources = (
        read_captured_file(s3, "u/e", event.encode()),
        read_record_files(s3, "s3://bkt/u/a.jsonl"),
    )
    for source in sources:
        assert [asked.record for asked in source.requests] == [{"a": "x\u2028y"}]


def test_files_of_every_format_are_read(s3: Any):
    table = io.BytesIO()
    pq.write_table(pa.table({"a": [1.5, None], "b": ["x", "y"]}), table)
    score = {"source": "f", "line": 1, "input": {"a": 3, "b": "z"}, "answer": {"p": 0.1}}
    score |= {"kept": {"order_id": "7"}}  # no feature: the model was not asked with it
    put(s3, "b/1.csv", "\ufeffa,b\n1,é\n".encode())
    put(s3, "b/2.jsonl.gz", gzip.compress(json.dumps(score).encode() + b"\n\n"))
    put(s3, "b/3.parquet", table.getvalue())
    put(s3, "b/_SUCCESS", b"")
    requests = read_record_files(s3, "s3://bkt/b/").requests
    found = sorted(requests, key=lambda asked: str(asked.record["a"]))
    assert [asked.record for asked in found] == [
        *({"a": "1", "b": "é"}, {"a": 1.5, "b": "x"}, score["input"], {"a": None, "b": "y"})
    ]
    assert found[2].answer == {"p": 0.1}


@pytest.mark.parametrize(
    ("name", "body", "said"),
    [
        ("a.xlsx", b"PK", "b/a.xlsx: format .xlsx is not supported; .*CSV with a header"),
        ("a.jsonl", b"{", "b/a.jsonl: Expecting"),
        ("a.jsonl", b"[1]", "b/a.jsonl: "),
        ("a.parquet", b"none", "b/a.parquet: "),
        ("a.csv", b"a,b\n", "holds no records"),
        ("a.csv", b"a\n" + b"0" * 100 + b"\n", "b/a.csv: field larger than field limit"),
        ("a.csv.gz", gzip.compress(b"a\n1\n" * 99, mtime=0)[:-9], "b/a.csv.gz: "),
        ("a.jsonl", b"[" * 100_000, "b/a.jsonl: "),
    ],
)
def test_a_baseline_that_cannot_be_read_is_named(s3: Any, name: str, body: bytes, said: str):
    put(s3, f"b/{name}", body)
    limit = csv.field_size_limit(99)
    try:
        with pytest.raises(DataError, match=said):
            read_record_files(s3, "s3://bkt/b/")
    finally:
        csv.field_size_limit(limit)


def test_of_much_traffic_a_fair_sample_is_kept(s3: Any, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(answer_quality, "MOST", 500)
    put(s3, "b/a.csv", b"a\n" + b"".join(b"%d\n" % n for n in range(5000)))
    found = read_record_files(s3, "s3://bkt/b/a.csv")
    kept = [int(one.record["a"]) for one in found.requests]
    assert found.number == 5000 and len(set(kept)) == 500
    assert abs(sum(kept) / 500 - 2500) < 4 * 1443 / 500**0.5


def test_captured_requests_are_in_the_order_of_time_and_those_of_a_file_are_not(s3: Any):
    """Halves of a baseline are compared: a file may be sorted by what it is asked about."""
    now = datetime.now(UTC).replace(microsecond=0)
    for variant, hours in (("v-1", (1, 3)), ("v-2", (2, 4))):
        for hour in hours:
            at = now - timedelta(hours=hour)
            event = json.loads(line(json.dumps({"a": hour}).encode()))
            event["eventMetadata"]["inferenceTime"] = f"{at:%Y-%m-%dT%H:%M:%SZ}"
            put(s3, f"o/e/{variant}/{at:%Y/%m/%d/%H}/x.jsonl", json.dumps(event).encode())
    kept = read_captures(s3, "s3://bkt/o/e", now - timedelta(days=1), now).requests
    assert [asked.record["a"] for asked in kept] == [4, 3, 2, 1]
    put(s3, "b/a.csv", b"a\n" + b"".join(b"%d\n" % n for n in range(1000)))
    requests = read_record_files(s3, "s3://bkt/b/a.csv").requests
    values = [int(asked.record["a"]) for asked in requests]
    assert abs(sum(values[:500]) / 500 - 500) < 50


def test_a_text_becomes_numbers():
    found = compute_text_features({"text": "é 12", "n": 3})
    assert found == {"text.bytes": 5, "text.letters": 0.25, "text.digits": 0.5,
                     "text.spaces": 0.25, "text.not_ascii": 0.25}  # fmt: skip
    assert compute_text_features({"text": ""})["text.letters"] == 0
