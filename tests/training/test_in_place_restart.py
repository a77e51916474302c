"""Failures that are retried, and failures that would recur."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from steps.train.job import report_failure as report
from tests.training import worlds
from tests.training.test_loop import poison_rank_1
from tests.training.trainings import CHECKOUT, TOYS, arguments
from tests.trainyard.emulator.harness import until
from training.in_place_restart import Attempt, refuse_what_failed
from trainyard.common.errors import DataError, LostRankError, TrainingError


def attempt(monkeypatch, number: int, most: int) -> None:
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", str(number))
    monkeypatch.setenv("TORCHELASTIC_MAX_RESTARTS", str(most))


def test_without_torchrun_there_is_one_attempt():
    assert Attempt.read({}) == Attempt(0, 0) and not Attempt.read({}).another


def test_a_lost_rank_leaves_no_failure_while_restarts_are_left(tmp_path, monkeypatch, capsys):
    failure = tmp_path / "output/failure"
    attempt(monkeypatch, 2, 3)
    report(LostRankError("rank 1 is gone"), failure)
    assert not failure.exists() and "error: rank 1 is gone" in capsys.readouterr().out
    attempt(monkeypatch, 3, 3)
    report(LostRankError("rank 1 is gone"), failure)
    assert failure.read_text() == ("rank 1 is gone; restarted 3 times already (train.max_restarts)")


@pytest.mark.parametrize("kind", [TrainingError, DataError])
def test_what_would_come_again_is_refused_by_the_next_attempt(tmp_path, monkeypatch, kind):
    failure = tmp_path / "failure"
    failure.write_text("of another job, on a machine of a warm pool")
    refuse_what_failed(failure)
    attempt(monkeypatch, 0, 3)
    report(kind("loss is nan"), failure)
    attempt(monkeypatch, 1, 3)
    with pytest.raises(TrainingError, match="^loss is nan$"):
        refuse_what_failed(failure)


ONE_NODE = ("--nnodes=1", "--nproc_per_node=2")


def torchrun(
    root: Path,
    log: Path,
    restarts: int = 2,
    nodes: tuple[str, ...] = ONE_NODE,
    path: Path = TOYS,
    **settings,
) -> subprocess.Popen:
    """Start two ranks on one node, as AWS's driver does, or the ranks of one of ``nodes``."""
    environment = os.environ | {
        "PYTHONPATH": f"{CHECKOUT}:{TOYS}:{path}",
        "OMP_NUM_THREADS": "1",
        "GLOO_SOCKET_IFNAME": "lo",
        "PET_MAX_RESTARTS": str(restarts),
        "PET_MASTER_PORT": str(worlds.free_port()),
    }
    command = [sys.executable, "-m", "torch.distributed.run", *nodes,
               "steps/train/job.py", *arguments(root, settings)]  # fmt: skip
    with log.open("wb") as output:
        return subprocess.Popen(
            command, cwd=CHECKOUT, env=environment, stdout=output, stderr=subprocess.STDOUT
        )


def rank_of(launcher: subprocess.Popen, rank: int) -> psutil.Process:
    children = psutil.Process(launcher.pid).children(recursive=True)
    ranks = [c for c in children if "training.checkpoint.writer_process" not in c.cmdline()]
    [found] = [c for c in ranks if c.environ().get("RANK") == str(rank)]
    return found


def wait_for(log: Path, text: str, launcher: subprocess.Popen) -> None:
    end = time.monotonic() + 120
    while text not in log.read_text():
        assert launcher.poll() is None and time.monotonic() < end, log.read_text()
        time.sleep(0.01)


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
    nodes = [
        torchrun(
            root,
            log,
            nodes=("--nnodes=2", "--nproc_per_node=1", f"--node_rank={node}",
                   "--master_addr=127.0.0.1", f"--master_port={port}"),
            path=tmp_path,
            strategy="ddp",
            micro_batch=4,
        )
        for node, log in enumerate(logs)
    ]  # fmt: skip
    try:
        assert [node.wait(120) for node in nodes] == [0, 0], logs[1].read_text()
    finally:
        for node in nodes:
            node.kill()
    assert "exitcode: -6" in logs[1].read_text()
    assert "every rank had ended well" in logs[1].read_text()
    assert (root / "model/model.safetensors").is_file()


@pytest.mark.sweep
@pytest.mark.slow
def test_a_loss_that_is_not_finite_is_not_tried_again(root: Path, tmp_path: Path):
    poison_rank_1(root)
    log = tmp_path / "log"
    assert torchrun(root, log, restarts=1, strategy="ddp", micro_batch=4).wait(120) != 0
    assert (root / "output/failure").read_text().startswith("loss is nan at step ")
    assert log.read_text().count("step=1 ") == 1
    assert log.read_text().count("error: loss is nan") >= 2  # in either attempt


@pytest.mark.sweep
@pytest.mark.slow
def test_a_killed_rank_is_started_again_and_a_stopped_job_is_not(root: Path, tmp_path: Path):
    """In one job: SIGKILL of a rank, later SIGTERM to torchrun, which forwards it."""
    log = tmp_path / "log"
    steps = {"max_steps": 20_000, "checkpoint_interval": 20, "validation_interval": 10**6}
    launcher = torchrun(root, log, strategy="ddp", micro_batch=4, **steps)
    wait_for(log, "step=60 ", launcher)
    until(lambda: saved(root, 40), 120)  # beside the training: it comes when it comes
    victim = rank_of(launcher, 1)
    victim.kill()
    wait_for(log, "restart 1 of 2", launcher)
    before, _, after = log.read_text().partition("restart 1 of 2: ")
    assert after.startswith(f"rank 1 (pid {victim.pid} on ")
    step = int(re.search(r"going on from the checkpoint of step (\d+)\n", after)[1])
    assert step >= 40 and not (root / "output/failure").exists()
    assert f"(exitcode: -{signal.SIGKILL.value}) local_rank: 1 (pid: {victim.pid})" in before
    wait_for(log, f"step={step + 200} ", launcher)
    launcher.terminate()
    assert launcher.wait(60) != 0
    before, _, after = log.read_text().partition("restart 1 of 2: ")
    again = printed(before).keys() & printed(after).keys()
    assert all(printed(before)[n] == printed(after)[n] for n in again)
    assert min(printed(after)) == step + 1
    message = (root / "output/failure").read_text()
    step = int(re.match(r"stopped by SIGTERM after step (\d+); a checkpoint is saved", message)[1])
    assert saved(root, step) == [step]
    assert "restart 2" not in after


def saved(root: Path, least: int) -> list[int]:
    """Return the steps of the complete checkpoints, from ``least`` on."""
    found = root.glob("checkpoints/*/step-*/complete.json")
    steps = sorted(int(path.parent.name.removeprefix("step-")) for path in found)
    return [step for step in steps if step >= least]


def printed(log: str) -> dict[int, str]:
    """Return step → loss as printed."""
    return {int(step): loss for step, loss in re.findall(r"^step=(\d+) loss=(\S+) ", log, re.M)}
