"""Rounds of ranks that are threads here, at a store in memory."""

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from torch.distributed import HashStore, PrefixStore

from training.checkpoint.rendezvous import StoreExchange
from trainyard.common.errors import LostRankError, TrainingError

pytestmark = pytest.mark.long


def run_ranks(
    world: int, say: Callable[[StoreExchange], Any], patience: float = 20, absent: int = 0
) -> list:
    """Return what ``decide_or_give_up`` returns or raises on each rank except the last ``absent``
    ones.
    """
    store = PrefixStore("checkpoints", HashStore())

    def run(rank: int) -> Any:
        try:
            return say(StoreExchange(store, rank, world, patience))
        except TrainingError as error:
            return error

    with ThreadPoolExecutor(world) as pool:
        return [*pool.map(run, range(world - absent))]


def test_all_get_what_the_first_chooses_and_only_those_that_want_it():
    def decide_three_times(meeting: StoreExchange) -> Any:
        first = meeting.decide_together(meeting.rank, sum, needs_result=meeting.rank < 2)
        parts = meeting.decide_per_rank(meeting.rank, lambda said: [10 * one for one in said])
        return first, parts, meeting.decide_together(parts, max)

    assert run_ranks(4, decide_three_times) == [
        (6, 0, 30),
        (6, 10, 30),
        (None, 20, 30),
        (None, 30, 30),
    ]


def test_a_choice_that_fails_fails_on_all_even_those_that_do_not_want_it():
    def choose(said: Any) -> Any:
        raise TrainingError("the disk is full")

    found = run_ranks(3, lambda meeting: meeting.decide_together(None, choose, needs_result=False))
    assert [str(error) for error in found] == ["the disk is full"] * 3


@pytest.mark.parametrize(
    ("world", "absent", "named"),
    [(2, 1, "rank 1"), (7, 3, "rank 4, 5, 6"),
     (12, 11, "rank 1, 2, 3, 4, 5, 6, 7, 8 and 3 others")],
)  # fmt: skip
def test_who_does_not_come_is_named(world, absent, named):
    found = run_ranks(
        world, lambda meeting: meeting.decide_together(None, len), patience=0.2, absent=absent
    )
    assert all(isinstance(error, LostRankError) for error in found)
    assert {str(error) for error in found} == {
        f"{named} did not join the checkpoint, and no rank has made progress for 0.2 s "
        "(collective_timeout_seconds)"
    }


def test_who_gets_on_is_waited_for_beyond_the_patience():
    def decide_after_progress(meeting: StoreExchange) -> Any:
        for _ in range(30 if meeting.rank else 0):
            time.sleep(0.1)
            meeting.report_progress()
        return meeting.decide_together(None, len)

    assert run_ranks(2, decide_after_progress, patience=2) == [2, 2]


def test_a_rank_that_is_known_to_be_gone_is_not_waited_for():
    def decide_or_give_up(meeting: StoreExchange) -> Any:
        threading.Timer(0.05, meeting.give_up).start()
        return meeting.decide_together(None, len)

    began = time.monotonic()
    [error] = run_ranks(2, decide_or_give_up, absent=1)
    assert isinstance(error, LostRankError) and time.monotonic() - began < 10


def test_nothing_of_a_round_is_left_but_the_last_answer():
    store = HashStore()

    def run(rank: int) -> None:
        meeting = StoreExchange(store, rank, 3, 20)
        for number in range(5):
            meeting.decide_per_rank(number, lambda said: said)

    with ThreadPoolExecutor(3) as pool:
        [*pool.map(run, range(3))]
    assert store.num_keys() <= 3 + 1 + 1  # answers, done, pulse
