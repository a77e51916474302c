"""What the benchmark of the search measures: regret from 0, and epochs until the best."""

import numpy as np
import pytest

from benchmarks.tuning import EPOCHS, RULES, Table, emission, searched, units
from trainyard.emulator.sagemaker.tuning.search_strategies import Categorical, Numeric

pytestmark = pytest.mark.sweep

COLUMNS = (("a", "b"), tuple(range(10)))
SPACE = (Categorical("c", ("a", "b")), Numeric("n", 0, 9, "Linear", is_integer=True))
LOSSES = {(c, n): (10.0 * c + n, 10.0 * c + n + 0.5) for c in range(2) for n in range(10)}
TABLE = Table("made up", SPACE, COLUMNS, LOSSES)


def test_regret_is_0_at_the_optimum_and_1_at_the_median() -> None:
    assert TABLE.regret((0, 0)) == 0
    assert TABLE.regret((0, 9)) < 1 < TABLE.regret((1, 0))
    assert TABLE.key({"c": "b", "n": "7"}) == (1, 7)


@pytest.mark.parametrize("searcher", ["Random", "Bayesian", "optuna alone"])
def test_a_search_of_everything_finds_the_optimum(searcher: str) -> None:
    found = searched(TABLE, searcher, 30, seed=0)
    assert found.regrets.shape == (30,)
    assert found.regrets[-1] <= 0.1 < found.regrets[0]
    assert (found.regrets == searched(TABLE, searcher, 30, seed=0).regrets).all()


def test_a_curve_ends_near_its_configurations_loss() -> None:
    from random import Random

    ends = [emission(TABLE, (0, 3), EPOCHS, Random(seed)) for seed in range(50)]
    assert np.mean(ends) == pytest.approx(3.25, abs=0.05 * TABLE.span)
    assert emission(TABLE, (0, 3), 1, Random(0)) > 3.5


def test_a_search_ends_with_a_whole_job_and_hyperband_with_fewer_epochs() -> None:
    spent = {name: [units(TABLE, rule, seed) for seed in range(20)] for name, rule in RULES.items()}
    assert min(spent["Random"]) >= EPOCHS
    assert np.mean(spent["Hyperband"]) < 0.5 * np.mean(spent["Random"])
