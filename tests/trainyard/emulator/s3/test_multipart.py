"""Multipart uploads: checksums are verified, stored and returned; completing twice is one
completion.
"""

import base64
import hashlib
import io
import os
from concurrent.futures import ThreadPoolExecutor

import pytest
from boto3.s3.transfer import TransferConfig
from botocore.exceptions import ClientError
from hypothesis import given
from hypothesis import strategies as st

from trainyard.emulator.s3.upload_body import (
    ALGORITHMS,
    LINEAR,
    compute_composite_checksum,
    compute_full_object_checksum,
    encode_checksum,
)

pytestmark = pytest.mark.long

MIB = 1 << 20
PARTS = [os.urandom(5 * MIB), b"tail"]


def compute_encoded_sum(name: str, data: bytes) -> str:
    found = ALGORITHMS[name]()
    found.update(data)
    return encode_checksum(found)


CHECKS = {
    "crc32": "cbf43926",
    "crc32c": "e3069283",
    "crc64nvme": "ae8b14860a799888",
    "md5": "25f9e794323b453885f5181f1b624d0b",
}
"""The check values of "123456789" in the RevEng catalogue, RFC 1321, FIPS 180."""


@pytest.mark.parametrize(("name", "check"), CHECKS.items())
def test_each_checksum_has_its_published_check_value(name: str, check: str):
    assert base64.b64decode(compute_encoded_sum(name, b"123456789")).hex() == check


@given(data=st.binary(max_size=40), repeat=st.integers(1, 300), cut=st.integers(0, 12_000))
def test_a_crc_is_the_same_however_the_bytes_come_and_follows_from_its_parts(data, repeat, cut):
    whole = data * repeat
    for name in LINEAR:
        steps = ALGORITHMS[name]()
        for part in (whole[:cut], whole[cut:]):
            steps.update(part)
        plain = ALGORITHMS[name]()
        for at in range(0, len(whole), 700):  # below the size that is taken in lanes
            plain.update(whole[at : at + 700])
        assert encode_checksum(steps) == encode_checksum(plain)
        parts = [(compute_encoded_sum(name, p), len(p)) for p in (whole[:cut], whole[cut:])]
        assert compute_full_object_checksum(name, parts) == encode_checksum(plain)


@pytest.fixture
def s3(client):
    s3 = client("s3")
    s3.create_bucket(Bucket="parts")
    return s3


def test_parallel_transfers_and_copies_keep_every_byte(s3):
    data = os.urandom(11 * MIB)
    config = TransferConfig(multipart_threshold=5 * MIB, multipart_chunksize=5 * MIB)
    s3.upload_fileobj(io.BytesIO(data), "parts", "a", Config=config)
    s3.copy({"Bucket": "parts", "Key": "a"}, "parts", "in/parts", Config=config)
    source = {"Bucket": "parts", "Key": "in/parts"}
    s3.copy_object(Bucket="parts", Key="at once é", CopySource=source)
    got = io.BytesIO()
    s3.download_fileobj("parts", "at once é", got, Config=config)
    assert got.getvalue() == data


def failure(call, **arguments) -> str:
    with pytest.raises(ClientError) as failed:
        call(**arguments)
    return failed.value.response["Error"]["Code"]


def upload(s3, key: str, **more) -> tuple[dict, list[dict]]:
    """Upload parts; return (place, parts as CompleteMultipartUpload names them)."""
    started = s3.create_multipart_upload(Bucket="parts", Key=key, **more)
    at = {"Bucket": "parts", "Key": key, "UploadId": started["UploadId"]}
    name = more.get("ChecksumAlgorithm", "CRC32")
    parts = []
    for number, data in ((2, PARTS[1]), (1, PARTS[0])):
        # what botocore cannot compute without awscrt is given to it
        own = {f"Checksum{name}": compute_encoded_sum(name.lower(), data)}
        done = s3.upload_part(**at, PartNumber=number, Body=data, **own)
        kept = f"Checksum{name}"
        parts.insert(0, {"PartNumber": number, "ETag": done["ETag"], kept: done[kept]})
    return at, parts


@pytest.mark.parametrize(
    ("name", "kind"),
    [("CRC32", "COMPOSITE"), ("CRC32C", "FULL_OBJECT"), ("CRC64NVME", "FULL_OBJECT"),
     ("SHA1", "COMPOSITE"), ("SHA256", "COMPOSITE")],
)  # fmt: skip
def test_checksums_of_parts_and_of_the_whole(s3, name: str, kind: str):
    wanted = {"ChecksumAlgorithm": name, "ChecksumType": kind}
    at, parts = upload(s3, f"{name}-{kind}", **wanted)
    of_parts = [compute_encoded_sum(name.lower(), part) for part in PARTS]
    is_full = kind == "FULL_OBJECT"
    whole = (
        compute_encoded_sum(name.lower(), b"".join(PARTS))
        if is_full
        else compute_composite_checksum(name.lower(), of_parts)
    )
    field, chosen = f"Checksum{name}", {"MultipartUpload": {"Parts": parts}}
    wrong = {field: compute_encoded_sum(name.lower(), b"other")}
    assert failure(s3.complete_multipart_upload, **at, **chosen, **wrong) == "BadDigest"
    bad = {"MultipartUpload": {"Parts": [{**parts[0], **wrong}, parts[1]]}}
    assert failure(s3.complete_multipart_upload, **at, **bad) == "InvalidPart"
    done = s3.complete_multipart_upload(**at, **chosen, **{field: whole})
    assert done[field] == whole
    where = {"Bucket": "parts", "Key": at["Key"], "ChecksumMode": "ENABLED"}
    head = s3.head_object(**where)
    assert (head[field], head["ChecksumType"]) == (whole, kind)
    first = s3.head_object(**where, PartNumber=1)
    shown = first[field], first["PartsCount"], first["ContentLength"]
    assert shown == (of_parts[0], 2, len(PARTS[0]))


@pytest.mark.parametrize(
    ("name", "kind"),
    [("CRC64NVME", "COMPOSITE"), ("SHA1", "FULL_OBJECT"), ("SHA256", "FULL_OBJECT")],
)
def test_a_kind_of_checksum_that_the_algorithm_has_not_is_refused(s3, name: str, kind: str):
    asked = {"Bucket": "parts", "Key": "k", "ChecksumAlgorithm": name, "ChecksumType": kind}
    assert failure(s3.create_multipart_upload, **asked) == "InvalidRequest"


def test_a_part_with_another_checksum_than_the_upload_or_than_it_says_is_refused(s3):
    started = s3.create_multipart_upload(Bucket="parts", Key="w", ChecksumAlgorithm="SHA256")
    at = {"Bucket": "parts", "Key": "w", "UploadId": started["UploadId"], "PartNumber": 1}
    other = compute_encoded_sum("crc32", b"x")
    assert failure(s3.upload_part, **at, Body=b"x", ChecksumCRC32=other) == "InvalidRequest"
    wrong = base64.b64encode(hashlib.sha256(b"y").digest()).decode()
    assert failure(s3.upload_part, **at, Body=b"x", ChecksumSHA256=wrong) == "BadDigest"
    copied = s3.put_object(Bucket="parts", Key="source", Body=b"0123456789")
    assert copied["ETag"]
    part = s3.upload_part_copy(
        **at, CopySource={"Bucket": "parts", "Key": "source"}, CopySourceRange="bytes=2-4"
    )["CopyPartResult"]
    assert part["ChecksumSHA256"] == compute_encoded_sum("sha256", b"234")
    for wrong in ("bytes=2-", "2-4", "bytes=4-2", "bytes=0-10"):
        source = {"CopySource": {"Bucket": "parts", "Key": "source"}, "CopySourceRange": wrong}
        assert failure(s3.upload_part_copy, **at, **source) in ("InvalidArgument", "InvalidRange")


def test_an_upload_is_no_object_before_its_parts_are_named_in_order(s3, endpoint):
    data = endpoint.app.objects.root / "data"
    before = len(list(data.glob("*/*")))
    at, [first, second] = upload(s3, "parts-1-2", Metadata={"a": "b"})
    assert [p["PartNumber"] for p in s3.list_parts(**at, MaxParts=1)["Parts"]] == [1]
    assert "Contents" not in s3.list_objects_v2(Bucket="parts", Prefix="parts-1-2")
    missing = {"PartNumber": 4, "ETag": '"0"'}
    for chosen, wrong in (([first, missing], "InvalidPart"), ([second, first], "InvalidPartOrder")):
        named = {"MultipartUpload": {"Parts": chosen}}
        assert failure(s3.complete_multipart_upload, **at, **named) == wrong
    done = s3.complete_multipart_upload(**at, MultipartUpload={"Parts": [first, second]})
    assert done["ETag"].endswith('-2"')
    got = s3.get_object(Bucket="parts", Key="parts-1-2")
    assert (got["Body"].read(), got["Metadata"]) == (b"".join(PARTS), {"a": "b"})
    assert failure(s3.list_parts, **at) == "NoSuchUpload"
    s3.delete_object(Bucket="parts", Key="parts-1-2")
    at, _ = upload(s3, "aborted")
    s3.abort_multipart_upload(**at)
    assert len(list(data.glob("*/*"))) == before
    assert failure(s3.upload_part, **at, PartNumber=2, Body=b"late") == "NoSuchUpload"


def test_a_repeated_complete_is_answered_again_and_does_not_undo_what_came_after(s3):
    at, parts = upload(s3, "twice")
    chosen = {"MultipartUpload": {"Parts": parts}}
    first = s3.complete_multipart_upload(**at, **chosen)
    assert s3.complete_multipart_upload(**at, **chosen)["ETag"] == first["ETag"]
    s3.put_object(Bucket="parts", Key="twice", Body=b"newer")
    assert failure(s3.complete_multipart_upload, **at, **chosen) == "NoSuchUpload"
    assert s3.get_object(Bucket="parts", Key="twice")["Body"].read() == b"newer"


def test_an_upload_that_is_ended_many_times_at_once_makes_one_version(s3):
    versioned = {"Bucket": "parts", "VersioningConfiguration": {"Status": "Enabled"}}
    at, parts = upload(s3, "once")
    s3.put_bucket_versioning(**versioned)
    try:
        with ThreadPoolExecutor(6) as threads:
            named = {"MultipartUpload": {"Parts": parts}}
            ends = threads.map(lambda _: s3.complete_multipart_upload(**at, **named), range(6))
            assert len({end["VersionId"] for end in ends}) == 1
    finally:
        versioned["VersioningConfiguration"]["Status"] = "Suspended"
        s3.put_bucket_versioning(**versioned)


def test_a_condition_on_the_end_of_an_upload_holds_and_the_upload_can_still_end(s3):
    s3.put_object(Bucket="parts", Key="cond", Body=b"1")
    at, parts = upload(s3, "cond")
    chosen = {"MultipartUpload": {"Parts": parts}}
    for condition in ({"IfMatch": '"0"'}, {"IfNoneMatch": "*"}):
        said = failure(s3.complete_multipart_upload, **at, **chosen, **condition)
        assert said == "PreconditionFailed"
    s3.complete_multipart_upload(**at, **chosen)
    assert failure(s3.get_object, Bucket="parts", Key="cond", PartNumber=3) == "InvalidPartNumber"
    got = s3.get_object(Bucket="parts", Key="cond", PartNumber=2)
    assert got["Body"].read() == b"tail"
    assert got["ContentRange"] == f"bytes {5 * MIB}-{5 * MIB + 3}/{5 * MIB + 4}"
