"""Versions: after any puts and deletes in any state, S3's rules hold."""

from dataclasses import dataclass, field

import pytest
from botocore.exceptions import ClientError
from hypothesis import given, settings
from hypothesis import strategies as st

from trainyard.emulator.s3.object_store import VERSIONING, ObjectStore

pytestmark = pytest.mark.long

ANY = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)
NESTED = st.lists(st.sampled_from(["a", "b", "..", ".", "", "é", "~"]), min_size=2).map("/".join)
KEY = st.sampled_from(["a", "a/b", "é"]) | ANY | NESTED
STEP = st.one_of(
    st.tuples(st.just("put"), KEY, st.binary(max_size=8)),
    st.tuples(st.just("delete"), KEY, st.none()),
    st.tuples(st.just("remove"), KEY, st.integers(0, 5)),
    st.tuples(st.just("state"), st.just(""), st.sampled_from(["Enabled", "Suspended"])),
)


@dataclass
class Model:
    """S3's rules in the simplest form: for each key, (version, bytes or None for a marker)."""

    state: str | None = None
    keys: dict[str, list[tuple[str, bytes | None]]] = field(default_factory=dict)

    def write(self, key: str, version: str, data: bytes | None) -> None:
        kept = [v for v in self.keys.get(key, []) if v[0] != version]
        self.keys[key] = [(version, data), *kept]

    def remove(self, key: str, version: str) -> None:
        self.keys[key] = [v for v in self.keys.get(key, []) if v[0] != version]

    def current(self) -> dict[str, bytes]:
        return {k: v[0][1] for k, v in sorted(self.keys.items()) if v and v[0][1] is not None}


def run(store: ObjectStore, model: Model, step: tuple) -> None:
    kind, key, value = step
    if kind == "state":
        store.write_setting("bucket", VERSIONING, value)
        model.state = value
    elif kind == "put":
        model.write(key, store.put_bytes("bucket", key, value).version, value)
    elif kind == "remove" and value < len(model.keys.get(key, [])):
        version = model.keys[key][value][0]
        store.delete("bucket", key, version)
        model.remove(key, version)
    elif kind == "delete":
        done = store.delete("bucket", key)
        assert done.marker == bool(model.state)
        if model.state:
            model.write(key, done.version, None)
        else:
            model.remove(key, "null")


def check(store: ObjectStore, model: Model) -> None:
    wanted = model.current()
    assert {
        i.key: store.locate_file("bucket", i.key).read_bytes() for i in store.list("bucket")
    } == wanted
    for prefix in ("a", "a/", "/", "é"):
        beginning = [key for key in wanted if key.startswith(prefix)]
        assert [i.key for i in store.list("bucket", prefix)] == sorted(beginning, key=str.encode)
    for key, versions in model.keys.items():
        assert store.exists("bucket", key) == (key in wanted)
        for version, data in versions:
            if data is not None:
                assert store.locate_file("bucket", key, version).read_bytes() == data
    listed = [
        (i.key, i.version, i.is_delete_marker)
        for i in store.index.iter_versions("bucket", b"", b"\xff")
    ]
    keys = sorted(model.keys, key=str.encode)
    assert listed == [(k, v, data is None) for k in keys for v, data in model.keys[k]]
    bytes_of = sum(data is not None for v in model.keys.values() for _, data in v)
    assert len(list((store.root / "data").glob("*/*"))) == bytes_of, "bytes that nobody names"


@given(steps=st.lists(STEP, max_size=12))
def test_the_store_follows_the_rules_and_keeps_them_over_a_restart(tmp_path_factory, steps):
    root, model = tmp_path_factory.mktemp("s3"), Model()
    store = ObjectStore(root)
    store.create_bucket("bucket")
    for step in steps:
        run(store, model, step)
    check(store, model)
    store.close()
    store = ObjectStore(root)
    check(store, model)
    store.close()


@pytest.fixture
def s3(client, request):
    s3 = client("s3")
    s3.bucket = request.node.name.replace("_", "-")[-50:].strip("-[]").lower()
    s3.create_bucket(Bucket=s3.bucket)
    return s3


def code(call, **arguments) -> tuple[str, int]:
    with pytest.raises(ClientError) as failure:
        call(**arguments)
    answer = failure.value.response
    return answer["Error"]["Code"], answer["ResponseMetadata"]["HTTPStatusCode"]


INVALID = ("InvalidArgument", 400)


def test_versions_over_the_wire(s3):
    at = {"Bucket": s3.bucket, "Key": "k"}
    first = s3.put_object(**at, Body=b"plain")
    assert "VersionId" not in first
    s3.put_bucket_versioning(Bucket=s3.bucket, VersioningConfiguration={"Status": "Enabled"})
    assert s3.get_bucket_versioning(Bucket=s3.bucket)["Status"] == "Enabled"
    second = s3.put_object(**at, Body=b"2")["VersionId"]
    gone = s3.delete_object(**at)
    assert gone["DeleteMarker"] and gone["VersionId"]
    assert code(s3.get_object, **at) == ("NoSuchKey", 404)
    assert code(s3.get_object, **at, VersionId=gone["VersionId"]) == ("MethodNotAllowed", 405)
    for wrong in ("nonsense", "NULL", "0" * 31):
        assert code(s3.get_object, **at, VersionId=wrong) == INVALID
        assert code(s3.delete_object, **at, VersionId=wrong) == INVALID
    s3.delete_object(**at, VersionId="0" * 32)  # there is none: no error
    assert code(s3.get_object, **at, VersionId="0" * 32) == ("NoSuchVersion", 404)
    assert s3.get_object(**at, VersionId="null")["Body"].read() == b"plain"
    copied = s3.copy_object(Bucket=s3.bucket, Key="copy", CopySource={**at, "VersionId": second})
    assert copied["CopySourceVersionId"] == second
    assert s3.get_object(Bucket=s3.bucket, Key="copy")["Body"].read() == b"2"
    listed = s3.list_object_versions(Bucket=s3.bucket, Prefix="k")
    shown = [(v["VersionId"], v["IsLatest"]) for v in listed["Versions"]]
    assert shown == [(second, False), ("null", False)]
    assert [m["IsLatest"] for m in listed["DeleteMarkers"]] == [True]
    marker = {"Objects": [{"Key": "k", "VersionId": gone["VersionId"]}]}
    removed = s3.delete_objects(Bucket=s3.bucket, Delete=marker)["Deleted"]
    assert removed[0]["DeleteMarker"] and removed[0]["VersionId"] == gone["VersionId"]
    assert s3.get_object(**at)["Body"].read() == b"2"
    assert code(s3.delete_bucket, Bucket=s3.bucket) == ("BucketNotEmpty", 409)


@settings(max_examples=10, deadline=None)
@given(size=st.integers(1, 7), delimiter=st.sampled_from(["", "/"]))
def test_pages_of_versions_are_the_listing_whatever_their_size(
    client, endpoint, size: int, delimiter: str
):
    s3, store = client("s3"), endpoint.app.objects
    if not store.has_bucket("paged"):
        s3.create_bucket(Bucket="paged")
        store.write_setting("paged", VERSIONING, "Enabled")
        for key in ("a", "b/1", "b/2", "c"):
            for number in range(3):
                store.put_bytes("paged", key, b"%d" % number)
            store.delete("paged", key)
    pages = s3.get_paginator("list_object_versions").paginate(
        Bucket="paged", Delimiter=delimiter, PaginationConfig={"PageSize": size}
    )
    found, prefixes = [], []
    for page in pages:
        both = page.get("Versions", []) + page.get("DeleteMarkers", [])
        found += sorted(((v["Key"], v["VersionId"]) for v in both), key=lambda v: v[0])
        prefixes += [p["Prefix"] for p in page.get("CommonPrefixes", [])]
        assert len(both) + len(page.get("CommonPrefixes", [])) <= size
    every = [(i.key, i.version) for i in store.index.iter_versions("paged", b"", b"\xff")]
    wanted = [e for e in every if not delimiter or "/" not in e[0]]
    assert sorted(found) == sorted(wanted)
    assert prefixes == (["b/"] if delimiter else [])


def test_conditions_hold_on_every_write_and_every_delete(s3):
    at = {"Bucket": s3.bucket, "Key": "k"}
    etag = s3.put_object(**at, Body=b"1")["ETag"]
    target = {"Bucket": s3.bucket, "Key": "copy"}
    for more in (
        target | {"CopySourceIfMatch": '"0"'},
        target | {"CopySourceIfNoneMatch": etag},
        at | {"MetadataDirective": "REPLACE", "IfNoneMatch": "*"},
    ):
        assert code(s3.copy_object, **more, CopySource=at) == ("PreconditionFailed", 412)
    assert code(s3.copy_object, **at, CopySource=at) == ("InvalidRequest", 400)

    def delete(tag: str) -> dict:
        named = {"Objects": [{"Key": "k", "ETag": tag}]}
        return s3.delete_objects(Bucket=s3.bucket, Delete=named)

    assert delete('"0"')["Errors"][0]["Code"] == "PreconditionFailed"
    assert s3.get_object(**at)["Body"].read() == b"1"
    assert [d["Key"] for d in delete(etag)["Deleted"]] == ["k"]
    assert code(s3.head_object, **target) == ("404", 404)


def test_a_number_that_is_none_is_a_400(s3):
    s3.put_object(Bucket=s3.bucket, Key="k", Body=b"1")
    for wrong in (-1, 2**31, 10**30):
        for call in (s3.list_object_versions, s3.list_objects_v2):
            assert code(call, Bucket=s3.bucket, MaxKeys=wrong) == INVALID
        assert code(s3.get_object, Bucket=s3.bucket, Key="k", PartNumber=wrong) == INVALID
