"""A bias of a layout is found where there is one, and drifting runs are not called biased."""

import numpy as np
import pytest

from benchmarks.strategies.cases import CASES, MECHANISMS
from benchmarks.strategies.rows import CHANCE, Row, adjusted, bias, biased, signed, table

pytestmark = pytest.mark.long

SEEDS, LAYOUTS = 8, 10


def runs(random: np.random.Generator, shift: float = 0.0) -> list[float]:
    """For each seed the mean of a run that drifts from its reference as a random walk does."""
    found = []
    for _ in range(SEEDS):
        off = shift + np.cumsum(random.normal(0, 2e-5, 100))
        reference = {step: 5.0 - step / 50 for step in range(1, 101)}
        curve = {step: reference[step] * (1 + off[step - 1]) for step in reference}
        found.append(signed(curve, reference))
    return found


def any_found(random: np.random.Generator) -> bool:
    """Whether one of the layouts is called biased, of which none is."""
    return min(adjusted([bias(runs(random)).p for _ in range(LAYOUTS)])) < CHANCE


@pytest.mark.sweep
def test_runs_that_drift_are_no_bias():
    random = np.random.default_rng(0)
    assert sum(any_found(random) for _ in range(12)) <= 3  # 0.6 expected


def test_a_bias_is_found_and_lies_in_its_interval():
    random = np.random.default_rng(1)
    found = [bias(runs(random, shift=3e-4)) for _ in range(20)]
    assert sum(one.p < 0.01 for one in found) >= 18
    assert sum(one.low <= 3e-4 <= one.high for one in found) >= 17
    assert np.mean([one.mean for one in found]) == pytest.approx(3e-4, abs=4e-5)


def test_the_same_curves_have_no_bias():
    assert bias([0.0] * SEEDS).p == 1.0


def test_the_biased_layout_is_named_and_what_is_told_beside_is_not():
    means = {
        "single": [0.0] * 4,
        "single in float32": [3e-4, 3.1e-4, 2.9e-4, 3e-4],
        "DDP × 2": [2e-4, 2.1e-4, 1.9e-4, 2e-4],
        "FSDP2 × 2": [1e-4, -1e-4, 2e-4, -3e-4],
    }
    rows = [Row(layout, 1e-3, 1e-4, found, found) for layout, found in means.items()]
    assert biased(rows) == ["DDP × 2"]
    assert table(rows).row_count == 5  # all layouts together
    one_seed = [Row(layout, 1e-3, 1e-4, found[:1]) for layout, found in means.items()]
    assert biased(one_seed) == [] and table(one_seed).row_count == 4


def test_a_layouts_row_compares_each_seed_with_its_own_single_process():
    def curves(*losses: float) -> dict:
        curve = {str(step): loss for step, loss in enumerate(losses, 1)}
        return {"losses": curve, "validation_losses": {"2": losses[-1]}}

    single = [curves(4.0, 2.0), curves(8.0, 4.0)]
    row = Row.of("DDP × 2", [curves(4.4, 2.0), curves(8.0, 3.0)], single)
    assert row.means == pytest.approx([0.05, -0.125])
    assert (row.largest, row.validation) == pytest.approx((0.25, 0.25))


def test_curves_are_compared_until_one_leaves_out_a_step_that_the_other_makes():
    def found(skipped: dict, *losses: float) -> dict:
        curve = {str(step): loss for step, loss in enumerate(losses, 1)}
        return {"losses": curve, "validation_losses": {"1": 1.0, "2": losses[2]}} | skipped

    single = found({}, 4.0, 2.0, 1.0)
    part = found({"skipped": {"1": 0, "2": 1, "3": 1}}, 4.0, 2.0, 1.5)
    row = Row.of("DDP × 2", [part], [single])
    assert (row.largest, row.validation, row.until) == (0, 0, 2)
    assert "0.0e+00 to step 2" in row.cells
    whole = Row.of("DDP × 2", [part], [single | {"skipped": part["skipped"]}])
    assert (whole.largest, whole.validation, whole.until) == pytest.approx((0.5, 0.5, None))


def test_the_mechanisms_are_layouts():
    assert set(MECHANISMS) <= set(CASES)
