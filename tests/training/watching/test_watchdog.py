"""A rank that is gone or silent is named by the others, which end by themselves."""

import json
import os
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from tests.training import worlds
from tests.training.test_loop import copy_inputs
from tests.training.trainings import losses
from tests.trainyard.emulator.harness import until
from training.strategies.ranks import Ranks, build_started_key, connect_store, join_group
from training.watching import watchdog
from training.watching.watchdog import Watch
from trainyard.common.errors import LostRankError

pytestmark = pytest.mark.long

FIRST_OF_TWO = Ranks(0, 0, 2, torch.device("cpu"))


@pytest.fixture
def notes(monkeypatch) -> Iterator[dist.Store]:
    """Return the store of a group of this process alone, in which it can imitate other ranks."""
    for name, value in worlds.variables(worlds.free_port()).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(watchdog, "BEAT", 0.05)
    with join_group(30):
        yield dist.PrefixStore("watchdog", connect_store(30))


def attempt(monkeypatch, number: int) -> None:
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", str(number))
    monkeypatch.setenv("TORCHELASTIC_MAX_RESTARTS", "3")


def store_note(notes: dist.Store, key: str, **said) -> None:
    notes.set(key, json.dumps(said))


def second(notes: dist.Store, *, step: int = 6) -> None:
    """Write rank 1's sign of life, now."""
    store_note(notes, "0/rank-1", step=step, at=time.time(), pid=42, host="algo-2", local_rank=0)


@contextmanager
def second_lives(notes: dist.Store, step: int) -> Iterator[None]:
    over = threading.Event()

    def live() -> None:
        while not over.wait(0.01):
            second(notes, step=step)

    thread = threading.Thread(target=live)
    thread.start()
    yield
    over.set()
    thread.join()


def watch(folder: Path, timeout: int = 30, end: Callable = print) -> Watch:
    one = Watch(FIRST_OF_TWO, timeout, folder, end)
    one.step = lambda: 7
    return one


def read_lost_rank_error(one: Watch, text: str, file: str = "[gloo/transport/tcp/pair.cc] ") -> str:
    """Return the message when a collective fails with ``text``."""
    with pytest.raises(LostRankError) as caught, one:
        raise RuntimeError(f"{file}{text}")
    return str(caught.value).partition(";")[0]


def test_other_errors_stay_what_they_are(notes, tmp_path):
    second(notes)
    with pytest.raises(RuntimeError, match="^CUDA out of memory$"), watch(tmp_path):
        raise RuntimeError("CUDA out of memory")
    end = json.loads(notes.get("0/end-0"))
    assert end == {"reason": "RuntimeError: CUDA out of memory", "lost": False}


NAME = "rank 1 (pid 42 on algo-2, local rank 0)"


def test_a_dead_rank_a_silent_one_and_one_that_failed_are_told_apart(notes, tmp_path):
    second(notes)
    assert (
        read_lost_rank_error(watch(tmp_path), "Connection closed")
        == f"{NAME} is gone, killed or crashed"
    )
    assert (
        read_lost_rank_error(watch(tmp_path), "Timed out waiting") == f"{NAME} fell silent for 30 s"
    )
    ended = "Application timeout caused pair closure"  # of a second collective: without the file
    assert read_lost_rank_error(watch(tmp_path), ended, file="") == f"{NAME} fell silent for 30 s"
    store_note(notes, "0/end-1", reason="ValueError: no", lost=False)
    assert (
        read_lost_rank_error(watch(tmp_path), "Connection closed")
        == f"{NAME} ended with ValueError: no"
    )


def test_a_process_that_waits_for_a_silent_rank_is_ended_by_its_watchdog(notes, tmp_path):
    second(notes, step=6)
    ends: list[LostRankError] = []
    with watch(tmp_path, 1, ends.append):
        until(lambda: ends, 60)
    assert str(ends[0]).startswith(
        f"{NAME} fell silent for 1 s; last seen in step 7, rank 0 in step 8; "
    )
    dump = tmp_path / "attempt-0-rank-0.json"
    assert str(dump) in str(ends[0]) and dump.is_file()


def test_a_rank_that_lives_is_waited_for(notes, tmp_path):
    ends: list[LostRankError] = []
    with second_lives(notes, step=6), watch(tmp_path, 1, ends.append):
        time.sleep(2)
    assert ends == []


def test_a_rank_that_waits_for_rank_0_believes_what_that_found(notes, tmp_path):
    """Under mpirun, rank 0's end would look as if rank 0 were the missing one."""
    ends: list[LostRankError] = []
    with watch(tmp_path, end=ends.append):
        notes.set("0/lost", f"{NAME} is gone, killed or crashed")
        until(lambda: ends, 60)
    assert str(ends[0]).startswith(f"{NAME} is gone, killed or crashed")


def test_rank_0_keeps_the_store_until_the_others_have_looked(notes, tmp_path):
    over, began = threading.Event(), time.monotonic()

    def end_after_looking() -> None:
        until(lambda: notes.check(["0/lost"]), 60)
        for _ in range(10):
            second(notes)
            time.sleep(0.05)
        store_note(notes, "0/end-1", reason="rank 2 is gone", lost=True)
        over.set()

    thread = threading.Thread(target=end_after_looking)
    thread.start()
    read_lost_rank_error(watch(tmp_path), "Connection closed")
    assert over.is_set() and time.monotonic() - began < 60
    thread.join()


@pytest.fixture
def rank_restarter(notes, monkeypatch) -> Callable[[], None]:
    """Restart the ranks of the other machine, as attempt 1."""
    attempt(monkeypatch, 0)
    monkeypatch.setenv("TORCHELASTIC_USE_AGENT_STORE", "True")
    monkeypatch.setattr(watchdog, "BEAT", 0.3)  # a busy machine lets the other rank's thread wait
    return lambda: notes.set(build_started_key(1), "")


@pytest.mark.parametrize(
    ("lives", "reason", "expected"),
    [
        (False, "", f"{NAME} is gone, killed or crashed"),
        (True, "ValueError: no", f"{NAME} ended with ValueError: no"),
        (True, "", "the ranks of another machine were started again"),
    ],
)
def test_a_rank_ends_when_the_others_are_in_the_next_attempt(
    notes, tmp_path, rank_restarter, lives, reason, expected
):
    """It names the rank that was replaced at once, or why it ended, or follows the others."""
    ends: list[LostRankError] = []
    if reason:
        store_note(notes, "0/end-1", reason=reason, lost=False)
    second(notes)
    alive = second_lives(notes, step=6) if lives else nullcontext()
    with alive, watch(tmp_path, end=ends.append):
        rank_restarter()
        until(lambda: ends, 60)
    assert str(ends[0]).partition(";")[0] == expected
    with pytest.raises(LostRankError, match="attempt 0 is over"), join_group(30):
        pass


@pytest.mark.parametrize(
    ("ends", "expected"),
    [
        ({0: ("", True)}, f"{NAME} ended without a word, killed or crashed; last seen in step 7"),
        ({0: ("rank 1 fell silent", True)}, "rank 1 fell silent"),
        ({0: ("", True), 1: ("OSError: disk", False)}, "rank 1: OSError: disk"),
        ({0: ("", True), 1: ("", True)}, "torchrun did not say why"),
    ],
)
def test_a_restart_says_why(notes, tmp_path, monkeypatch, ends, expected):
    second(notes)
    with watch(tmp_path) as one:
        assert one.explain_restart() == ""  # the first start needs no reason
    for rank, (reason, lost) in ends.items():
        store_note(notes, f"0/end-{rank}", reason=reason, lost=lost)
    attempt(monkeypatch, 1)
    with watch(tmp_path) as one:
        assert one.explain_restart() == f"restart 1 of 3: {expected}"


def test_without_torchrun_a_rank_that_waits_for_rank_0_names_the_one_that_was_killed(tmp_path):
    """Rank 0 waits for rank 2, which is killed, and rank 1 for rank 0: in groups of two, as in
    tensor parallelism. Rank 0 keeps the store, and would end first if it did not wait.
    """
    worlds.finish(worlds.start(tmp_path, 3, target=wait_in_pairs))
    for rank in (0, 1):
        said = (tmp_path / f"said-{rank}").read_text()
        assert re.match(r"rank 2 \(pid \d+ on .*\) is gone, killed or crashed; last seen", said)


def wait_in_pairs(given: list[str], environment: dict[str, str], root: Path, rank: int) -> None:
    """Run one of three ranks; write the missing rank into ``said-<rank>``."""
    os.environ.update(environment)
    watchdog.BEAT = 0.3

    def end(error: LostRankError) -> None:
        (root / f"said-{rank}").write_text(str(error))
        os._exit(1)

    with join_group(60) as ranks:
        pairs = [dist.new_group([0, 1]), dist.new_group([0, 2])]
        try:
            with Watch(ranks, 60, root, end):
                dist.barrier()
                if rank == 2:
                    os.kill(os.getpid(), signal.SIGKILL)
                dist.all_reduce(torch.ones(1), group=pairs[rank != 1])
        except LostRankError as error:
            end(error)


@pytest.mark.slow
def test_a_rank_that_is_killed_is_told_from_a_silent_one(root: Path):
    never = dict.fromkeys(("max_steps", "checkpoint_interval", "validation_interval"), 10**6)
    ranks = worlds.start(root, 2, strategy="ddp", micro_batch=2, log_interval=20, **never)
    worlds.until_printed(root, "step=20 ", ranks)
    ranks[1].kill()
    assert worlds.finish(ranks, 30) == [1, -signal.SIGKILL]
    message = (root / "output/failure").read_text()
    assert f"rank 1 (pid {ranks[1].pid} on " in message
    assert "is gone, killed or crashed; last seen in step" in message and "silent" not in message
    assert not list(root.glob("checkpoints/*/step-*/complete.json"))


@pytest.mark.slow
def test_machines_with_their_own_ranks_files_only_go_on_together(root: Path, tmp_path: Path):
    """After a restart in place nothing has come back from S3: each machine has its own files."""
    settings = {"strategy": "fsdp", "micro_batch": 2}
    machines = [copy_inputs(root, f"machine-{n}") for n in range(2)]
    assert worlds.finish(worlds.start(machines, 2, **settings)) == [0, 0]
    undisturbed = losses(machines[0])
    for machine in machines:
        [newest] = machine.glob("checkpoints/*/step-00000010")
        assert len([*newest.glob("*.safetensors")]) == 1
        (newest / "complete.json").unlink()
    assert worlds.finish(worlds.start(machines, 2, **settings)) == [0, 0]
    assert losses(machines[0]) == undisturbed
    assert "is read from rank" in (machines[0] / "rank-0.log").read_text()
