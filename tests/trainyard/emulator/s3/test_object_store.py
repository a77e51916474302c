"""The object store: a persistent dictionary, for any keys and after any kill."""

import contextlib
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainyard.common.errors import EmulatorError
from trainyard.emulator.request_scope import ApiError
from trainyard.emulator.s3.object_store import VERSIONING, ObjectStore, compute_prefix_end

pytestmark = pytest.mark.long

KEYS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)


@pytest.fixture
def store(tmp_path: Path):
    store = ObjectStore(tmp_path / "s3")
    store.create_bucket("bucket")
    yield store
    store.close()


def test_a_long_listing_is_read_in_pages_without_loss(store: ObjectStore, monkeypatch):
    monkeypatch.setattr("trainyard.emulator.s3.object_index.PAGE", 3)
    keys = [f"k/{i:02d}" for i in range(9)]
    keys.insert(3, keys[2] + "\0")  # the very next key after the end of a page
    for key in [*keys, "l"]:
        store.put_bytes("bucket", key, b"")
    assert [info.key for info in store.list("bucket", "k/")] == keys
    assert [info.key for info in store.list("bucket", "k/", start=b"k/06")] == keys[7:]


@given(KEYS, KEYS)
def test_successor_bounds_exactly_the_keys_with_the_prefix(prefix: str, key: str):
    low, high = prefix.encode(), compute_prefix_end(prefix.encode())
    assert (low <= key.encode() < high) == key.startswith(prefix)
    assert low <= (prefix + key).encode() < high


def test_a_reader_of_the_old_bytes_is_not_disturbed_by_an_overwrite(store: ObjectStore):
    store.put_bytes("bucket", "key", b"old")
    with store.open("bucket", "key")[1] as stored:
        store.put_bytes("bucket", "key", b"new")
        assert stored.read() == b"old"


def test_an_exception_in_the_middle_of_a_put_leaves_the_old_object_and_no_bytes(store):
    store.put_bytes("bucket", "key", b"old")
    with pytest.raises(RuntimeError), store.create_blob() as blob:
        blob.write(b"half of the n")
        raise RuntimeError
    assert store.locate_file("bucket", "key").read_bytes() == b"old"
    assert len(list((store.root / "data").glob("*/*"))) == 1


@pytest.mark.parametrize(
    ("call", "code"),
    [
        (lambda store: store.read_info("bucket", "none"), "NoSuchKey"),
        (lambda store: store.read_info("nobucket", "key"), "NoSuchBucket"),
        (lambda store: store.put_bytes("nobucket", "key", b""), "NoSuchBucket"),
        (lambda store: store.put_bytes("bucket", "k" * 1025, b""), "KeyTooLongError"),
        (lambda store: store.put_bytes("bucket", "", b""), "InvalidArgument"),
        (lambda store: store.create_bucket("../etc"), "InvalidBucketName"),
        (lambda store: list(store.list("nobucket")), "NoSuchBucket"),
    ],
)
def test_refuses_what_s3_refuses(store: ObjectStore, call: Callable, code: str):
    with pytest.raises(ApiError) as failure:
        call(store)
    assert failure.value.code == code


def test_a_directory_has_one_owner(store: ObjectStore):
    with pytest.raises(EmulatorError, match="in use by another emulator"):
        ObjectStore(store.root)


KILLED = """
import os, signal, sys
from pathlib import Path
from trainyard.emulator.s3.object_store import ObjectStore
store = ObjectStore(Path(sys.argv[1]))
store.create_bucket("bucket")
store.put_bytes("bucket", "key", b"old")
def kill(*_, **__):
    os.kill(os.getpid(), signal.SIGKILL)
"""


def run_killed_script(root: Path, script: str) -> None:
    """Run a script, which kills itself, with a store that has an object."""
    done = subprocess.run([sys.executable, "-c", KILLED + script, str(root)], check=False)
    assert done.returncode == -signal.SIGKILL


def test_a_put_that_is_killed_leaves_the_old_object_and_nothing_else(tmp_path: Path):
    write = """
with store.create_blob() as blob:
    blob.write(b"n" * 5_000_000)
    blob.close()
    kill()
"""
    run_killed_script(tmp_path, write)
    assert len(files(tmp_path)) == 2, "the kill came too early to test"
    store = ObjectStore(tmp_path)
    assert store.locate_file("bucket", "key").read_bytes() == b"old"
    assert [info.key for info in store.list("bucket")] == ["key"]
    assert len(files(tmp_path)) == 1
    [half] = (tmp_path / "interrupted").iterdir()
    assert half.read_bytes() == b"n" * 5_000_000
    store.close()


def files(root: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (root / "data").glob("*/*")}


@pytest.fixture
def thirty(tmp_path: Path) -> Path:
    """Directory of a store with 30 objects, and ``older.sqlite``, its index after 10."""
    store = ObjectStore(tmp_path / "s3")
    store.create_bucket("bucket")
    for number in range(30):
        store.put_bytes("bucket", f"{number}", b"%d" % number)
        if number == 9:
            with contextlib.closing(sqlite3.connect(tmp_path / "older.sqlite")) as older:
                store.index._db.backup(older)
    store.close()
    return tmp_path / "s3"


def without_rows(index: Path) -> None:
    with contextlib.closing(sqlite3.connect(index)) as db:
        db.executescript("DELETE FROM objects; DELETE FROM buckets")


def of_another_form(index: Path) -> None:
    with contextlib.closing(sqlite3.connect(index)) as db:
        db.execute("ALTER TABLE objects DROP COLUMN crcs")


LOST = {
    "of another form": (of_another_form, "cannot be read: no such column: crcs.*move .* away"),
    "missing": (lambda index: index.unlink(), "missing.*holds 30 files.*restore it"),
    "empty": (lambda index: index.write_bytes(b""), "empty.*holds 30 files.*restore it"),
    "without rows": (without_rows, "does not name 30 of the 30 files"),
    "an older copy": (
        lambda index: shutil.copy(index.parents[1] / "older.sqlite", index),
        "does not name 20 of the 30 files.*restore the newest copy",
    ),
}


def remove_seal(root: Path) -> None:
    """As a kill leaves it."""
    (root / "index.seal").unlink()


@pytest.mark.parametrize("damage, said", LOST.values(), ids=LOST)
def test_an_index_that_has_lost_rows_stops_the_start_and_loses_nothing(
    thirty: Path, tmp_path: Path, damage: Callable[[Path], object], said: str
):
    remove_seal(thirty)
    before, whole = files(thirty), tmp_path / "whole.sqlite"
    shutil.copy(thirty / "index.sqlite", whole)
    damage(thirty / "index.sqlite")
    for _ in range(2):  # the second finds the lock free, and what the first has left
        with pytest.raises(EmulatorError, match=said):
            ObjectStore(thirty)
    assert files(thirty) == before
    shutil.copy(whole, thirty / "index.sqlite")
    store = ObjectStore(thirty)
    assert store.locate_file("bucket", "29").read_bytes() == b"29"
    store.close()


def test_an_empty_folder_lets_an_older_index_be_used(thirty: Path, tmp_path: Path):
    before = files(thirty)
    shutil.copy(tmp_path / "older.sqlite", thirty / "index.sqlite")
    with pytest.raises(EmulatorError, match=r"changed since the last stop.*remove .*index\.seal"):
        ObjectStore(thirty)
    remove_seal(thirty)
    (thirty / "unknown").mkdir()
    ObjectStore(thirty).close()
    aside = {path.name: path.read_bytes() for path in (thirty / "unknown").iterdir()}
    assert len(aside) == 20 and aside | files(thirty) == before


@pytest.mark.parametrize("where", ["store.create_blob().__class__.finalize", "Path.unlink"])
def test_a_write_that_is_killed_after_its_row_is_finished_by_the_next_start(tmp_path, where: str):
    run_killed_script(tmp_path, f'{where} = kill\nstore.put_bytes("bucket", "key", b"new")\n')
    store = ObjectStore(tmp_path)
    assert store.locate_file("bucket", "key").read_bytes() == b"new" and len(files(tmp_path)) == 1
    assert b"old" in [path.read_bytes() for path in (tmp_path / "interrupted").iterdir()]
    store.close()


def test_a_write_that_fails_leaves_the_old_bytes_under_their_name(store: ObjectStore):
    store.put_bytes("bucket", "key", b"old")
    with pytest.raises(RuntimeError), store._begin_write() as leave:
        leave(store.read_info("bucket", "key"))
        leave(None)
        raise RuntimeError
    assert store.locate_file("bucket", "key").read_bytes() == b"old"


def test_an_object_whose_bytes_are_lost_is_named(thirty: Path, caplog: pytest.LogCaptureFixture):
    next((thirty / "data").glob("*/*")).unlink()
    store = ObjectStore(thirty)
    assert not (thirty / "index.seal").exists(), "after a kill the index would be refused"
    store.close()
    assert "names 1 objects whose bytes are not in" in caplog.text
    assert "s3://bucket/" in caplog.text


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Directory of a store with 60 objects, versions of them and settings, after a clean stop."""
    root = tmp_path_factory.mktemp("sound") / "s3"
    store = ObjectStore(root)
    store.create_bucket("bucket")
    store.write_setting("bucket", VERSIONING, "Enabled")
    for number in range(120):
        with store.create_blob() as blob:
            blob.write(b"%d" % number)
            store.commit("bucket", f"key-{number % 60}", blob, metadata={"number": f"{number}"})
    assert not (root / "index.seal").exists()
    store.close()
    assert "bytes with the CRC-32" in (root / "index.seal").read_text()
    return root


def damage(index: Path, seed: int) -> None:
    """Cut the file, or change some of its bytes; never leave it as it was."""
    chance, data = random.Random(seed), bytearray(index.read_bytes())
    before = bytes(data)
    while data == before:
        at = chance.randrange(len(data))
        match chance.randrange(4):
            case 0:
                del data[-chance.choice([1, 100, 2000, 4096]) :]
            case 1:
                data[at] ^= 1 << chance.randrange(8)
            case 2:
                data[at : at + 64] = chance.randbytes(len(data[at : at + 64]))
            case 3:
                data[at : at + 4096] = bytes(len(data[at : at + 4096]))
    index.write_bytes(data)


@pytest.mark.parametrize("seed", range(4))
def test_a_damaged_index_stops_the_start_and_says_what_to_do(sound: Path, tmp_path: Path, seed):
    copy = shutil.copytree(sound, tmp_path / "s3")
    damage(copy / "index.sqlite", seed)
    for _ in range(2):  # a refused start changes nothing
        with pytest.raises(EmulatorError) as refusal:
            ObjectStore(copy)
        assert f"{copy / 'index.sqlite'} has changed since the last stop" in str(refusal.value)
        assert "restore it" in str(refusal.value)
    shutil.copy(sound / "index.sqlite", copy)
    store = ObjectStore(copy)
    assert store.read_bytes("bucket", "key-7") == b"67"
    store.close()


@pytest.mark.parametrize("seed", range(12))
def test_after_a_kill_a_damaged_index_stops_the_start_or_can_be_read(sound, tmp_path: Path, seed):
    """A text that is another one by now is not noticed, but nothing fails after the start."""
    copy = shutil.copytree(sound, tmp_path / "s3")
    remove_seal(copy)
    damage(copy / "index.sqlite", seed)
    try:
        store = ObjectStore(copy)
    except EmulatorError as refusal:
        assert f"{copy / 'index.sqlite'}" in str(refusal)
        assert "restore" in str(refusal)
        return
    for bucket, _ in store.list_buckets():
        for info in [*store.index.iter_versions(bucket, b"", b"\xff"), *store.list(bucket)]:
            with contextlib.suppress(ApiError):
                store.read_bytes(bucket, info.key, info.version)
        store.put_bytes(bucket, "key-1", b"new")
        store.delete(bucket, "key-2")
    store.close()
