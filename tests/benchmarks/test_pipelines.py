"""What torch's pipeline schedules wait, against the formulas of their papers."""

import pytest

from benchmarks.pipelines import activations, formula, orders, waiting
from training.strategy_table import SCHEDULES


@pytest.mark.parametrize("name", SCHEDULES)
@pytest.mark.parametrize(("ranks", "micro_batches"), [(2, 8), (4, 16), (8, 32)])
def test_ranks_wait_as_the_formula_says(name, ranks, micro_batches):
    stages = SCHEDULES[name].usual
    order = orders(name, ranks, micro_batches, stages)
    assert sum(map(len, order)) >= 2 * ranks * stages * micro_batches
    assert waiting(order, ranks * stages) == formula(ranks, micro_batches, stages)


def test_one_forward_one_backward_keeps_the_activations_of_as_many_micro_batches_as_stages():
    assert activations(orders("1f1b", 4, 16, 1)) == 4
    assert activations(orders("gpipe", 4, 16, 1)) == 16


def test_an_order_that_cannot_be_is_found():
    with pytest.raises(ValueError, match="no rank can go on after 0 computations"):
        waiting([[(1, "F", 0)]], 2)
