"""Processes of the evaluation: in order, and gone with the first that fails."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from steps.evaluate import score_rows
from tests.conftest import CHECKOUT
from trainyard.common.errors import DataError, TrainyardError

pytestmark = pytest.mark.long


def work(folder: Path, what: str) -> None:
    """A process's task: to fail in a way, or to wait for others."""
    if what == "damaged":
        raise DataError("a shard is damaged")
    if what == "defect":
        raise ZeroDivisionError("of nothing")
    if what == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    (folder / str(os.getpid())).touch()
    if what == "last":
        while len([*folder.iterdir()]) < 2:
            time.sleep(0.01)
    if what == "for ever":
        time.sleep(600)


DEFECT = "^score 2 of 2: Traceback(.|\n)*ZeroDivisionError: of nothing"


def test_results_come_in_order_whoever_is_done_first(tmp_path):
    tasks = [(tmp_path, "last"), (tmp_path, "first")]
    assert list(score_rows.run_in_order("one", work, tasks, ["a", "b"])) == ["a", "b"]


@pytest.mark.parametrize(
    ("what", "kind", "expected"),
    [
        ("damaged", DataError, "^score 2 of 2: a shard is damaged$"),
        pytest.param("defect", RuntimeError, DEFECT, marks=pytest.mark.sweep),
        ("killed", TrainyardError, r"^score 2 of 2: died \(SIGKILL\). .*evaluate.processes"),
    ],
)
def test_the_first_that_fails_is_the_error_and_ends_the_others(tmp_path, what, kind, expected):
    tasks = [(tmp_path, "for ever"), (tmp_path, what)]
    with pytest.raises(kind, match=expected):
        list(score_rows.run_in_order("score", work, tasks, tasks))
    assert not any(psutil.pid_exists(int(path.name)) for path in tmp_path.iterdir())


JOB = """
import sys
from pathlib import Path
from steps.evaluate import score_rows
from tests.steps.evaluate.test_score_processes import work
if __name__ == "__main__":
    tasks = [(Path(sys.argv[1]), "for ever")] * 2
    list(score_rows.run_in_order("score", work, tasks, tasks))
"""


def test_they_die_with_the_job(tmp_path):
    script, folder = tmp_path / "job.py", tmp_path / "folder"
    script.write_text(JOB)
    folder.mkdir()
    environment = os.environ | {"PYTHONPATH": str(CHECKOUT)}
    with subprocess.Popen([sys.executable, str(script), str(folder)], env=environment) as job:
        while len([*folder.iterdir()]) < 2:
            assert job.poll() is None
            time.sleep(0.02)
        workers = [psutil.Process(int(path.name)) for path in folder.iterdir()]
        job.kill()
        _, alive = psutil.wait_procs(workers, timeout=60)
    assert not alive
