"""The gate's benchmark runs, at a size at which its figures mean little; its worlds are true."""

import json
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import ttest_1samp

from benchmarks.gate.judge import is_promoted_by_usual_limits, judge_pair
from benchmarks.gate.worlds import WORLDS, compute_standard_error, draw_split
from benchmarks.harness import compute_rate
from conditions.improvement import Groups

pytestmark = pytest.mark.long


@pytest.mark.slow
def test_every_section_runs_and_its_figures_are_written(run_python, tmp_path: Path):
    sizes = ["--pairs", "4", "--groups", "20"]
    outputs = ["--json", str(tmp_path / "figures.json")]
    run_python("-m", "benchmarks.gate", *sizes, *outputs)  # four pairs may well miss a target
    figures = json.loads((tmp_path / "figures.json").read_text())
    assert set(figures["sections"]) == {"promotion", "slices", "looks"}
    assert figures["targets"] and figures["setting"]["pairs"] == 4


ROUGH = {"Pareto loss, 1.5": 40, "worse by log-normal length": 8, "log-normal loss, σ 2": 8,
         "Student's t with 2 degrees": 8}  # fmt: skip


@pytest.mark.parametrize("name", WORLDS)
@pytest.mark.parametrize("errors", [0.0, 2.0])
def test_the_true_difference_is_what_the_world_says(name, errors):
    """Over test splits of 100 groups, whose mean is 20 times better known."""
    if WORLDS[name].ordered:
        pytest.skip("joined")
    splits = [draw_split(name, 100, seed, errors) for seed in range(400)]
    value = sum(s.difference.sum() for s in splits) / sum(s.weight.sum() for s in splits)
    expected = errors * compute_standard_error(name, 100)
    if name in ("accuracy 0.98", "10 % of groups lost whole"):  # no more can be gained
        expected = min(expected, max(value, 0))
    assert abs(value - expected) < 4 / 20 * compute_standard_error(name, 100) * ROUGH.get(name, 1)


def test_what_it_calls_usual_is_students_t_where_groups_are_symmetric():
    half = np.random.default_rng(0).normal(0, 1, 50)
    values = np.concatenate([half, -half])
    for moved in np.linspace(0, 0.4, 21):
        groups = Groups(difference=values + moved, weight=np.ones(100), largest=None, level=0.05)
        p_value = ttest_1samp(values + moved, 0, alternative="greater").pvalue
        if not 0.03 < p_value < 0.07:
            assert is_promoted_by_usual_limits(groups) == (p_value < 0.05)


def test_the_gate_promotes_what_is_no_better_rarely_and_what_is_much_better_nearly_always():
    """200 pairs of 30 groups: more than 18 of 200 at 5 % is 1 chance in 200."""
    same = [judge_pair("normal, unlike sizes", 30, 0.0, 0, seed) for seed in range(200)]
    better = [judge_pair("normal, unlike sizes", 30, 6.0, 0, seed) for seed in range(20)]
    assert sum(one.gate for one in same) <= 18
    assert sum(one.gate for one in better) >= 19
    found = compute_rate([False] * 20)
    assert (found.low, found.median) == (0, 0)
    assert found.high == pytest.approx(1 - 0.025 ** (1 / 20))  # the exact interval
