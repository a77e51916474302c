"""S3 through boto3: objects are read back as they were put, in whole, in ranges, in parts, in
pages.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
from botocore.exceptions import ClientError
from hypothesis import given
from hypothesis import strategies as st

from tests.trainyard.emulator.standin import send
from trainyard.emulator.s3 import list_objects
from trainyard.emulator.s3.buckets import Buckets
from trainyard.emulator.s3.object_requests import Objects
from trainyard.emulator.s3.operation_routes import ROUTES, operation

pytestmark = pytest.mark.long

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


def refusal(call: Callable, **request: object) -> str:
    """Return the code of S3's error."""
    with pytest.raises(ClientError) as failure:
        call(**request)
    return failure.value.response["Error"]["Code"]


def body(answer: dict) -> bytes:
    return answer["Body"].read()


@given(
    key=KEY | st.sampled_from(["a//b", "/a", "a/", "../a", "a/./b", "%2F", "a?b=c#d", "a+b "]),
    note=st.text(st.characters(min_codepoint=33, max_codepoint=126), max_size=8),
)
def test_any_key_comes_back_with_its_bytes_in_get_head_and_list(s3, key: str, note: str):
    s3.put_object(Bucket="bucket", Key=key, Body=key.encode(), Metadata={"note": note})
    assert body(s3.get_object(Bucket="bucket", Key=key)) == key.encode()
    head = s3.head_object(Bucket="bucket", Key=key)
    assert (head["ContentLength"], head["Metadata"]) == (len(key.encode()), {"note": note})
    found = s3.list_objects_v2(Bucket="bucket", Prefix=key)["Contents"]
    assert found[0]["Key"] == key
    s3.delete_object(Bucket="bucket", Key=key)
    assert refusal(s3.get_object, Bucket="bucket", Key=key) == "NoSuchKey"


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
        asked = {"Bucket": "bucket", "Key": "range", "Range": header}
        assert refusal(s3.get_object, **asked) == "InvalidRange"
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
    arguments |= {"Bucket": "tree", "Prefix": prefix, "Delimiter": delimiter}
    paginator = s3.get_paginator(version)
    pages = list(paginator.paginate(**arguments, PaginationConfig={"PageSize": size}))
    got = []
    for page in pages:
        keys = [c["Key"] for c in page.get("Contents", [])]
        prefixes = [p["Prefix"] for p in page.get("CommonPrefixes", [])]
        got += sorted(keys + prefixes, key=str.encode)
    wanted = [e for e in model_entries(tree, prefix, delimiter) if e.encode() > after.encode()]
    assert got == wanted
    assert len(pages) == max(1, -(-len(wanted) // size))


def test_a_page_holds_at_most_1000(s3, endpoint, fresh: str):
    for number in range(list_objects.LIMIT + 1):
        endpoint.app.objects.put_bytes(fresh, f"{number:04d}", b"")
    answer = s3.list_objects_v2(Bucket=fresh, MaxKeys=5000)
    assert (answer["KeyCount"], answer["IsTruncated"]) == (1000, True)
    assert s3.list_objects_v2(Bucket=fresh, MaxKeys=0)["KeyCount"] == 0


def test_what_is_said_of_an_object_comes_back(s3):
    metadata = {"commit": "abc", "with-dash": "1", "run_id": "7"}
    given = {
        "ContentType": "text/plain", "ContentEncoding": "identity", "StorageClass": "STANDARD_IA",
        "WebsiteRedirectLocation": "/elsewhere", "ServerSideEncryption": "AES256",
        "Metadata": metadata,
    }  # fmt: skip
    at = {"Bucket": "bucket", "Key": "meta"}
    s3.put_object(**at, **given, Body=b"body", Tagging="team=a%20b")
    answer = s3.get_object(**at, ChecksumMode="ENABLED")
    assert {name: answer[name] for name in given} == given
    assert answer["ETag"] == '"841a2d689ad86bd1611447453c22c6fc"'  # md5 of b"body"
    assert answer["ChecksumCRC32"]
    assert s3.get_object_tagging(**at)["TagSet"] == [{"Key": "team", "Value": "a b"}]
    listed = s3.list_objects_v2(Bucket="bucket", Prefix="meta")["Contents"][0]
    assert listed["StorageClass"] == "STANDARD_IA"


@pytest.mark.parametrize(
    ("said", "code"),
    [
        ({"StorageClass": "GLACIER"}, "NotImplemented"),
        ({"StorageClass": "NONE"}, "InvalidStorageClass"),
        ({"SSECustomerKey": "0" * 32}, "NotImplemented"),
        ({"ObjectLockMode": "GOVERNANCE", "ObjectLockRetainUntilDate": "2030-01-01"},
         "NotImplemented"),
    ],
)  # fmt: skip
def test_what_is_not_kept_of_an_object_is_refused(s3, said: dict[str, str], code: str):
    assert refusal(s3.put_object, Bucket="bucket", Key="x", Body=b"1", **said) == code
    assert refusal(s3.head_object, Bucket="bucket", Key="x") == "404"


def test_conditions_of_a_read(s3):
    at = {"Bucket": "bucket", "Key": "once"}
    etag = s3.put_object(**at, Body=b"1", IfNoneMatch="*")["ETag"]
    assert refusal(s3.put_object, **at, IfNoneMatch="*") == "PreconditionFailed"
    assert refusal(s3.get_object, **at, IfNoneMatch=etag) == "304"
    assert refusal(s3.get_object, **at, IfMatch='"0"') == "PreconditionFailed"
    assert body(s3.get_object(**at, IfMatch=etag)) == b"1"


def test_a_write_or_delete_with_if_match_needs_that_very_object(s3, fresh: str):
    """Rules: docs.aws.amazon.com/AmazonS3/latest/userguide: conditional-writes,
    conditional-deletes.
    """
    target = {"Bucket": fresh, "Key": "lock"}
    for call in (s3.put_object, s3.delete_object):
        assert refusal(call, **target, IfMatch='"0"') == "NoSuchKey"
    first = s3.put_object(**target, Body=b"1", IfNoneMatch="*")["ETag"]
    second = s3.put_object(**target, Body=b"2", IfMatch=first)["ETag"]
    for call in (s3.put_object, s3.delete_object):
        assert refusal(call, **target, IfMatch=first) == "PreconditionFailed"
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


def test_deleting_many_says_what_is_gone(s3, fresh: str):
    for key in ("a", "b", "c&<é>"):
        s3.put_object(Bucket=fresh, Key=key, Body=b"")
    wanted = [{"Key": key} for key in ("a", "c&<é>", "never was")]
    answer = s3.delete_objects(Bucket=fresh, Delete={"Objects": wanted})
    assert [d["Key"] for d in answer["Deleted"]] == ["a", "c&<é>", "never was"]
    assert [c["Key"] for c in s3.list_objects_v2(Bucket=fresh)["Contents"]] == ["b"]
    assert refusal(s3.delete_bucket, Bucket=fresh) == "BucketNotEmpty"


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
        assert refusal(call, Bucket=fresh) == code
    other = {"Bucket": fresh, "ExpectedBucketOwner": "999999999999"}
    assert refusal(s3.head_bucket, **other) == "403"
    s3.delete_bucket(Bucket=fresh)
    assert refusal(s3.head_bucket, Bucket=fresh) == "404"


def test_a_bucket_in_the_name_of_the_host(s3, endpoint, fresh: str):
    s3.put_object(Bucket=fresh, Key="k é", Body=b"data")
    host = {"Host": f"{fresh}.localhost:{endpoint.url.rpartition(':')[2]}"}
    assert send(endpoint, "s3", "GET", "/k%20%C3%A9", host) == (200, "data")


@pytest.mark.parametrize("room", [Objects, Buckets])
def test_every_public_method_is_an_operation_that_is_registered(room: type):
    public = {f for name, f in vars(room).items() if callable(f) and not name.startswith("_")}
    assert public and public <= {route.answer for route in ROUTES.values()}


def test_an_operation_that_another_answers_is_refused():
    with pytest.raises(ValueError, match="PutObject has two methods that handle it"):
        operation("PutObject")(lambda *_: None)
