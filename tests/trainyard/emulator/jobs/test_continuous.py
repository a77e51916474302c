"""Uploads while a job runs: whole files only, and nothing forgotten at the end."""

import time
from pathlib import Path

import pytest

from tests.trainyard.emulator.harness import until
from trainyard.emulator.jobs import continuous
from trainyard.emulator.jobs.continuous import ContinuousUpload
from trainyard.emulator.objects import ObjectStore


@pytest.fixture
def objects(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(continuous, "INTERVAL", 0.1)
    store = ObjectStore(tmp_path / "s3")
    store.create_bucket("bkt")
    yield store
    store.close()


def uploads(objects: ObjectStore, folder: Path, aside: Path) -> ContinuousUpload:
    folder.mkdir(exist_ok=True)
    return ContinuousUpload(objects, [folder], "s3://bkt/ck", aside)


def test_a_file_that_still_grows_waits_until_it_is_whole(
    objects: ObjectStore, tmp_path: Path
) -> None:
    folder = tmp_path / "ck"
    with uploads(objects, folder, tmp_path / "aside"):
        with (folder / "growing").open("wb", buffering=0) as file:
            (folder / "whole").write_bytes(b"done")
            sizes = set()
            while not objects.exists("bkt", "ck/whole") or len(sizes) < 20:
                file.write(b"x" * 1000)
                sizes.add(file.tell())
                assert not objects.exists("bkt", "ck/growing")
                time.sleep(0.03)
        until(lambda: objects.exists("bkt", "ck/growing"))
        assert objects.head("bkt", "ck/growing").size == max(sizes)


def test_the_last_file_goes_up_at_the_end_and_deletions_do_not(
    objects: ObjectStore, tmp_path: Path
) -> None:
    folder = tmp_path / "ck"
    with uploads(objects, folder, tmp_path / "aside"):
        (folder / "old").write_text("1")
        until(lambda: objects.exists("bkt", "ck/old"))
        (folder / "old").unlink()
        (folder / "sub").mkdir()
        (folder / "sub/last").write_text("2")
    assert objects.path("bkt", "ck/sub/last").read_text() == "2"
    assert objects.exists("bkt", "ck/old")


def test_what_was_there_at_the_start_is_not_sent_back_until_it_changes(
    objects: ObjectStore, tmp_path: Path
) -> None:
    folder = tmp_path / "ck"
    folder.mkdir()
    (folder / "a").write_text("from S3")
    with uploads(objects, folder, tmp_path / "aside"):
        pass
    assert not objects.exists("bkt", "ck/a")
    with uploads(objects, folder, tmp_path / "aside"):
        (folder / "a").write_text("newer")
    assert objects.path("bkt", "ck/a").read_text() == "newer"
