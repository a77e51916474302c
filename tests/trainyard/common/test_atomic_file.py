"""A file is whole under its name, or what was there before stands."""

import errno
import multiprocessing
import os
import re
import resource
import threading
from pathlib import Path

import pytest

from trainyard.common import atomic_file
from trainyard.common.errors import StorageError


def test_parts_follow_each_other_as_utf_8_under_the_longest_name_that_a_file_has(tmp_path: Path):
    path = tmp_path / ("n" * 255)
    atomic_file.write_file(path, "größer ", b"than ", memoryview(b"before"))
    assert path.read_text(encoding="utf-8") == "größer than before"
    atomic_file.write_file(path)
    assert path.read_bytes() == b""
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("fault", ["in the block", "of the disk", "of the rename"])
def test_an_error_leaves_the_old_file_and_no_draft(tmp_path: Path, fault: str, monkeypatch):
    path = tmp_path / "state.json"
    atomic_file.write_file(path, "old")

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    if fault == "of the disk":
        monkeypatch.setattr(os, "fsync", fail)
    if fault == "of the rename":
        monkeypatch.setattr(Path, "replace", fail)
    with pytest.raises(OSError, match="No space"), atomic_file.Draft(path) as file:
        file.write(b"new")
        if fault == "in the block":
            fail()
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def write_too_much(path: Path, result: Path) -> None:
    """Write 100,000 bytes in pieces where a file may have 50,000; leave the error's text."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, resource.RLIM_INFINITY))
    try:
        with atomic_file.Draft(path, size=100_000) as file:
            for _ in range(100):
                file.write(bytes(1000))
    except StorageError as error:
        result.write_text(f"{error.errno} {type(error).__mro__[1].__name__} {error}")


def test_a_file_that_has_no_room_is_named_with_what_it_needs_and_what_to_do(tmp_path: Path):
    path, result = tmp_path / "big.bin", tmp_path / "error.txt"
    path.write_bytes(b"old")
    fork = multiprocessing.get_context("fork")
    process = fork.Process(target=write_too_much, args=(path, result))
    process.start()
    process.join()
    assert re.fullmatch(
        rf"{errno.EFBIG} TrainyardError {path}: cannot be written: File too large: 100,000 bytes "
        r"are needed, [\d,]+ are free; raise the limit of a file's size \(ulimit -f\), or use "
        "another file system",
        result.read_text(),
    )
    assert path.read_bytes() == b"old" and {*tmp_path.iterdir()} == {path, result}


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_disk_that_says_so_only_when_it_is_flushed_is_named_too(
    tmp_path: Path, monkeypatch, number: int
):
    """EFS and FSx: writes stay in memory until then."""

    def fail(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(StorageError, match=rf"^{tmp_path}/f: cannot be written: .*: 7 bytes are"):
        atomic_file.write_file(tmp_path / "f", "content")
    assert not [*tmp_path.iterdir()]


def test_what_has_no_name_yet_is_seen_by_nobody_and_two_writers_do_not_mix(tmp_path: Path):
    path = tmp_path / "shard.npy"
    one, other = atomic_file.write_draft(path, b"one"), atomic_file.write_draft(path, b"other")
    assert not path.exists()
    finisher = threading.Thread(target=other.finish)
    finisher.start()
    finisher.join()
    assert path.read_bytes() == b"other"
    one.finish()
    assert path.read_bytes() == b"one"


def test_the_file_is_as_readable_as_any_that_this_process_makes(tmp_path: Path):
    plain, whole = tmp_path / "plain", tmp_path / "whole"
    plain.write_bytes(b"")
    atomic_file.write_file(whole, b"")
    assert whole.stat().st_mode == plain.stat().st_mode
    with atomic_file.Draft(whole, mode=0o600) as file:
        file.write(b"secret")
    assert whole.stat().st_mode & 0o777 == 0o600


def test_a_library_may_write_the_draft_under_its_name_and_replace_it(tmp_path: Path, monkeypatch):
    """Safetensors from 0.8 on writes a file of its own and renames it."""
    path, synced, sync = tmp_path / "model.safetensors", [], os.fsync
    monkeypatch.setattr(os, "fsync", lambda d: (synced.append(os.fstat(d).st_ino), sync(d)))
    draft = atomic_file.Draft(path)
    with draft:
        (tmp_path / "own").write_bytes(b"weights")
        (tmp_path / "own").replace(draft.temporary)
    assert path.read_bytes() == b"weights"
    assert synced == [path.stat().st_ino, tmp_path.stat().st_ino]
