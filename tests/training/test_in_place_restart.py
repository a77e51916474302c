"""Failures that are retried, and failures that would recur."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from steps.train.job import report_failure as report
from tests.training import worlds
from tests.training.trainings import CHECKOUT, TOYS, arguments
from training.in_place_restart import Attempt, refuse_failed_attempt
from trainyard.common.errors import DataError, LostRankError, TrainingError


def attempt(monkeypatch, number: int, most: int) -> None:
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", str(number))
    monkeypatch.setenv("TORCHELASTIC_MAX_RESTARTS", str(most))


def test_without_torchrun_there_is_one_attempt():
    assert (
        Attempt.from_environment({}) == Attempt(0, 0)
        and not Attempt.from_environment({}).will_restart
    )


def test_a_lost_rank_leaves_no_failure_while_restarts_are_left(tmp_path, monkeypatch, capsys):
    failure = tmp_path / "output/failure"
    attempt(monkeypatch, 2, 3)
    report(LostRankError("rank 1 is gone"), failure)
    assert not failure.exists() and "error: rank 1 is gone" in capsys.readouterr().out
    attempt(monkeypatch, 3, 3)
    report(LostRankError("rank 1 is gone"), failure)
    assert failure.read_text() == ("rank 1 is gone; restarted 3 times already (train.max_restarts)")


@pytest.mark.parametrize(
    ("error", "has_stepped", "restarts"),
    [
        (LostRankError("gone"), False, True),
        (TrainingError("not finite"), True, False),
        (RuntimeError("a bug, before the first step"), False, False),
        (RuntimeError("a bug, after it"), True, True),
    ],
)
def test_only_what_may_not_recur_is_restarted_and_never_after_the_last_attempt(
    error, has_stepped, restarts
):
    assert Attempt(0, 3).is_restarted_after(error, has_stepped) is restarts
    assert not Attempt(3, 3).is_restarted_after(error, has_stepped)


@pytest.mark.parametrize("kind", [TrainingError, DataError])
def test_what_would_come_again_is_refused_by_the_next_attempt(
    root, train, monkeypatch, kind, capsys
):
    failure = root / "output/failure"
    failure.parent.mkdir()
    failure.write_text("of another job, on a machine of a warm pool")
    refuse_failed_attempt(failure)
    attempt(monkeypatch, 0, 3)
    report(kind("loss is nan"), failure)
    attempt(monkeypatch, 1, 3)
    with pytest.raises(SystemExit):
        train(root)
    assert capsys.readouterr().out.endswith("error: loss is nan\n")
    assert failure.read_text() == "loss is nan"


@pytest.mark.slow
def test_a_rank_that_dies_after_the_training_has_ended_costs_nothing(root: Path, tmp_path: Path):
    """Torch's threads can abort a process that ends; the other machine's rank has then gone, and
    the restarted one waited for it in vain, three times.
    """
    (tmp_path / "sitecustomize.py").write_text(
        "import atexit, os\n"
        "if (os.environ.get('RANK'), os.environ.get('TORCHELASTIC_RESTART_COUNT')) == ('1', '0'):\n"
        "    atexit.register(os.abort)\n"
    )
    port, logs = worlds.free_port(), [tmp_path / "log-0", tmp_path / "log-1"]
    nodes = []
    for node, log in enumerate(logs):
        environment = os.environ | {
            **{"PYTHONPATH": f"{CHECKOUT}:{TOYS}:{tmp_path}", "OMP_NUM_THREADS": "1"},
            **{"GLOO_SOCKET_IFNAME": "lo", "PET_MAX_RESTARTS": "2"},
        }
        settings = arguments(root, {"strategy": "ddp", "micro_batch": 4})
        command = [
            *(sys.executable, "-m", "torch.distributed.run", "--nnodes=2", "--nproc_per_node=1"),
            *(f"--node_rank={node}", "--master_addr=127.0.0.1", f"--master_port={port}"),
            *("steps/train/job.py", *settings),
        ]
        with log.open("wb") as output:
            streams = {"stdout": output, "stderr": subprocess.STDOUT}
            nodes.append(subprocess.Popen(command, cwd=CHECKOUT, env=environment, **streams))
    try:
        assert [node.wait(120) for node in nodes] == [0, 0], logs[1].read_text()
    finally:
        for node in nodes:
            node.kill()
    assert "exitcode: -6" in logs[1].read_text()
    assert "every rank had finished successfully" in logs[1].read_text()
    assert (root / "model/model.safetensors").is_file()
