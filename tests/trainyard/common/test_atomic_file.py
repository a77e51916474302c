"""A file is whole under its name, or what was there before stands."""

import os
import threading
from pathlib import Path

import pytest

from trainyard.common import atomic_file


def test_parts_follow_each_other_and_text_is_utf_8(tmp_path: Path):
    path = tmp_path / "told.txt"
    atomic_file.write(path, "größer ", b"than ", memoryview(b"before"))
    assert path.read_text(encoding="utf-8") == "größer than before"
    atomic_file.write(path)
    assert path.read_bytes() == b""
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("fault", ["in the block", "of the disk", "of the rename"])
def test_an_error_leaves_the_old_file_and_no_draft(tmp_path: Path, fault: str, monkeypatch):
    path = tmp_path / "state.json"
    atomic_file.write(path, "old")

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


def test_what_has_no_name_yet_is_seen_by_nobody(tmp_path: Path):
    path = tmp_path / "shard.npy"
    draft = atomic_file.begin(path, b"content")
    assert not path.exists()
    finisher = threading.Thread(target=draft.finish)
    finisher.start()
    finisher.join()
    assert path.read_bytes() == b"content"


def test_two_writers_of_one_file_do_not_mix(tmp_path: Path):
    path = tmp_path / "shard.npy"
    one, other = atomic_file.begin(path, b"one"), atomic_file.begin(path, b"other")
    other.finish()
    one.finish()
    assert path.read_bytes() == b"one"


def test_the_file_is_as_readable_as_any_that_this_process_makes(tmp_path: Path):
    plain, whole = tmp_path / "plain", tmp_path / "whole"
    plain.write_bytes(b"")
    atomic_file.write(whole, b"")
    assert whole.stat().st_mode == plain.stat().st_mode
    with atomic_file.Draft(whole, mode=0o600) as file:
        file.write(b"secret")
    assert whole.stat().st_mode & 0o777 == 0o600


def test_the_longest_name_that_a_file_system_takes(tmp_path: Path):
    path = tmp_path / ("n" * 255)
    atomic_file.write(path, b"content")
    assert path.read_bytes() == b"content"


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
