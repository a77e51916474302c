"""Objects that an input means, and uploads of results: at the end, and while a job runs."""

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.trainyard.emulator.harness import until
from tests.trainyard.emulator.sagemaker.builders import unpack_files
from trainyard.emulator.s3.object_store import ObjectStore
from trainyard.emulator.sagemaker.jobs import transfers
from trainyard.emulator.sagemaker.jobs.job_files import JobFile, JobFolder, LeadsOutError
from trainyard.emulator.sagemaker.jobs.transfers import (
    ClientFault,
    ContinuousUpload,
    Source,
    build_local_path,
    download_objects,
    select_node_share,
    select_objects,
    split_uri,
    upload_folder,
    write_archive,
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
    assert [source.path for source in select_objects(objects, uri, "S3Prefix", "")] == paths


@pytest.mark.parametrize("uri", ["s3://bkt/nope", "s3://nope/raw", "s3://bkt/raw/a.txt/"])
def test_a_missing_prefix_in_awss_words(objects: ObjectStore, uri: str) -> None:
    with pytest.raises(ClientFault, match=f'No S3 objects found under S3 URL "{uri}" given in'):
        select_objects(objects, uri, "S3Prefix", "arn:role")


def test_a_manifest(objects: ObjectStore, tmp_path: Path) -> None:
    manifest = [{"prefix": "s3://bkt/raw/"}, "a.txt", "sub/b.txt"]
    objects.put_bytes("bkt", "m.json", json.dumps(manifest).encode())
    sources = select_objects(objects, "s3://bkt/m.json", "ManifestFile", "")
    assert download_objects(objects, sources, tmp_path / "in") == len("raw/a.txtraw/sub/b.txt")
    assert (tmp_path / "in/sub/b.txt").read_text() == "raw/sub/b.txt"
    objects.put_bytes("bkt", "bad.json", b"{}")
    with pytest.raises(ClientFault, match="manifest s3://bkt/bad.json"):
        select_objects(objects, "s3://bkt/bad.json", "ManifestFile", "")


@given(st.sets(st.text(min_size=1)), st.integers(1, 5))
def test_shards_are_a_partition_and_even(keys: set[str], count: int) -> None:
    sources = [Source("b", key, key) for key in keys]
    parts = [select_node_share(sources, index, count) for index in range(count)]
    assert sorted(s.key for part in parts for s in part) == sorted(keys)
    sizes = [len(part) for part in parts]
    assert max(sizes) - min(sizes) <= 1


@pytest.mark.parametrize("key", ["two//a", "two/sub//a", "two///a"])
def test_two_slashes_in_a_key_fail_in_awss_words(objects: ObjectStore, key: str) -> None:
    """generative-ai-on-amazon-sagemaker#242: the job fails when it has started."""
    objects.put_bytes("bkt", key, b"x")
    with pytest.raises(ClientFault) as fault:
        select_objects(objects, "s3://bkt/two/", "S3Prefix", "")
    assert str(fault.value) == (
        f"Data download failed:Failed to download data. S3 key: s3://bkt/{key} has an illegal "
        "char sub-sequence '//' in it"
    )
    manifest = [{"prefix": "s3://bkt/two/"}, key.removeprefix("two/")]
    objects.put_bytes("bkt", "m.json", json.dumps(manifest).encode())
    with pytest.raises(ClientFault, match="illegal char sub-sequence"):
        select_objects(objects, "s3://bkt/m.json", "ManifestFile", "")


NO_PATH = "is not a valid path: expected file names without NUL, of at most 255"


@pytest.mark.parametrize(
    ("keys", "uri", "said"),
    [
        (["evil/../../x"], "s3://bkt/evil/", "leads out"),
        (["x/train", "x/train/a"], "s3://bkt/x/", "'x/train' and 'x/train/a' become"),
        (["x/t/t-a", "x/t-a"], "s3://bkt/x/t", "'x/t-a' and 'x/t/t-a' become 't-a' and 't-a'"),
        (["odd/a\0b"], "s3://bkt/odd/", NO_PATH),
        (["odd/" + "é" * 128], "s3://bkt/odd/", NO_PATH),
    ],
)
def test_keys_that_one_directory_cannot_hold_are_named(
    objects: ObjectStore, tmp_path: Path, keys: list[str], uri: str, said: str
) -> None:
    for key in keys:
        objects.put_bytes("bkt", key, b"x")
    with pytest.raises(ClientFault, match=said):
        download_objects(objects, select_objects(objects, uri, "S3Prefix", ""), tmp_path / "in")
    assert not (tmp_path / "in").exists() or said == "leads out"
    assert not (tmp_path / "x").exists()


@given(st.text("ab/", min_size=1, max_size=6), st.sets(st.text("ab/", min_size=1, max_size=8)))
def test_a_prefix_means_each_key_that_starts_with_it(prefix: str, keys: set[str]) -> None:
    """A path is the end of its key, below the folder of that name or beside it."""
    for key in keys:
        if key.startswith(prefix):
            path = build_local_path(prefix, key)
            assert key.endswith(path) and len(path) >= len(key) - len(prefix) - 1


def test_an_archive_merges_nodes_and_is_reproducible(tmp_path: Path) -> None:
    for node, name in (("n1", "a"), ("n1", "both"), ("n2", "both"), ("n2", "sub/c")):
        path = tmp_path / node / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{node} {name}")
    nodes = [JobFolder(tmp_path / node, "/opt/ml") for node in ("n1", "n2")]
    assert write_archive(nodes, tmp_path / "1.tar.gz")
    (tmp_path / "n1/a").touch()
    assert write_archive(nodes, tmp_path / "2.tar.gz")
    assert (tmp_path / "1.tar.gz").read_bytes() == (tmp_path / "2.tar.gz").read_bytes()
    found = unpack_files((tmp_path / "1.tar.gz").read_bytes())
    assert found == {"a": b"n1 a", "both": b"n1 both", "sub/c": b"n2 sub/c"}


def test_no_files_no_archive(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    assert not write_archive([JobFolder(tmp_path, "/opt/ml/model")], tmp_path / "m.tar.gz")
    assert not (tmp_path / "m.tar.gz").exists()


def test_upload_keeps_the_order_in_which_files_were_written(objects, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    folder.mkdir()
    for name in ("z-shard", "m-shard", "a-manifest"):
        (folder / name).write_text(name)
        os.utime(folder / name, ns=(time.time_ns(), time.time_ns()))
    upload_folder(objects, JobFolder(tmp_path, "/opt/ml/out"), "s3://bkt/out/")
    times = {info.key: info.last_modified for info in objects.list("bkt", "out/")}
    assert sorted(times, key=times.__getitem__) == ["out/z-shard", "out/m-shard", "out/a-manifest"]


@pytest.mark.parametrize(
    "uri",
    ["s3://a.b/c/d", "https://a.b.s3.amazonaws.com/c/d", "https://a.b.s3-us-east-1.amazonaws.com/c/d",
     "https://s3.us-west-2.amazonaws.com/a.b/c/d", "https://s3.amazonaws.com/a.b/c/d"],
)  # fmt: skip
def test_an_object_may_be_named_by_its_address(uri: str):
    assert split_uri(uri) == ("a.b", "c/d")
    with pytest.raises(ClientFault, match="expected s3://bucket/key"):
        split_uri("https://example.com/a/b")


# while a job runs

LOOKS = 8


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of the job that is looked at ten times a second."""
    monkeypatch.setattr(transfers, "INTERVAL", 0.1)
    found = tmp_path / "ck"
    found.mkdir()
    return found


def uploads(objects: ObjectStore, folder: Path) -> ContinuousUpload:
    aside = folder.with_name("aside")
    return ContinuousUpload(objects, [JobFolder(folder, "/opt/ml")], "s3://bkt/ck", aside)


def test_a_file_that_still_grows_waits_until_it_is_whole(objects, folder: Path, monkeypatch):
    """The file grows right before each of the first checks."""
    there, files = [], JobFolder.iter_files

    def grown(directory: JobFolder) -> Iterator[JobFile]:
        if len(there) < LOOKS:
            there.append([objects.exists("bkt", f"ck/{name}") for name in ("whole", "growing")])
            with (folder / "growing").open("ab") as file:
                file.write(b"x" * 1000)
        return files(directory)

    with uploads(objects, folder):
        (folder / "whole").write_bytes(b"done")
        monkeypatch.setattr(JobFolder, "iter_files", grown)
        until(lambda: objects.exists("bkt", "ck/growing"))
        assert objects.read_info("bkt", "ck/growing").size == LOOKS * 1000
    assert there[-1] == [True, False]


def test_the_last_file_goes_up_at_the_end_and_deletions_do_not(objects, folder: Path) -> None:
    with uploads(objects, folder):
        (folder / "old").write_text("1")
        until(lambda: objects.exists("bkt", "ck/old"))
        (folder / "old").unlink()
        (folder / "sub").mkdir()
        (folder / "sub/last").write_text("2")
    assert objects.locate_file("bkt", "ck/sub/last").read_text() == "2"
    assert objects.exists("bkt", "ck/old")


def test_what_was_there_at_the_start_is_not_sent_back_until_it_changes(objects, folder: Path):
    (folder / "a").write_text("from S3")
    with uploads(objects, folder):
        pass
    assert not objects.exists("bkt", "ck/a")
    with uploads(objects, folder):
        (folder / "a").write_text("newer")
    assert objects.locate_file("bkt", "ck/a").read_text() == "newer"


def test_a_link_out_of_the_tree_keeps_nothing_else_from_going_up_and_is_named(objects, folder):
    with (
        pytest.raises(LeadsOutError, match="/opt/ml/a is a symbolic link to /etc/hostname"),
        uploads(objects, folder),
    ):
        (folder / "a").symlink_to("/etc/hostname")
        (folder / "b").write_text("while it runs")
        until(lambda: objects.exists("bkt", "ck/b"))
        (folder / "c").write_text("at the end")
    assert [info.key for info in objects.list("bkt", "ck/")] == ["ck/b", "ck/c"]
