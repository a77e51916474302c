"""Damaged bytes leave the store by no way, and the object is named with what was found."""

import io
import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from botocore.exceptions import ClientError, IncompleteReadError
from hypothesis import given
from hypothesis import strategies as st

from tests.trainyard.emulator.harness import (
    ROLE,
    Cloud,
    channel,
    cloud,
    pipeline,
    process_step,
    s3_input,
    until,
)
from tests.trainyard.emulator.sagemaker.endpoints.test_endpoints import (
    LIGHT,
    deploy,
    package,
    wait_for_endpoint,
)
from tests.trainyard.emulator.sagemaker.jobs.test_transform_job import DOUBLE, transform
from tests.trainyard.emulator.test_lambda_ import make, zip_function
from trainyard.emulator.request_scope import ApiError
from trainyard.emulator.s3.object_folder import BLOCK, BlockSums, StoredBytes
from trainyard.emulator.s3.object_store import ObjectStore

pytestmark = pytest.mark.long
SIZE = 50_000


def cut(path: Path) -> None:
    os.truncate(path, 20_000)


def flip(path: Path, offset: int = 30_000) -> None:
    """Change one bit: the size is as before."""
    with path.open("r+b") as file:
        file.seek(offset)
        byte = file.read(1)[0]
        file.seek(offset)
        file.write(bytes([byte ^ 4]))


def grow(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b"x")


DAMAGES = {
    cut: "50,000 bytes expected, 20,000 found",
    flip: "its 50,000 bytes are not those that were put, from 0 to 50,000: CRC-32",
    grow: "50,000 bytes expected, 50,001 found",
    Path.unlink: "50,000 bytes expected, no file found",
}


@pytest.fixture(scope="module")
def aws(tmp_path_factory: pytest.TempPathFactory):
    with cloud(tmp_path_factory.mktemp("aws")) as running:
        yield running


def put(aws: Cloud, key: str, data: bytes, damage: Callable[[Path], object]) -> None:
    aws.put(key, data)
    damage(aws.endpoint.app.objects.locate_file("bkt", key))


def body() -> bytes:
    return os.urandom(SIZE)


def read_internal_error(call: Callable, **request: object) -> str:
    """Return the message of S3's InternalError."""
    with pytest.raises(ClientError) as failure:
        call(**request)
    answer = failure.value.response
    assert answer["Error"]["Code"] == "InternalError"
    assert answer["ResponseMetadata"]["HTTPStatusCode"] == 500
    return answer["Error"]["Message"]


@pytest.mark.parametrize("damage", DAMAGES, ids=["cut", "flip", "grow", "unlink"])
def test_s3_answers_an_internal_error_that_names_the_object(aws: Cloud, damage, caplog):
    put(aws, "x", body(), damage)
    source = {"Bucket": "bkt", "Key": "x"}
    message = read_internal_error(aws.s3.get_object, **source)
    assert f"s3://bkt/x is damaged: {DAMAGES[damage]}" in message and "put it again" in message
    file = aws.endpoint.app.objects.locate_file("bkt", "x")  # of no concern to a client
    assert any("s3://bkt/x is damaged" in m and str(file) in m for m in caplog.messages)
    assert str(file) not in message
    assert message == read_internal_error(aws.s3.get_object, **source, Range="bytes=29999-30000")
    for change in ({}, {"ChecksumAlgorithm": "SHA256"}):  # the copy's bytes are read, or not
        copy = {"Bucket": "bkt", "Key": "copy", "CopySource": source, **change}
        assert message == read_internal_error(aws.s3.copy_object, **copy)
    upload = {"Bucket": "bkt", "Key": "joined"}
    upload["UploadId"] = aws.s3.create_multipart_upload(**upload)["UploadId"]
    assert message == read_internal_error(
        aws.s3.upload_part_copy, **upload, PartNumber=1, CopySource=source
    )
    assert aws.keys("copy") == aws.keys("joined") == []
    assert "Parts" not in aws.s3.list_parts(**upload)
    put(aws, "x", body(), lambda path: None)
    assert len(aws.get("x")) == SIZE


def test_a_job_fails_with_that_reason(aws: Cloud):
    put(aws, "in/x", body(), flip)
    inputs = {"ProcessingInputs": [s3_input("in", "s3://bkt/in")]}
    channels = {"InputDataConfig": [channel("in", "s3://bkt/in")]}
    for job in (aws.process("p", "true", **inputs), aws.train("t", "true", **channels)):
        assert job["FailureReason"].startswith("InternalServerError: We encountered an internal")
        assert f"s3://bkt/in/x is damaged: {DAMAGES[flip]}" in job["FailureReason"]


@pytest.mark.slow
def test_a_model_and_an_input_of_a_transform_are_checked(aws: Cloud):
    put(aws, "m/model.tar.gz", package(DOUBLE), lambda path: flip(path, 40))
    deploy(aws, "m", None)
    assert "s3://bkt/m/model.tar.gz is damaged" in wait_for_endpoint(aws, "m")["FailureReason"]
    aws.put("double/model.tar.gz", package(DOUBLE))
    container = {
        "Image": LIGHT,
        "ModelDataUrl": "s3://bkt/double/model.tar.gz",
        "Environment": {"SAGEMAKER_PROGRAM": "inference.py"},
    }
    aws.sm.create_model(ModelName="double", PrimaryContainer=container, ExecutionRoleArn=ROLE)
    put(aws, "rows/a.csv", b"1,2\n" * 9000, flip)
    reason = transform(aws, "rows", "rows/")["FailureReason"]
    assert "InternalServerError" in reason and "s3://bkt/rows/a.csv is damaged" in reason


def test_code_a_definition_and_a_file_that_a_pipeline_reads_are_checked(aws: Cloud):
    put(aws, "code.zip", zip_function(), lambda path: flip(path, 60))
    with pytest.raises(ClientError, match=r"s3://bkt/code\.zip is damaged"):
        make(aws, "f", Code={"S3Bucket": "bkt", "S3Key": "code.zip"})
    text = json.dumps(pipeline([process_step("A", "true")]))
    put(aws, "definition", text.encode(), lambda path: flip(path, 5))
    with pytest.raises(ClientError, match=r"s3://bkt/definition is damaged"):
        aws.sm.create_pipeline(
            PipelineName="p", RoleArn=ROLE, ClientRequestToken="t" * 32,
            PipelineDefinitionS3Location={"Bucket": "bkt", "ObjectKey": "definition"},
        )  # fmt: skip
    put(aws, "list", json.dumps([{"prefix": "s3://bkt/"}, "x"]).encode(), lambda p: flip(p, 3))
    named = s3_input("in", "s3://bkt/list")
    named["S3Input"]["S3DataType"] = "ManifestFile"
    found = aws.process("named", "true", ProcessingInputs=[named])
    assert "s3://bkt/list is damaged" in found["FailureReason"]


def test_a_damaged_output_is_no_answer_from_the_cache(aws: Cloud):
    step = process_step(
        "A", "date > /opt/ml/processing/out/x", outputs={"out": "s3://bkt/cached"},
        CacheConfig={"Enabled": True, "ExpireAfter": "P1D"},
    )  # fmt: skip
    aws.create("cached", [step])
    assert "CacheHitResult" not in aws.run("cached")[1]["A"]
    assert "CacheHitResult" in aws.run("cached")[1]["A"]
    os.truncate(aws.endpoint.app.objects.locate_file("bkt", "cached/x"), 3)
    assert "CacheHitResult" not in aws.run("cached")[1]["A"]
    assert len(aws.get("cached/x")) > 3


def test_of_a_large_object_what_is_whole_is_given_and_no_more(aws: Cloud, caplog, capfd):
    data = os.urandom(20 * BLOCK + 5)
    put(aws, "large", data, lambda path: flip(path, 12 * BLOCK + 7))
    named = {"Bucket": "bkt", "Key": "large"}
    for first, last in ((0, 9), (BLOCK - 3, 12 * BLOCK - 1), (13 * BLOCK, 20 * BLOCK + 4)):
        part = aws.s3.get_object(**named, Range=f"bytes={first}-{last}")["Body"].read()
        assert part == data[first : last + 1]
    assert "from 12,582,912 to 13,631,488" in read_internal_error(
        aws.s3.get_object, **named, Range=f"bytes={5 * BLOCK}-{13 * BLOCK}"
    )
    found = aws.s3.get_object(**named)["Body"]  # its answer has begun when the damage is met
    got = bytearray()
    with pytest.raises(IncompleteReadError):
        for chunk in found.iter_chunks(BLOCK):
            got += chunk
    assert data.startswith(got) and len(got) <= 12 * BLOCK
    until(lambda: "GET /bkt/large was interrupted" in caplog.text)
    assert "Traceback" not in capfd.readouterr().err
    with pytest.raises(ClientError):
        aws.s3.copy_object(Bucket="bkt", Key="copy", CopySource=named)


def test_a_damaged_part_of_an_upload_becomes_no_object(aws: Cloud):
    upload = {"Bucket": "bkt", "Key": "parts"}
    upload["UploadId"] = aws.s3.create_multipart_upload(**upload)["UploadId"]
    before = {*aws.endpoint.app.objects.root.glob("data/*/*.transit")}
    part = aws.s3.upload_part(**upload, PartNumber=1, Body=body())
    [path] = {*aws.endpoint.app.objects.root.glob("data/*/*.transit")} - before
    flip(path)
    parts = {"Parts": [{"PartNumber": 1, "ETag": part["ETag"]}]}
    assert "is damaged" in read_internal_error(
        aws.s3.complete_multipart_upload, **upload, MultipartUpload=parts
    )
    assert aws.keys("parts") == []


@given(st.lists(st.binary(max_size=9), max_size=9), st.data())
def test_bytes_are_those_that_were_put_however_they_are_read(tmp_path_factory, chunks, data):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("trainyard.emulator.s3.object_folder.BLOCK", 4)
        whole, sums = b"".join(chunks), BlockSums()
        for chunk in chunks:
            sums.update(chunk)
        path = tmp_path_factory.mktemp("bytes") / "x"
        path.write_bytes(whole)
        start = data.draw(st.integers(0, len(whole)))
        stop = data.draw(st.integers(start, len(whole)))
        with StoredBytes("x", path, len(whole), sums.to_bytes()) as stored:
            assert b"".join(stored.iter_chunks(start, stop)) == whole[start:stop]
            assert stored.read() == whole
            file = io.BufferedReader(stored, 3)
            file.seek(start)
            assert file.read(stop - start) == whole[start:stop]
        if whole:
            offset = data.draw(st.integers(0, len(whole) - 1))
            flip(path, offset)
            with (
                StoredBytes("x", path, len(whole), sums.to_bytes()) as stored,
                pytest.raises(ApiError, match="x is damaged"),
            ):
                stored.read()


def test_no_descriptor_stays_open(tmp_path: Path):
    store = ObjectStore(tmp_path)
    store.create_bucket("bucket")
    store.put_bytes("bucket", "k", b"abc")
    os.truncate(store.locate_file("bucket", "k"), 2)
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        with pytest.raises(ApiError):
            store.open("bucket", "k")
    assert len(os.listdir("/proc/self/fd")) == before
    store.close()
