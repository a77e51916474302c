"""The file that SageMaker takes the reason of a failure from."""

import errno
import multiprocessing
from pathlib import Path

import pytest

from steps.job_main import run, write_message
from steps.shard import job

REASONS = ("loss is nan at step 7 " * 5000, "no other rank says anything " * 5000)


def _write(reason: str, file: Path) -> None:
    while True:
        write_message(reason, file)


def test_whoever_reads_it_while_ranks_write_it_reads_one_whole_reason(tmp_path: Path):
    file = tmp_path / "output/failure"
    file.parent.mkdir()
    write_message(REASONS[0], file)
    context = multiprocessing.get_context("fork")
    ranks = [context.Process(target=_write, args=(reason, file)) for reason in REASONS]
    for rank in ranks:
        rank.start()
    seen = {file.read_text() for _ in range(1000)}
    for rank in ranks:
        rank.kill()
        rank.join()
    assert seen <= set(REASONS)
    assert file.read_text() in REASONS


@pytest.mark.parametrize("where", ["/opt/ml/cache/x.bin", None])
def test_a_library_that_finds_no_room_ends_the_job_with_the_place(tmp_path: Path, where):
    def job() -> None:
        raise OSError(errno.ENOSPC, "No space left on device", where)

    (tmp_path / "output").mkdir()
    with pytest.raises(SystemExit):
        run(job, tmp_path / "output/failure")
    place = where or tmp_path
    reason = (tmp_path / "output/failure").read_text()
    assert reason.startswith(f"{place}: cannot be written: No space left on device: ")

    def defect() -> None:
        raise OSError(errno.EIO, "Input/output error")

    with pytest.raises(OSError, match="Input/output"):
        run(defect, tmp_path / "failure")


@pytest.mark.parametrize("folder", ["input/config", "config", "metadata", ""])
def test_only_a_container_gets_a_message(tmp_path: Path, folder: str):
    """A job that is started by hand leaves none, also on a notebook's machine."""
    if folder:
        (tmp_path / "ml" / folder).mkdir(parents=True)
    write_message("loss is nan", tmp_path / "ml/output/failure")
    assert (tmp_path / "ml/output").exists() == folder.endswith("config")


def test_a_job_by_hand_says_what_is_wrong_and_leaves_no_message(tmp_path: Path, capsys):
    (tmp_path / "metadata").mkdir()
    with pytest.raises(SystemExit) as end:
        job.main(["--workload", "tabular", "--root", str(tmp_path)])
    assert end.value.code == 1 and "error: " in capsys.readouterr().out
    assert not (tmp_path / "output").exists()
