"""The train job beside the jobs of the other ranks."""

import re

import pytest

from tests.training.test_identity import build_test_parts
from training.identity import Parts
from training.session import check_ranks_agree
from trainyard.common.errors import TrainingError


class Ranks:
    """Stand-in for three ranks that exchange their parts."""

    def __init__(self, *every: tuple[Parts, str]) -> None:
        self._every = list(every)

    def gather(self, mine: tuple[Parts, str]) -> list[tuple[Parts, str]]:
        assert mine in self._every
        return self._every


def test_ranks_with_other_code_or_settings_are_named_before_the_first_step():
    same, changed = (
        build_test_parts(),
        build_test_parts({"training/loop.py": b"another loop"}, seed=1),
    )
    one, other, more = (same, "a" * 8), (changed, "a" * 8), (same, "b" * 8)
    check_ranks_agree(*one, Ranks(one, one, one))
    said = re.escape("rank 2 differs from rank 0: seed 0 → 1; code (~ training/loop.py); give all")
    with pytest.raises(TrainingError, match=said):
        check_ranks_agree(*one, Ranks(one, one, other))
    with pytest.raises(TrainingError, match="rank 1 .*: validation data aaaaaaaa → bbbbbbbb; give"):
        check_ranks_agree(*one, Ranks(one, more, one))


ENDING = """
from concurrent.futures import ThreadPoolExecutor
from threading import Thread
from time import sleep
from steps.train.job import _end_process
pool = ThreadPoolExecutor(2)  # as a loader's, which a workload may keep
pool.submit(print, "worked", flush=True).result()
Thread(target=lambda: (sleep(0.3), print("saved"))).start()
_end_process()
"""


def test_the_process_ends_though_a_pool_is_idle_and_waits_for_a_thread_at_work(run_python):
    done = run_python("-c", ENDING)
    assert (done.returncode, done.stdout) == (0, "worked\nsaved\n"), done.stderr
