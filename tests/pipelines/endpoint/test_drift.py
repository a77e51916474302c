"""Drift is called where two samples differ by more than chance and more than a trifle."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.endpoint.drift import MISSING, VALUES, Change, compare, psi
from trainyard.quality.model_quality import Cells

LIMITS = {"error": 0.05, "least_psi": 0.1}


def cells(values: np.ndarray) -> Cells:
    return [str(value) for value in values]


def one(before: Cells, now: Cells, *, number: bool = True) -> dict[str, Change]:
    found = compare({"x": before}, {"x": now}, {"x"} if number else (), **LIMITS)
    return {change.respect: change for change in found}


def test_the_index_is_that_of_the_shares():
    assert psi(np.array([1e9, 1e9]), np.array([1e9, 3e9])) == pytest.approx(
        0.25 * np.log(1.5) - 0.25 * np.log(0.5), rel=1e-6
    )


def test_a_shifted_number_has_about_the_divergence_of_its_distributions():
    random = np.random.default_rng(0)
    found = one(cells(random.normal(size=5000)), cells(random.normal(0.5, 1, 5000)))[VALUES]
    assert found.psi == pytest.approx(0.25, abs=0.05), "Jeffreys' divergence"
    assert found.has_drifted and found.chance < 1e-50 and found.movement.startswith("median ")


def test_a_number_whose_median_stays_says_where_it_moved():
    found = one(["0"] * 80 + ["1"] * 20, ["0"] * 51 + ["5"] * 49)[VALUES]
    assert found.has_drifted and found.movement == "from 5 on: 0.0% → 49.0%"


def test_certain_trifles_are_no_drift():
    random = np.random.default_rng(0)
    found = one(cells(random.normal(size=9000)), cells(random.normal(0.1, 1, 9000)))[VALUES]
    assert found.chance < 1e-6 and found.psi < 0.1 and not found.has_drifted


def test_numbers_written_with_fewer_digits_are_the_same_numbers():
    random = np.random.default_rng(0)
    knots = random.integers(5, 12, (2, 500)) * 1.15078
    found = one(cells(knots[0]), [f"{value:.10g}" for value in knots[1]])[VALUES]
    assert not found.has_drifted and found.chance > 0.05


@pytest.mark.parametrize("moved", [-1.0, 1.0])
def test_a_constant_that_changes_is_drift(moved: float):
    assert one(["0"] * 50, [str(moved)] * 50)[VALUES].has_drifted


def test_values_that_come_empty_are_drift_of_their_own():
    found = one(["1", "2"] * 50, ["1", None] * 50)
    assert found[MISSING].has_drifted and found[MISSING].movement == "missing 0.0% → 50.0%"
    assert [*one(["1", "2"] * 50, [None] * 100)] == [MISSING]
    assert one(["1", "2"] * 50, ["many"] * 100)[MISSING].has_drifted, "text where numbers were"


def test_a_new_category_and_a_lost_one_are_drift():
    before, now = ["a", "b"] * 100, ["a", "c"] * 100
    found = one(before, now, number=False)[VALUES]
    assert found.has_drifted and found.movement in ("b 50.0% → 0.0%", "c 0.0% → 50.0%")


def test_categories_that_never_repeat_are_not_told_apart():
    found = one([f"a{n}" for n in range(99)], [f"b{n}" for n in range(99)], number=False)[VALUES]
    assert not found.has_drifted and found.movement == "nothing told apart"


def test_one_drift_is_found_among_many_features_and_named_alone():
    random = np.random.default_rng(1)
    before, now = ({f"x{n}": random.normal(size=600) for n in range(40)} for _ in range(2))
    now["x7"] = now["x7"] + 0.7
    sides = ({name: cells(values) for name, values in side.items()} for side in (before, now))
    found = compare(*sides, before.keys(), **LIMITS)
    assert [change.feature for change in found if change.has_drifted] == ["x7"]


def test_the_error_is_that_of_all_features_together():
    """In 50 weeks at an error of 5 %, 2.5 false alarms are expected; without Holm's correction over
    the 10 features, 20.
    """
    random = np.random.default_rng(2)
    alarms = 0
    for _ in range(50):
        sides = ({f"x{n}": cells(random.normal(size=60)) for n in range(10)} for _ in range(2))
        found = compare(*sides, {f"x{n}" for n in range(10)}, error=0.05, least_psi=0)
        alarms += any(change.has_drifted for change in found)
    assert alarms <= 8, "more have a chance of 0.1 %"


TEXTS = st.lists(st.none() | st.sampled_from(["", "nan", "inf", "1", "2.5", "-7", "a", "é"]))


@given(before=TEXTS, now=TEXTS, number=st.booleans())
def test_any_cells_have_a_finite_answer(before: Cells, now: Cells, number: bool):
    if not before or not now:
        return
    found = one(before, now, number=number)
    assert all(0 <= c.chance <= 1 and 0 <= c.psi < np.inf for c in found.values()) and found
    same = one(before, before, number=number)
    assert not any(change.has_drifted for change in same.values())


def numbers_of(size: int, seed: int) -> np.ndarray:
    return np.exp(np.random.default_rng(seed).normal(size=size))


def ids(low: int, high: int, size: int, seed: int) -> Cells:
    return cells(np.random.default_rng(seed).integers(low, high, size))


def drifted(before: Cells, now: Cells, *, number: bool) -> list[str]:
    found = compare({"x": before}, {"x": now}, {"x"} if number else (), **LIMITS)
    return [change.movement for change in found if change.has_drifted and change.respect == VALUES]


@pytest.mark.parametrize("size", [600, 10_000])
@pytest.mark.parametrize(
    ("share", "change"),
    [(0.08, lambda x: x * 1000), (0.05, lambda x: x * 0 - 999), (0.05, lambda x: x * 0)],
)
def test_a_few_records_far_outside_are_drift(size: int, share: float, change):
    now = numbers_of(size, 1)
    moved = np.random.default_rng(2).random(size) < share
    now[moved] = change(now[moved])
    assert any(" → " in what for what in drifted(cells(numbers_of(size, 0)), cells(now),
                                                 number=True))  # fmt: skip


def test_a_sentinel_that_the_baseline_has_now_and_then_is_drift_once_it_is_frequent():
    before, now = numbers_of(800, 0), numbers_of(800, 1)
    before[:2], now[:50] = -999, -999
    assert drifted(cells(before), cells(now), number=True)


@pytest.mark.parametrize("number", [False, True])
@pytest.mark.parametrize(("values", "size"), [(4000, 10_000), (4000, 3000), (400, 10_000),
                                              (100, 1000)])  # fmt: skip
def test_identifiers_replaced_by_others_are_drift(values: int, size: int, number: bool):
    """Also where they are numbers of the same range: even ones by odd ones."""
    before = ids(0, values, size, 0)
    odd = [str(2 * int(x) + 1) for x in ids(0, values, size, 1)]
    before = [str(2 * int(x)) for x in before]
    assert drifted(before, odd, number=number)
    same = [str(2 * int(x)) for x in ids(0, values, size, 2)]
    assert not drifted(before, same, number=number)


def test_identifiers_that_are_always_new_are_no_drift():
    before, now = ([f"{side}{n}" for n in range(500)] for side in "ab")
    assert not drifted(before, now, number=False)


def test_half_of_the_rare_values_gone_is_drift():
    assert drifted(ids(0, 4000, 10_000, 0), ids(0, 2000, 10_000, 1), number=False)


def test_requests_that_are_sent_again_are_no_drift():
    """Each of a customer's requests within the hour has the same measured value."""
    before, now = (cells(np.repeat(numbers_of(400, seed), 3)) for seed in (0, 1))
    assert not drifted(before, now, number=True)
    before, now = ([f"{side}{n // 3}" for n in range(1200)] for side in "ab")
    assert not drifted(before, now, number=False)
