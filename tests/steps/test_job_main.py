"""The file that SageMaker takes the reason of a failure from."""

import multiprocessing
from pathlib import Path

from steps.job_main import write_message

REASONS = ("loss is nan at step 7 " * 5000, "no other rank says anything " * 5000)


def _write(reason: str, file: Path) -> None:
    while True:
        write_message(reason, file)


def test_whoever_reads_it_while_ranks_write_it_reads_one_whole_reason(tmp_path: Path):
    file = tmp_path / "output/failure"
    write_message(REASONS[0], file)
    context = multiprocessing.get_context("fork")
    ranks = [context.Process(target=_write, args=(reason, file)) for reason in REASONS]
    for rank in ranks:
        rank.start()
    seen = {file.read_text() for _ in range(2000)}
    for rank in ranks:
        rank.kill()
        rank.join()
    assert seen <= set(REASONS)
    assert file.read_text() in REASONS
