"""Uploads while a job runs: only complete files, and all of them at the end."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.trainyard.emulator.harness import until
from trainyard.emulator.s3.object_store import ObjectStore
from trainyard.emulator.sagemaker.jobs import transfers
from trainyard.emulator.sagemaker.jobs.job_files import JobFile, JobFolder, LeadsOutError
from trainyard.emulator.sagemaker.jobs.transfers import ContinuousUpload

pytestmark = pytest.mark.long

LOOKS = 8


@pytest.fixture
def objects(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(transfers, "INTERVAL", 0.1)
    store = ObjectStore(tmp_path / "s3")
    store.create_bucket("bkt")
    yield store
    store.close()


def uploads(objects: ObjectStore, folder: Path, aside: Path) -> ContinuousUpload:
    folder.mkdir(exist_ok=True)
    return ContinuousUpload(objects, [JobFolder(folder, "/opt/ml")], "s3://bkt/ck", aside)


def test_a_file_that_still_grows_waits_until_it_is_whole(
    objects: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file grows right before each of the first checks."""
    folder, there, files = tmp_path / "ck", [], JobFolder.files

    def grown(directory: JobFolder) -> Iterator[JobFile]:
        if len(there) < LOOKS:
            there.append([objects.exists("bkt", f"ck/{name}") for name in ("whole", "growing")])
            with (folder / "growing").open("ab") as file:
                file.write(b"x" * 1000)
        return files(directory)

    with uploads(objects, folder, tmp_path / "aside"):
        (folder / "whole").write_bytes(b"done")
        monkeypatch.setattr(JobFolder, "files", grown)
        until(lambda: objects.exists("bkt", "ck/growing"))
        assert objects.head("bkt", "ck/growing").size == LOOKS * 1000
    assert there[-1] == [True, False]


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


def test_a_link_out_of_the_tree_keeps_nothing_else_from_going_up_and_is_named(
    objects: ObjectStore, tmp_path: Path
) -> None:
    folder = tmp_path / "ck"
    with (
        pytest.raises(LeadsOutError, match="/opt/ml/a is a symbolic link to /etc/hostname"),
        uploads(objects, folder, tmp_path / "aside"),
    ):
        (folder / "a").symlink_to("/etc/hostname")
        (folder / "b").write_text("while it runs")
        until(lambda: objects.exists("bkt", "ck/b"))
        (folder / "c").write_text("at the end")
    assert [info.key for info in objects.list("bkt")] == ["ck/b", "ck/c"]
