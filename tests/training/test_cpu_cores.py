"""A process's share of the machine's cores."""

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch

from training.cpu_cores import ThreadTimes, fit_threads
from trainyard.common.process import cores

NO_QUOTA = Path("/nowhere/cpu.max")
ALL = cores(NO_QUOTA)


@pytest.fixture(autouse=True)
def _many_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(4 * ALL)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize(
    "quota, expected",
    [
        ("max 100000", ALL),
        ("100000 100000", 1),
        ("150000 100000", 1),
        ("50000 100000", 1),
        (f"{ALL}00000 100000", ALL),
        (f"{ALL + 1}00000 100000", ALL),
        ("", ALL),
    ],
)
def test_a_containers_quota_counts(tmp_path: Path, quota: str, expected: int):
    (tmp_path / "cpu.max").write_text(quota)
    assert cores(tmp_path / "cpu.max") == expected


@pytest.mark.parametrize("name", ["LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE"])
@pytest.mark.parametrize("ranks", [1, 2, 64])
def test_the_ranks_of_a_machine_share_its_cores(name: str, ranks: int):
    fit_threads({name: str(ranks)})
    assert torch.get_num_threads() == max(1, cores() // ranks)


def test_omp_num_threads_is_never_exceeded():
    torch.set_num_threads(1)
    fit_threads({})
    assert torch.get_num_threads() == 1


def work(seconds: float) -> float:
    """Use ``seconds`` of CPU time; return the share of the time spent waiting for it."""
    before, end = ThreadTimes.now(), time.thread_time() + seconds
    while time.thread_time() < end:
        pass
    return ThreadTimes.now().share_since(before)


@contextmanager
def neighbours(count: int) -> Iterator[None]:
    """Run processes that want every core all the time."""
    spin = "while True: pass"
    processes = [subprocess.Popen([sys.executable, "-S", "-c", spin]) for _ in range(count)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


@pytest.mark.skipif(ThreadTimes.now() is None, reason="the kernel does not count the waiting")
def test_neighbours_on_every_core_are_noticed():
    """With five per core and a fair scheduler, a sixth of the time is ours."""
    with neighbours(5 * ALL):
        assert work(0.05) > 0.4


def test_a_kernel_that_counts_nothing_says_nothing(tmp_path: Path):
    assert ThreadTimes.now(tmp_path) is None


def test_threads_that_began_meanwhile_count_and_ended_ones_do_not():
    earlier = ThreadTimes({"1": 10, "2": 10}, {"1": 0, "2": 90})
    assert ThreadTimes({"1": 20, "3": 20}, {"1": 0, "3": 10}).share_since(earlier) == 0.25
    assert earlier.share_since(earlier) == 0
