"""A stop ends all ranks after one step: every interleaving of their threads, and real ranks."""

import math
import os
import signal
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from torch.distributed import HashStore

from tests.training import worlds
from training.agreed_stop import GO_ON, PATIENCE, Agreement

pytestmark = pytest.mark.long


class Ranks:
    """Ranks whose step ends when all have begun it, as with a collective in it, or which only queue
    it (``free``), up to ``ahead`` steps beyond the slowest.
    """

    def __init__(self, world: int, *, free: int = 0) -> None:
        self.store, self.free, self.now = HashStore(), free, 0.0
        self.sides = [Agreement(self.store, rank, world, 0) for rank in range(world)]
        self.begun, self.ended, self.dead = [0] * world, [False] * world, set[int]()

    def run(self, rank: int) -> None:
        """Run a rank's training thread up to the next boundary between steps."""
        slowest = min(self.begun)
        if rank in self.dead or self.ended[rank] or self.begun[rank] > slowest + self.free:
            return
        answer = self.sides[rank].may_begin(self.begun[rank] + 1)
        self.ended[rank] = answer is False
        self.begun[rank] += answer is True

    def look(self, rank: int) -> None:
        if rank not in self.dead:
            self.sides[rank].poll_store(self.now)


MOVES = st.lists(st.tuples(st.sampled_from(["run", "look"]), st.integers(0, 3)), max_size=120)


@given(MOVES, st.sets(st.integers(0, 3), min_size=1), st.integers(0, 120), st.integers(0, 3))
def test_all_ranks_end_after_the_same_step_whatever_comes_first(moves, asked, when, free):
    ranks = Ranks(4, free=free)
    for number, (move, rank) in enumerate(moves):
        if number == when:
            for one in asked:
                ranks.sides[one].stop_requested = True
        getattr(ranks, move)(rank)
    for one in asked:
        ranks.sides[one].stop_requested = True
    at = max(ranks.begun)
    for _ in range(40):  # everybody gets on, so that they do end
        for rank in range(4):
            ranks.look(rank)
            ranks.run(rank)
    assert all(ranks.ended)
    assert len(set(ranks.begun)) == 1
    assert at <= ranks.begun[0] <= at + free + 3  # soon


@given(MOVES, st.integers(0, 3), st.integers(0, 120))
def test_a_rank_that_died_holds_nobody_for_ever(moves, died, when):
    """The others go on, into the step in which they notice its absence."""
    ranks = Ranks(4)
    ranks.sides[0].stop_requested = True
    for number, (move, rank) in enumerate(moves):
        if number == when:
            ranks.dead.add(died)
        getattr(ranks, move)(rank)
    ranks.dead.add(died)
    alive = [rank for rank in range(4) if rank != died]
    for _ in range(20):
        ranks.now += PATIENCE / 10
        for rank in alive:
            ranks.look(rank)
            ranks.run(rank)
    until = int(ranks.store.get("until")) if ranks.store.check(["until"]) else GO_ON
    if died == 0 and not ranks.store.check(["asked"]):
        return  # nobody knows
    last = math.inf if until == GO_ON else until
    for rank in alive:
        stuck_in_a_step = ranks.begun[rank] > ranks.begun[died]
        assert ranks.ended[rank] or (stuck_in_a_step and ranks.begun[rank] <= last)


def _late(given: list[str], environment: dict[str, str], root: Path, rank: int) -> None:
    """Run a rank that learns late that the last checkpoint is complete; rank 0, which knows first,
    keeps the store that it asks.
    """
    from training.checkpoint import rendezvous

    rendezvous.FIRST_PAUSE = rendezvous.LONGEST_PAUSE = 2.0 * rank or rendezvous.FIRST_PAUSE
    worlds.run_rank(given, environment, root, rank)


@pytest.mark.slow
def test_sigterm_at_one_rank_stops_both_after_one_step_that_is_saved(root):
    never = dict.fromkeys(("max_steps", "checkpoint_interval", "validation_interval"), 10**6)
    ranks = worlds.start(root, 2, target=_late, micro_batch=4, log_interval=20, **never)
    worlds.until_printed(root, "step=20 ", ranks)
    asked = time.time()
    os.kill(ranks[1].pid, signal.SIGTERM)
    assert worlds.finish(ranks, 90) == [1, 1], (root / "rank-0.log").read_text()
    message = (root / "output/failure").read_text()
    [saved] = root.glob("checkpoints/*/step-*/complete.json")
    assert message.startswith(f"stopped by SIGTERM after step {int(saved.parent.name[5:])};")
    assert saved.stat().st_mtime - asked < PATIENCE  # they agreed, and did not wait it out
    assert not (root / "model").exists()
    assert not any("Traceback" in log.read_text() for log in root.glob("rank-*.log"))
