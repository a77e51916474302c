"""The gate's benchmark runs, at a size at which its figures mean little; its worlds are true."""

import json
from pathlib import Path

import numpy as np
import pytest

from benchmarks.gate.judge import judge, sums, usual
from benchmarks.gate.setting import rate
from benchmarks.gate.simulate import PAIRS, World, pair, standard_error
from benchmarks.gate.slices import stopped
from conditions.paired import improvement

pytestmark = pytest.mark.long


@pytest.mark.slow
def test_every_section_runs_and_its_figures_are_written(run_python, tmp_path: Path):
    sizes = ["--pairs", "8", "--groups", "20,40"]
    outputs = ["--json", str(tmp_path / "figures.json")]
    done = run_python("-m", "benchmarks.gate", *sizes, *outputs)
    assert not done.returncode, done.stdout + done.stderr
    figures = json.loads((tmp_path / "figures.json").read_text())
    assert set(figures["sections"]) == {"promotion", "sure", "slices", "looks", "power"}
    assert len(figures["targets"]) == 21 and figures["setting"]["pairs"] == 8


@pytest.mark.parametrize("kind", PAIRS)
@pytest.mark.parametrize("effect", [-0.03, 0.0, 0.05])
def test_the_true_difference_is_what_the_world_says(kind, effect):
    """Of a very large test split; else the simulation would prove nothing."""
    batch = pair(World(kind=kind, groups=60_000, effect=effect), 0)
    challenger, champion, weight = (column.sum() for column in batch.metrics["score"])
    sign = 1 if kind == "accuracy" else -1
    rough = {"lengths": 0.02, "disaster 1 %": 0.004, "disaster 5 %": 0.002}
    found = sign * (challenger - champion) / weight
    assert found == pytest.approx(effect, abs=rough.get(kind, 0.0015))


def test_the_standard_error_is_that_of_many_pairs():
    """The spread is a little smaller where weights are unequal: few groups have a large one."""
    for kind in ("loss", "tied 90 %"):
        pairs = [sums(World(kind=kind, groups=100), seed) for seed in range(300)]
        values = [difference.sum() / weight.sum() for difference, weight in pairs]
        assert standard_error(kind, 100) == pytest.approx(np.std(values), rel=0.2)


def test_what_it_calls_usual_is_the_limits_without_skewness():
    """Of groups that are symmetric, where nothing else is minded."""
    source = np.random.default_rng(0)
    half = source.normal(0, 1, 25)
    difference, weight = 0.4 + np.concatenate([half, -half]), np.ones(50)
    low = improvement(difference, weight, 0.95).low
    assert usual(difference, weight, low - 1e-6) and not usual(difference, weight, low + 1e-6)
    assert sums(World(kind="days", groups=40), 0)[1].shape == (40,)


def test_a_bad_slice_stops_and_luck_that_some_lack_does_not():
    assert sum(stopped("normal", 3, 40, 6.0, seed)[0] for seed in range(20)) >= 18
    lucky = [stopped("rare luck", 10, 30, 0.0, seed) for seed in range(20)]
    assert sum(gate for gate, _ in lucky) <= 4 < 12 < sum(usual for _, usual in lucky)


def test_the_gate_promotes_what_is_no_better_rarely_and_what_is_much_better_nearly_always():
    """200 pairs of 30 groups: more than 18 of 200 at 5 % is 1 chance in 200."""
    same = [judge(World(kind="loss", groups=30, effect=0.0), None, seed) for seed in range(200)]
    better = [judge(World(kind="loss", groups=30, effect=0.2), None, seed) for seed in range(20)]
    assert sum(one.gate for one in same) <= 18
    assert 60 < sum(one.plain for one in same) < 140
    assert sum(one.gate for one in better) >= 19


def test_the_interval_of_a_rate_is_the_exact_one():
    found = rate([False] * 20)
    assert (found.low, found.median) == (0, 0)
    assert found.high == pytest.approx(1 - 0.025 ** (1 / 20))
