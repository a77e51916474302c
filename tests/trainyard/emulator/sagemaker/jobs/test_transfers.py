"""Objects that an input means, and uploads of results."""

import json
import os
import tarfile
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainyard.emulator.s3.object_store import ObjectStore
from trainyard.emulator.sagemaker.jobs.job_files import JobFolder
from trainyard.emulator.sagemaker.jobs.transfers import (
    ClientFault,
    Source,
    archive,
    download,
    local_path,
    select,
    shard,
    split_uri,
    upload,
)

pytestmark = pytest.mark.long


@pytest.fixture
def objects(tmp_path: Path):
    store = ObjectStore(tmp_path / "s3")
    store.create_bucket("bkt")
    for key in ("raw/a.txt", "raw/sub/b.txt", "raw2/c.txt", "raw/sub/", "one.txt", "one.txt.bak"):
        store.put_bytes("bkt", key, key.encode())
    yield store
    store.close()


@pytest.mark.parametrize(
    ("uri", "paths"),
    [
        ("s3://bkt/raw", ["a.txt", "sub/b.txt", "raw2/c.txt"]),  # what begins so, as on AWS
        ("s3://bkt/raw/", ["a.txt", "sub/b.txt"]),
        ("s3://bkt/raw2", ["c.txt"]),
        ("s3://bkt/one.txt", ["one.txt", "one.txt.bak"]),
        ("s3://bkt/on", ["one.txt", "one.txt.bak"]),
        ("s3://bkt/raw/su", ["sub/b.txt"]),
        ("s3://bkt", ["one.txt", "one.txt.bak", "raw/a.txt", "raw/sub/b.txt", "raw2/c.txt"]),
    ],
)
def test_what_a_prefix_means(objects: ObjectStore, uri: str, paths: list[str]) -> None:
    assert [source.path for source in select(objects, uri, "S3Prefix", "")] == paths


@pytest.mark.parametrize("uri", ["s3://bkt/nope", "s3://nope/raw", "s3://bkt/raw/a.txt/"])
def test_a_missing_prefix_in_awss_words(objects: ObjectStore, uri: str) -> None:
    with pytest.raises(ClientFault, match=f'No S3 objects found under S3 URL "{uri}" given in'):
        select(objects, uri, "S3Prefix", "arn:role")


def test_a_manifest(objects: ObjectStore, tmp_path: Path) -> None:
    manifest = [{"prefix": "s3://bkt/raw/"}, "a.txt", "sub/b.txt"]
    objects.put_bytes("bkt", "m.json", json.dumps(manifest).encode())
    sources = select(objects, "s3://bkt/m.json", "ManifestFile", "")
    assert download(objects, sources, tmp_path / "in") == len("raw/a.txt" + "raw/sub/b.txt")
    assert (tmp_path / "in/sub/b.txt").read_text() == "raw/sub/b.txt"
    objects.put_bytes("bkt", "bad.json", b"{}")
    with pytest.raises(ClientFault, match="manifest s3://bkt/bad.json"):
        select(objects, "s3://bkt/bad.json", "ManifestFile", "")


@given(st.sets(st.text(min_size=1)), st.integers(1, 5))
def test_shards_are_a_partition_and_even(keys: set[str], count: int) -> None:
    sources = [Source("b", key, key) for key in keys]
    parts = [shard(sources, index, count) for index in range(count)]
    assert sorted(s.key for part in parts for s in part) == sorted(keys)
    sizes = [len(part) for part in parts]
    assert max(sizes) - min(sizes) <= 1


def test_a_key_that_leads_out_of_the_directory_is_refused(
    objects: ObjectStore, tmp_path: Path
) -> None:
    objects.put_bytes("bkt", "evil/../../x", b"x")
    with pytest.raises(ClientFault, match="leads out"):
        download(objects, select(objects, "s3://bkt/evil/", "S3Prefix", ""), tmp_path / "in")
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize("key", ["two//a", "two/sub//a", "two///a"])
def test_two_slashes_in_a_key_fail_in_awss_words(objects: ObjectStore, key: str) -> None:
    """generative-ai-on-amazon-sagemaker#242: the job fails when it has started."""
    objects.put_bytes("bkt", key, b"x")
    with pytest.raises(ClientFault) as fault:
        select(objects, "s3://bkt/two/", "S3Prefix", "")
    assert str(fault.value) == (
        f"Data download failed:Failed to download data. S3 key: s3://bkt/{key} has an illegal "
        "char sub-sequence '//' in it"
    )
    manifest = [{"prefix": "s3://bkt/two/"}, key.removeprefix("two/")]
    objects.put_bytes("bkt", "m.json", json.dumps(manifest).encode())
    with pytest.raises(ClientFault, match="illegal char sub-sequence"):
        select(objects, "s3://bkt/m.json", "ManifestFile", "")


@pytest.mark.parametrize(
    ("keys", "uri", "clash"),
    [
        (("x/train", "x/train/a"), "s3://bkt/x/", "'x/train' and 'x/train/a' become"),
        (("x/t/t-a", "x/t-a"), "s3://bkt/x/t", "'x/t-a' and 'x/t/t-a' become 't-a' and 't-a'"),
    ],
)
def test_keys_that_one_directory_cannot_hold_are_named(
    objects: ObjectStore, tmp_path: Path, keys: tuple, uri: str, clash: str
) -> None:
    for key in keys:
        objects.put_bytes("bkt", key, b"x")
    with pytest.raises(ClientFault, match=clash):
        download(objects, select(objects, uri, "S3Prefix", ""), tmp_path / "in")
    assert not (tmp_path / "in").exists()


@pytest.mark.parametrize("key", ["odd/a\0b", "odd/" + "é" * 128])
def test_a_key_that_is_no_path_is_named(objects: ObjectStore, tmp_path: Path, key: str) -> None:
    objects.put_bytes("bkt", key, b"x")
    with pytest.raises(ClientFault, match="is no path: a file's name has no NUL, and at most 255"):
        download(objects, select(objects, "s3://bkt/odd/", "S3Prefix", ""), tmp_path / "in")


@given(st.text("ab/", min_size=1, max_size=6), st.sets(st.text("ab/", min_size=1, max_size=8)))
def test_a_prefix_means_each_key_that_starts_with_it(prefix: str, keys: set[str]) -> None:
    """A path is the end of its key, below the folder of that name or beside it."""
    for key in keys:
        if key.startswith(prefix):
            path = local_path(prefix, key)
            assert key.endswith(path) and len(path) >= len(key) - len(prefix) - 1


def test_an_archive_merges_nodes_and_is_reproducible(tmp_path: Path) -> None:
    for node, name in (("n1", "a"), ("n1", "both"), ("n2", "both"), ("n2", "sub/c")):
        path = tmp_path / node / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{node} {name}")
    nodes = [JobFolder(tmp_path / node, "/opt/ml") for node in ("n1", "n2")]
    assert archive(nodes, tmp_path / "1.tar.gz")
    (tmp_path / "n1/a").touch()
    assert archive(nodes, tmp_path / "2.tar.gz")
    assert (tmp_path / "1.tar.gz").read_bytes() == (tmp_path / "2.tar.gz").read_bytes()
    with tarfile.open(tmp_path / "1.tar.gz") as tar:
        found = {m.name: tar.extractfile(m).read().decode() for m in tar.getmembers()}
    assert found == {"a": "n1 a", "both": "n1 both", "sub/c": "n2 sub/c"}


def test_no_files_no_archive(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    assert not archive([JobFolder(tmp_path, "/opt/ml/model")], tmp_path / "m.tar.gz")
    assert not (tmp_path / "m.tar.gz").exists()


def test_upload_keeps_the_order_in_which_files_were_written(
    objects: ObjectStore, tmp_path: Path
) -> None:
    folder = tmp_path / "out"
    folder.mkdir()
    for name in ("z-shard", "m-shard", "a-manifest"):
        (folder / name).write_text(name)
        os.utime(folder / name, ns=(time.time_ns(), time.time_ns()))
    upload(objects, JobFolder(tmp_path, "/opt/ml/out"), "s3://bkt/out/")
    times = {info.key: info.last_modified for info in objects.list("bkt", "out/")}
    assert sorted(times, key=times.__getitem__) == ["out/z-shard", "out/m-shard", "out/a-manifest"]


@pytest.mark.parametrize(
    "uri",
    ["s3://a.b/c/d", "https://a.b.s3.amazonaws.com/c/d", "https://a.b.s3-us-east-1.amazonaws.com/c/d",
     "https://s3.us-west-2.amazonaws.com/a.b/c/d", "https://s3.amazonaws.com/a.b/c/d"],
)  # fmt: skip
def test_an_object_may_be_named_by_its_address(uri: str):
    assert split_uri(uri) == ("a.b", "c/d")


def test_another_address_is_refused():
    with pytest.raises(ClientFault, match="expected s3://bucket/key"):
        split_uri("https://example.com/a/b")
