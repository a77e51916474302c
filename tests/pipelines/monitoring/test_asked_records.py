"""Records come from captured requests as endpoints write them, and from files."""

import gzip
import io
import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipelines.monitoring import asked_records
from pipelines.monitoring.asked_records import Asked, captured, of_files
from pipelines.monitoring.text_features import of_texts
from tests.pipelines.upserting import clean_aws
from trainyard.common.errors import DataError
from trainyard.emulator.serving.invocations import Capture
from trainyard.emulator.serving.serving_instance import Answer

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
    return Capture(None, "e", CONFIG)._line(asked, kind, reply, "")


def test_captured_lines_are_read_whatever_their_encoding(s3: Any):
    record, other = {"a": 1, "b": None}, {"a": 2}
    lines = [
        line(json.dumps({"record": record}).encode()),
        line(json.dumps(other).encode(), "application/octet-stream", b"\xff"),
        line(b"1,2", "text/csv"),
        line(b"[1]"),
        "{",
    ]
    now = datetime.now(UTC)
    put(s3, f"c/e/v-1/{now:%Y/%m/%d/%H}/x.jsonl", "\n".join(lines).encode())
    put(s3, f"c/other/v-1/{now:%Y/%m/%d/%H}/x.jsonl", lines[0].encode())
    week = timedelta(days=7)
    found = captured(s3, "s3://bkt/c/e", now - week, now + timedelta(minutes=1))
    assert found.kept == [Asked(record, {"p": 0.5}, "v-1"), Asked(other, None, "v-1")]
    assert found.number == 2 and found.unread == 3
    assert captured(s3, "s3://bkt/c/e", now - week, now - timedelta(minutes=1)).number == 0


def test_files_of_every_format_are_read(s3: Any):
    table = io.BytesIO()
    pq.write_table(pa.table({"a": [1.5, None], "b": ["x", "y"]}), table)
    score = {"source": "f", "line": 1, "input": {"a": 3, "b": "z"}, "answer": {"p": 0.1}}
    put(s3, "b/1.csv", "\ufeffa,b\n1,é\n".encode())
    put(s3, "b/2.jsonl.gz", gzip.compress(json.dumps(score).encode() + b"\n\n"))
    put(s3, "b/3.parquet", table.getvalue())
    put(s3, "b/_SUCCESS", b"")
    found = of_files(s3, "s3://bkt/b/").kept
    assert [one.record for one in found] == [
        *({"a": "1", "b": "é"}, score["input"], {"a": 1.5, "b": "x"}, {"a": None, "b": "y"})
    ]
    assert found[1].answer == {"p": 0.1}


@pytest.mark.parametrize(
    ("name", "body", "said"),
    [
        ("a.xlsx", b"PK", "b/a.xlsx: format .xlsx is not read; .*CSV with a header"),
        ("a.jsonl", b"{", "b/a.jsonl: Expecting"),
        ("a.jsonl", b"[1]", "b/a.jsonl: "),
        ("a.parquet", b"none", "b/a.parquet: "),
        ("a.csv", b"a,b\n", "holds no records"),
    ],
)
def test_a_baseline_that_cannot_be_read_is_named(s3: Any, name: str, body: bytes, said: str):
    put(s3, f"b/{name}", body)
    with pytest.raises(DataError, match=said):
        of_files(s3, "s3://bkt/b/")


def test_of_much_traffic_a_fair_sample_is_kept(s3: Any, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(asked_records, "MOST", 500)
    put(s3, "b/a.csv", b"a\n" + b"".join(b"%d\n" % n for n in range(5000)))
    found = of_files(s3, "s3://bkt/b/a.csv")
    kept = [int(one.record["a"]) for one in found.kept]
    assert found.number == 5000 and len(set(kept)) == 500
    assert abs(sum(kept) / 500 - 2500) < 4 * 1443 / 500**0.5


def test_a_text_becomes_numbers():
    found = of_texts({"text": "é 12", "n": 3})
    assert found == {"text.bytes": 5, "text.letters": 0.25, "text.digits": 0.5,
                     "text.spaces": 0.25, "text.not_ascii": 0.25}  # fmt: skip
    assert of_texts({"text": ""})["text.letters"] == 0
