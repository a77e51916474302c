"""Ranks that hang: who works by itself is named with its stack, and nobody that waits."""

import itertools
import os
import re
import time
from collections.abc import Callable
from pathlib import Path
from unittest import mock

import pytest
import torch
import torch.distributed as dist

from tests.training import worlds
from training.strategies.ranks import join_group
from training.strategies.single import Strategy
from training.watching import watchdog
from training.watching.watchdog import Watch
from trainyard.common.errors import LostRankError

pytestmark = pytest.mark.long

SECONDS = 3  # the collectives' limit


def pairs(rank: int) -> dict[frozenset[int], dist.ProcessGroup]:
    """Create a group of each two of three ranks; return this rank's."""
    every = [(0, 1), (1, 2), (0, 2)]
    return {frozenset(two): dist.new_group(two) for two in every}


def reduce_with(other: int, rank: int, groups: dict) -> None:
    dist.all_reduce(torch.ones(1), group=groups[frozenset((rank, other))])


def own_work(rank: int, groups: dict) -> None:
    time.sleep(60)


def wait_for_work(rank: int, groups: dict) -> None:
    """Rank 2 is at its own work, rank 1 waits for it, and rank 0 for rank 1."""
    own_work(rank, groups) if rank == 2 else reduce_with(rank + 1, rank, groups)


def receive_from_who_waits(rank: int, groups: dict) -> None:
    """Wait as above, by a receive, which torch's recorder of gloo leaves out."""
    own_work(rank, groups) if rank == 2 else dist.recv(torch.ones(1), rank + 1)


def wait_in_a_circle(rank: int, groups: dict) -> None:
    reduce_with((rank + 1) % 3, rank, groups)


def come_late(rank: int, groups: dict) -> None:
    if rank == 2:
        time.sleep(2 * SECONDS)
    dist.all_reduce(torch.ones(1))


def hang(given: list[str], environment: dict[str, str], root: Path, rank: int) -> None:
    """Run one of three ranks by ``<root>/act``; write why it ended into ``said-<rank>``."""
    os.environ.update(environment)
    watchdog.BEAT = 0.3
    with (root / f"rank-{rank}.log").open("w") as log:
        os.dup2(log.fileno(), 2)

    def end(error: LostRankError) -> None:
        (root / f"said-{rank}").write_text(str(error))
        os._exit(1)

    act = globals()[(root / "act").read_text()]
    with join_group(60 if act is come_late else SECONDS) as ranks:
        groups = pairs(rank)
        dist.barrier()
        try:
            with Watch(ranks, SECONDS, root, end):
                act(rank, groups)
        except LostRankError as error:
            end(error)


def hung(root: Path, act: Callable, waiting: int) -> list[str]:
    (root / "act").write_text(act.__name__)
    worlds.finish(worlds.start(root, 3, target=hang), 20)
    return [(root / f"said-{rank}").read_text() for rank in range(waiting)]


@pytest.mark.parametrize("act", [wait_for_work, receive_from_who_waits])
def test_a_rank_at_its_own_work_is_named_with_its_stack_and_none_that_waits_for_it(tmp_path, act):
    [line] = [n for n, text in enumerate(Path(__file__).read_text().splitlines(), 1)
              if text == "    time.sleep(60)"]  # fmt: skip
    here = r"watching/test_hangs\.py"
    expected = (
        rf"rank 2 \(pid \d+ on \S+, local rank 2\) lives, but lets the others wait for {SECONDS} s "
        rf"and is in no collective: at {here}:{line} in own_work, of {here}:\d+ in {act.__name__}: "
        r"time\.sleep\(60\) \(its log has all stacks\); last seen in step 1, rank [01] in step 1"
    )
    for said in hung(tmp_path, act, 2):
        assert re.match(expected, said), said
    assert "in own_work" in (tmp_path / "rank-2.log").read_text()


def test_ranks_in_different_collectives_are_all_named_with_theirs_and_none_is_accused(tmp_path):
    for said in hung(tmp_path, wait_in_a_circle, 3):
        named = [rf"rank {rank} in all_reduce,? .*test_hangs" for rank in range(3)]
        start = f"all ranks live, but wait for each other for {SECONDS} s in step 1: "
        assert re.match(start + "; ".join(f"{one}[^;]*" for one in named), said), said


def test_a_rank_that_comes_late_is_named_in_the_log_once_and_all_go_on(tmp_path):
    (tmp_path / "act").write_text(come_late.__name__)
    assert worlds.finish(worlds.start(tmp_path, 3, target=hang)) == [0, 0, 0]
    logs = [(tmp_path / f"rank-{rank}.log").read_text() for rank in range(3)]
    assert (
        len(re.findall(r"rank 2 .* lives, but lets the others wait for [2-6] s .*", logs[0])) == 1
    )
    assert "in come_late" in logs[2] and "lets the others wait" not in logs[1] + logs[2]


def sleep_in_step(given: list[str], environment: dict[str, str], root: Path, rank: int) -> None:
    losses, score = itertools.count(1), Strategy.score

    def sleepy(self, outputs, batch):
        if rank == 1 and next(losses) == 3:
            time.sleep(600)
        return score(self, outputs, batch)

    with mock.patch.object(Strategy, "score", sleepy):
        worlds.run_rank(given, environment, root, rank)


@pytest.mark.slow
def test_a_rank_that_sleeps_in_its_step_is_named_when_the_others_wait_for_its_shards(root: Path):
    """They wait in a group of the device mesh, to which torch would give half an hour."""
    settings = {"strategy": "fsdp", "micro_batch": 2, "collective_timeout_seconds": SECONDS}
    ranks = worlds.start(root, 2, target=sleep_in_step, **settings)
    assert worlds.finish(ranks) == [1, 1]
    message = (root / "output/failure").read_text()
    assert re.match(
        rf"rank 1 \(pid {ranks[1].pid} on .*\) lives, but lets the others wait for {SECONDS} s and "
        r"is in no collective: at watching/test_hangs.py:\d+ in sleepy, of .*time.sleep\(600\)",
        message,
    ), message
