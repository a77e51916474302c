"""S3 through boto3: objects are read back as they were put, in whole, in ranges, in parts, in
pages.
"""

import io
import os
import urllib.request
from concurrent.futures import ThreadPoolExecutor

import boto3
import pytest
from boto3.s3.transfer import TransferConfig
from botocore.config import Config
from botocore.exceptions import ClientError, EndpointConnectionError
from hypothesis import given
from hypothesis import strategies as st

from tests.trainyard.emulator.standin import signed
from trainyard.emulator.s3 import list_objects
from trainyard.emulator.s3.buckets import Buckets
from trainyard.emulator.s3.object_requests import Objects
from trainyard.emulator.s3.operation_routes import ROUTES, operation

pytestmark = pytest.mark.long

MIB = 1 << 20
KEY = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)
PATH = st.lists(st.sampled_from(["a", "b", "c d", "é+%"]), min_size=1, max_size=4).map("/".join)


@pytest.fixture(scope="module")
def s3(client):
    s3 = client("s3")
    s3.create_bucket(Bucket="bucket")
    return s3


@pytest.fixture
def fresh(s3, request) -> str:
    """Create a bucket for this test."""
    name = request.node.name.replace("_", "-")[-50:].strip("-[]").lower()
    s3.create_bucket(Bucket=name)
    return name


def code_of(failure: pytest.ExceptionInfo) -> str:
    return failure.value.response["Error"]["Code"]


def status_of(failure: pytest.ExceptionInfo) -> int:
    return failure.value.response["ResponseMetadata"]["HTTPStatusCode"]


def body(answer: dict) -> bytes:
    return answer["Body"].read()


@given(key=KEY | st.sampled_from(["a//b", "/a", "a/", "../a", "a/./b", "%2F", "a?b=c#d", "a+b "]))
def test_any_key_comes_back_with_its_bytes_in_get_head_and_list(s3, key: str):
    s3.put_object(Bucket="bucket", Key=key, Body=key.encode())
    assert body(s3.get_object(Bucket="bucket", Key=key)) == key.encode()
    assert s3.head_object(Bucket="bucket", Key=key)["ContentLength"] == len(key.encode())
    found = s3.list_objects_v2(Bucket="bucket", Prefix=key)["Contents"]
    assert found[0]["Key"] == key
    s3.delete_object(Bucket="bucket", Key=key)
    with pytest.raises(ClientError, match="NoSuchKey"):
        s3.get_object(Bucket="bucket", Key=key)


def test_a_key_may_be_the_folder_of_another(s3, fresh: str):
    for key in ("a", "a/b", "a/b/c"):
        s3.put_object(Bucket=fresh, Key=key, Body=key.encode())
    assert [body(s3.get_object(Bucket=fresh, Key=k)) for k in ("a", "a/b")] == [b"a", b"a/b"]


DIGITS = b"0123456789abcdefghij"
SIZE = len(DIGITS)


def model_range(first: int | None, last: int | None) -> tuple[int, int] | str:
    """Return the slice by RFC 9110, 14.1.2: ``all`` for an invalid range, or ``refused``."""
    if first is None:
        return (max(SIZE - last, 0), SIZE) if last else "refused"
    if last is not None and last < first:
        return "all"
    return (first, SIZE if last is None else min(last + 1, SIZE)) if first < SIZE else "refused"


@given(first=st.integers(0, 25), last=st.integers(0, 25), form=st.sampled_from(["f-l", "f-", "-l"]))
def test_ranges_are_slices(s3, endpoint, first: int, last: int, form: str):
    endpoint.app.objects.put_bytes("bucket", "range", DIGITS)
    wanted = model_range(first if "f" in form else None, last if "l" in form else None)
    header = "bytes=" + form.replace("f", str(first)).replace("l", str(last))
    if wanted == "refused":
        with pytest.raises(ClientError) as failure:
            s3.get_object(Bucket="bucket", Key="range", Range=header)
        assert code_of(failure) == "InvalidRange"
        return
    answer = s3.get_object(Bucket="bucket", Key="range", Range=header)
    if wanted == "all":
        assert (body(answer), answer.get("ContentRange")) == (DIGITS, None)
    else:
        start, stop = wanted
        assert answer["ContentRange"] == f"bytes {start}-{stop - 1}/{SIZE}"
        assert answer["ResponseMetadata"]["HTTPStatusCode"] == 206
        assert body(answer) == DIGITS[start:stop]


def model_entries(keys: list[str], prefix: str, delimiter: str) -> list[str]:
    """Return a listing by S3's rule in its simplest form."""
    entries = set()
    for key in keys:
        if key.startswith(prefix):
            rest = key[len(prefix) :]
            folded = delimiter and delimiter in rest
            entries.add(prefix + rest.split(delimiter)[0] + delimiter if folded else key)
    return sorted(entries, key=str.encode)


@pytest.fixture(scope="module")
def tree(s3) -> list[str]:
    s3.create_bucket(Bucket="tree")
    folders = ("", "a/", "a/b/", "a b/", "é+%/", "z/a/")
    keys = [f"{folder}{name}" for folder in folders for name in ("a", "b", "a-", "0", "é")]
    for key in keys:
        s3.put_object(Bucket="tree", Key=key, Body=b"x")
    return keys


@given(
    prefix=st.sampled_from(["", "a", "a/", "a/b", "é", "nothing"]),
    delimiter=st.sampled_from(["", "/", "-", "b/"]),
    size=st.integers(1, 40),
    version=st.sampled_from(["list_objects_v2", "list_objects"]),
    after=PATH | st.just(""),
)
def test_pages_together_are_the_listing(s3, tree, prefix, delimiter, size, version, after):
    arguments = {"StartAfter" if version.endswith("v2") else "Marker": after} if after else {}
    pages = list(
        s3.get_paginator(version).paginate(
            Bucket="tree",
            Prefix=prefix,
            Delimiter=delimiter,
            PaginationConfig={"PageSize": size},
            **arguments,
        )
    )
    got = [
        entry
        for page in pages
        for entry in sorted(
            [c["Key"] for c in page.get("Contents", [])]
            + [p["Prefix"] for p in page.get("CommonPrefixes", [])],
            key=str.encode,
        )
    ]
    wanted = [e for e in model_entries(tree, prefix, delimiter) if e.encode() > after.encode()]
    assert got == wanted
    assert len(pages) == max(1, -(-len(wanted) // size))


def test_a_page_holds_at_most_1000(s3, endpoint, fresh: str):
    for number in range(list_objects.LIMIT + 1):
        endpoint.app.objects.put_bytes(fresh, f"{number:04d}", b"")
    answer = s3.list_objects_v2(Bucket=fresh, MaxKeys=5000)
    assert (answer["KeyCount"], answer["IsTruncated"]) == (1000, True)
    assert s3.list_objects_v2(Bucket=fresh, MaxKeys=0)["KeyCount"] == 0


def test_metadata_type_and_checksum_come_back(s3):
    s3.put_object(
        Bucket="bucket",
        Key="meta",
        Body=b"body",
        Metadata={"commit": "abc", "with-dash": "1", "run_id": "7"},
        ContentType="text/plain",
        ContentEncoding="identity",
        Tagging="team=a%20b",
    )
    answer = s3.get_object(Bucket="bucket", Key="meta", ChecksumMode="ENABLED")
    assert answer["Metadata"] == {"commit": "abc", "with-dash": "1", "run_id": "7"}
    assert (answer["ContentType"], answer["ContentEncoding"]) == ("text/plain", "identity")
    assert answer["ETag"] == '"841a2d689ad86bd1611447453c22c6fc"'  # md5 of b"body"
    assert answer["ChecksumCRC32"]
    tags = s3.get_object_tagging(Bucket="bucket", Key="meta")["TagSet"]
    assert tags == [{"Key": "team", "Value": "a b"}]


def test_conditional_requests(s3):
    etag = s3.put_object(Bucket="bucket", Key="once", Body=b"1", IfNoneMatch="*")["ETag"]
    with pytest.raises(ClientError) as failure:
        s3.put_object(Bucket="bucket", Key="once", Body=b"2", IfNoneMatch="*")
    assert code_of(failure) == "PreconditionFailed"
    with pytest.raises(ClientError) as failure:
        s3.get_object(Bucket="bucket", Key="once", IfNoneMatch=etag)
    assert code_of(failure) == "304"
    with pytest.raises(ClientError) as failure:
        s3.get_object(Bucket="bucket", Key="once", IfMatch='"0"')
    assert code_of(failure) == "PreconditionFailed"
    assert body(s3.get_object(Bucket="bucket", Key="once", IfMatch=etag)) == b"1"


def test_a_write_or_delete_with_if_match_needs_that_very_object(s3, fresh: str):
    """Rules: docs.aws.amazon.com/AmazonS3/latest/userguide: conditional-writes,
    conditional-deletes.
    """
    target = {"Bucket": fresh, "Key": "lock"}
    for call in (s3.put_object, s3.delete_object):
        with pytest.raises(ClientError) as failure:
            call(**target, IfMatch='"0"')
        assert (code_of(failure), status_of(failure)) == ("NoSuchKey", 404)
    first = s3.put_object(**target, Body=b"1", IfNoneMatch="*")["ETag"]
    second = s3.put_object(**target, Body=b"2", IfMatch=first)["ETag"]
    for call in (s3.put_object, s3.delete_object):
        with pytest.raises(ClientError) as failure:
            call(**target, IfMatch=first)
        assert (code_of(failure), status_of(failure)) == ("PreconditionFailed", 412)
    assert body(s3.get_object(**target)) == b"2"
    s3.delete_object(**target, IfMatch=second)
    assert s3.list_objects_v2(Bucket=fresh)["KeyCount"] == 0
    s3.delete_object(**target)  # without a condition: no error, as ever


def test_of_many_conditional_writes_at_once_one_wins(s3, fresh: str):
    def put(number: int, **condition: str) -> bool:
        try:
            s3.put_object(Bucket=fresh, Key="lock", Body=str(number).encode(), **condition)
            return True
        except ClientError as error:
            assert error.response["Error"]["Code"] == "PreconditionFailed"
            return False

    with ThreadPoolExecutor(8) as threads:
        assert sum(threads.map(lambda n: put(n, IfNoneMatch="*"), range(24))) == 1
        etag = s3.head_object(Bucket=fresh, Key="lock")["ETag"]
        assert sum(threads.map(lambda n: put(100 + n, IfMatch=etag), range(24))) == 1


def test_multipart_upload_joins_its_parts_in_order(s3, fresh: str):
    parts = [os.urandom(5 * MIB), os.urandom(5 * MIB), b"tail"]
    upload = s3.create_multipart_upload(Bucket=fresh, Key="k", Metadata={"a": "b"})["UploadId"]
    target = {"Bucket": fresh, "Key": "k", "UploadId": upload}
    etags = {
        n: s3.upload_part(**target, PartNumber=n, Body=parts[n - 1])["ETag"] for n in (3, 1, 2)
    }
    assert [p["PartNumber"] for p in s3.list_parts(**target, MaxParts=2)["Parts"]] == [1, 2]
    assert "Contents" not in s3.list_objects_v2(Bucket=fresh), "an upload looks complete"

    def complete(numbers):
        chosen = [{"PartNumber": n, "ETag": etags.get(n, '"0"')} for n in numbers]
        return s3.complete_multipart_upload(**target, MultipartUpload={"Parts": chosen})

    for numbers, wrong in [
        ((1, 4), "InvalidPart"),
        ((2, 1), "InvalidPartOrder"),
        ((3, 1), "InvalidPartOrder"),
    ]:
        with pytest.raises(ClientError) as failure:
            complete(numbers)
        assert code_of(failure) == wrong
    assert complete((1, 2, 3))["ETag"].endswith('-3"')
    answer = s3.get_object(Bucket=fresh, Key="k")
    assert body(answer) == b"".join(parts)
    assert answer["Metadata"] == {"a": "b"}
    with pytest.raises(ClientError) as failure:
        s3.list_parts(**target)
    assert code_of(failure) == "NoSuchUpload"


def test_an_aborted_upload_leaves_nothing(s3, endpoint, fresh: str):
    before = len(list((endpoint.app.objects.root / "data").glob("*/*")))
    upload = s3.create_multipart_upload(Bucket=fresh, Key="k")["UploadId"]
    target = {"Bucket": fresh, "Key": "k", "UploadId": upload}
    s3.upload_part(**target, PartNumber=1, Body=b"part")
    s3.abort_multipart_upload(**target)
    assert len(list((endpoint.app.objects.root / "data").glob("*/*"))) == before
    with pytest.raises(ClientError) as failure:
        s3.upload_part(**target, PartNumber=2, Body=b"late")
    assert code_of(failure) == "NoSuchUpload"


def test_parallel_transfers_and_copies_keep_every_byte(s3, fresh: str):
    data = os.urandom(24 * MIB)
    config = TransferConfig(multipart_threshold=8 * MIB, multipart_chunksize=8 * MIB)
    s3.upload_fileobj(io.BytesIO(data), fresh, "a", Config=config)
    s3.copy({"Bucket": fresh, "Key": "a"}, fresh, "in/parts", Config=config)
    s3.copy_object(Bucket=fresh, Key="at once é", CopySource={"Bucket": fresh, "Key": "in/parts"})
    got = io.BytesIO()
    s3.download_fileobj(fresh, "at once é", got, Config=config)
    assert got.getvalue() == data


def test_deleting_many_says_what_is_gone(s3, fresh: str):
    for key in ("a", "b", "c&<é>"):
        s3.put_object(Bucket=fresh, Key=key, Body=b"")
    wanted = [{"Key": key} for key in ("a", "c&<é>", "never was")]
    answer = s3.delete_objects(Bucket=fresh, Delete={"Objects": wanted})
    assert [d["Key"] for d in answer["Deleted"]] == ["a", "c&<é>", "never was"]
    assert [c["Key"] for c in s3.list_objects_v2(Bucket=fresh)["Contents"]] == ["b"]
    with pytest.raises(ClientError) as failure:
        s3.delete_bucket(Bucket=fresh)
    assert code_of(failure) == "BucketNotEmpty"


def test_what_sdks_ask_about_a_bucket_is_answered_truthfully(s3, fresh: str):
    assert s3.get_bucket_location(Bucket=fresh)["LocationConstraint"] is None
    assert "Status" not in s3.get_bucket_versioning(Bucket=fresh)
    assert fresh in [b["Name"] for b in s3.list_buckets()["Buckets"]]
    s3.head_bucket(Bucket=fresh, ExpectedBucketOwner="123456789012")
    for call, code in [
        (s3.get_bucket_tagging, "NoSuchTagSet"),
        (s3.get_public_access_block, "NoSuchPublicAccessBlockConfiguration"),
        (s3.get_bucket_encryption, "NotImplemented"),
        (s3.list_bucket_metrics_configurations, "NotImplemented"),
    ]:
        with pytest.raises(ClientError) as failure:
            call(Bucket=fresh)
        assert code_of(failure) == code
    with pytest.raises(ClientError) as failure:
        s3.head_bucket(Bucket=fresh, ExpectedBucketOwner="999999999999")
    assert code_of(failure) == "403"
    s3.delete_bucket(Bucket=fresh)
    with pytest.raises(ClientError) as failure:
        s3.head_bucket(Bucket=fresh)
    assert code_of(failure) == "404"


def test_presigned_url_and_virtual_host(s3, endpoint, fresh: str):
    s3.put_object(Bucket=fresh, Key="k é", Body=b"data")
    url = s3.generate_presigned_url("get_object", {"Bucket": fresh, "Key": "k é"})
    assert urllib.request.urlopen(url).read() == b"data"
    port = endpoint.url.rpartition(":")[2]
    path, host = "/k%20%C3%A9", {"Host": f"{fresh}.localhost:{port}"}
    headers = signed(endpoint, "s3", "GET", path, host)
    request = urllib.request.Request(f"{endpoint.url}{path}", headers=headers)
    assert urllib.request.urlopen(request).read() == b"data"


def test_virtual_host_style_client(endpoint, s3, fresh: str):
    s3.put_object(Bucket=fresh, Key="k", Body=b"data")
    port = endpoint.url.rpartition(":")[2]
    try:
        answer = boto3.client(
            "s3",
            endpoint_url=f"http://localhost:{port}",
            region_name="us-east-1",
            aws_access_key_id=endpoint.env["AWS_ACCESS_KEY_ID"],
            aws_secret_access_key=endpoint.env["AWS_SECRET_ACCESS_KEY"],
            config=Config(retries={"total_max_attempts": 1}),
        ).get_object(Bucket=fresh, Key="k")
    except EndpointConnectionError:
        pytest.skip("this machine does not resolve <name>.localhost")
    assert body(answer) == b"data"


@pytest.mark.parametrize("room", [Objects, Buckets])
def test_every_public_method_is_an_operation_that_is_registered(room: type):
    public = {f for name, f in vars(room).items() if callable(f) and not name.startswith("_")}
    assert public and public <= {route.answer for route in ROUTES.values()}


def test_an_operation_that_another_answers_is_refused():
    with pytest.raises(ValueError, match="PutObject is answered twice"):
        operation("PutObject")(lambda *_: None)
