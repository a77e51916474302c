"""A rank that keeps the others waiting is named, and noise does not lead to a name."""

import re
import time
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.training import worlds
from tests.training.trainings import history
from training.watching.clock import PARTS
from training.watching.metric_line import NAMES
from training.watching.step_progress import (
    ADVICE,
    LINES,
    OWN_PARTS,
    RECENT_LINES,
    Stragglers,
    compute_ratios,
    format_straggler_line,
)

pytestmark = pytest.mark.long

MEANS = dict(zip(PARTS, (0.02, 0.3, 0.1, 0.03, 0.01), strict=True))
"""Seconds per part of a plausible training's step."""


def noisy(random: np.random.Generator, ranks: int, deviation: float) -> np.ndarray:
    """Return a line's table: each rank's parts, log-normal; a rank is slow in all its parts."""
    whole = np.exp(random.normal(0, deviation, (ranks, 1)))
    return np.array(list(MEANS.values())) * whole


@pytest.mark.parametrize("ranks", [2, 3, 64])
def test_noise_names_nobody_in_1000_lines(ranks):
    """Has 10 % noise per line, and a rank delayed by a checkpoint or page fault in each tenth
    line.
    """
    random, found = np.random.default_rng(ranks), Stragglers()
    for line in range(1000):
        table = noisy(random, ranks, 0.1)
        if line % 10 == 0:
            table[random.integers(ranks)] *= 5
        assert found.add(table.tolist()) == []


@given(st.data())
def test_the_rank_that_is_slow_is_named_once_with_its_part_and_no_other(data):
    ranks, stages = data.draw(st.integers(2, 40)), data.draw(st.integers(1, 4))
    slow, part = (
        data.draw(st.integers(0, ranks * stages - 1)),
        data.draw(st.sampled_from(OWN_PARTS)),
    )
    factor, begins = data.draw(st.floats(1.6, 10)), data.draw(st.integers(0, 20))
    random = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    own, found, named = sum(MEANS[p] for p in OWN_PARTS), Stragglers(stages), []
    for line in range(40):
        table = noisy(random, ranks * stages, 0.04)
        table *= np.repeat(1.0 + np.arange(stages), ranks)[:, None]  # stages have unequal work
        if line >= begins:
            table[slow, PARTS.index(part)] += (factor - 1) * own * (1 + slow // ranks)
        rows = table.tolist()
        named += [
            (line, one, format_straggler_line(rows, one, "here", 1, stages))
            for one in found.add(rows)
        ]
    [(line, rank, text)] = named
    assert rank == slow and f"in its {part}:" in text
    assert begins + LINES - 1 <= line < begins + RECENT_LINES + 2
    [ratio] = re.findall(r"takes (\S+) times", text)
    assert float(ratio) == pytest.approx(factor, rel=0.4)


@given(st.integers(2, 20), st.integers(0, 2**32 - 1), st.floats(1e-3, 1e3))
def test_ratios_know_neither_the_unit_nor_the_order_nor_what_is_waited(ranks, seed, unit):
    random = np.random.default_rng(seed)
    table = noisy(random, ranks, 0.5)
    found, order = np.array(compute_ratios(table.tolist())), random.permutation(ranks)
    assert compute_ratios((table * unit)[order].tolist()) == pytest.approx(found[order])
    table[:, [PARTS.index("communication"), PARTS.index("checkpoint")]] = random.random((ranks, 2))
    assert compute_ratios(table.tolist()) == pytest.approx(found)
    assert min(found) <= 1 <= max(found)


def test_of_two_ranks_the_slower_is_compared_with_the_other():
    table = [[0.1, 0.2, 0.5, 0.1, 0], [0.5, 0.2, 0.1, 0.1, 0]]
    assert compute_ratios(table) == pytest.approx([1, 2])
    text = format_straggler_line(table, 1, "algo-2", 10)
    assert "rank 1 on algo-2" in text and "2.00 times" in text and "0.04 s a step" in text
    assert ADVICE["data"] in text and ADVICE.keys() == set(OWN_PARTS)


def test_one_that_recovered_and_is_slow_again_is_named_again():
    found, named = Stragglers(), []
    for line in range(60):
        slow = line < 20 or line >= 40
        table = [list(MEANS.values()), [2 * one if slow else one for one in MEANS.values()]]
        named += [line] * len(found.add(table))
    assert named == [LINES - 1, 40 + LINES - 1]


def run_slow(given, environment, root, rank):
    """Run a rank: rank 2 is late with its data at first, then rank 1 in its forward pass.

    Its clock counts the processor's time and what it slept: on a busy machine any rank waits.
    """
    from training.data.loader import DevicePrefetcher
    from training.strategies.single import Strategy
    from training.watching import clock

    take, loss, steps, slept = DevicePrefetcher.take, Strategy.compute_loss, [], [0.0]

    def sleep(slow: bool) -> None:
        time.sleep(0.05 * slow)
        slept[0] += 0.05 * slow

    def take_slowly(self):
        steps.append(None)
        sleep(rank == 2 and len(steps) <= 10)
        return take(self)

    def late(self, *arguments):
        sleep(rank == 1 and len(steps) > 10)
        return loss(self, *arguments)

    DevicePrefetcher.take, Strategy.compute_loss = take_slowly, late
    clock.time = SimpleNamespace(perf_counter=lambda: time.process_time() + slept[0])
    worlds.run_rank(given, environment, root, rank)


@pytest.mark.slow
def test_the_log_of_a_training_names_the_rank_that_is_slow(root):
    settings = {"strategy": "ddp", "max_steps": 20, "global_batch": 12, "micro_batch": 4}
    settings |= {"validation_interval": 20, "checkpoint_interval": 20}
    assert worlds.finish(worlds.start(root, 3, target=run_slow, **settings)) == [0] * 3
    logs = [(root / f"rank-{rank}.log").read_text() for rank in range(3)]
    named = re.findall(r"rank (\d) on (\S+) is slower .* in its (\w+):", logs[0])
    assert [(rank, part) for rank, _, part in named] == [("2", "data"), ("1", "forward_backward")]
    assert all("is slower" not in log for log in logs[1:])
    lines = [line for line in history(root) if "loss" in line]
    assert all(line[NAMES["train:straggler_ratio"]] >= 1 for line in lines)
    assert np.median([line["straggler_ratio"] for line in lines]) > 2
    for line in lines:
        own = sorted(line[f"own_seconds.rank{rank}"] for rank in range(3))
        assert own[2] / own[1] == pytest.approx(line["straggler_ratio"])
        assert 0 < own[0] <= own[2] <= line["step_seconds"] * 1.5
