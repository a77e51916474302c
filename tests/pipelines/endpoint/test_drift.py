"""Drift: samples that differ by more than chance and a trifle, and what is compared of sources."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.endpoint.answer_quality import NO_VARIANT, RecordedRequest, Source
from pipelines.endpoint.drift import MISSING, VALUES, Change, compare_columns, compute_psi
from pipelines.endpoint.period import Period, compare_sources
from pipelines.recipe.config import Recipe
from pipelines.recipe.read_recipe import load_recipe
from tests.conftest import CHECKOUT
from trainyard.common.errors import RecipeError
from trainyard.quality.model_quality import Cells

LIMITS = {"error": 0.05, "least_psi": 0.1}


def cells(values: np.ndarray) -> Cells:
    return [str(value) for value in values]


def find_changes(before: Cells, now: Cells, *, number: bool = True) -> dict[str, Change]:
    found = compare_columns({"x": before}, {"x": now}, {"x"} if number else (), **LIMITS)
    return {change.respect: change for change in found}


def test_a_shifted_number_has_about_the_divergence_of_its_distributions():
    random = np.random.default_rng(0)
    found = find_changes(cells(random.normal(size=5000)), cells(random.normal(0.5, 1, 5000)))[
        VALUES
    ]
    assert found.psi == pytest.approx(0.25, abs=0.05), "Jeffreys' divergence"
    index = compute_psi(np.array([1e9, 1e9]), np.array([1e9, 3e9]))
    assert index == pytest.approx(0.25 * np.log(1.5) - 0.25 * np.log(0.5), rel=1e-6)
    assert found.has_drifted and found.p_value < 1e-50 and found.movement.startswith("median ")


def test_a_movement_is_told_in_words():
    found = find_changes(["0"] * 80 + ["1"] * 20, ["0"] * 51 + ["5"] * 49)[VALUES]
    assert found.has_drifted and found.movement == "from 5 on: 0.0% → 49.0%"
    for moved in ("-1.0", "1.0"):
        assert find_changes(["0"] * 50, [moved] * 50)[VALUES].has_drifted
    found = find_changes(["1", "2"] * 50, ["1", None] * 50)
    assert found[MISSING].has_drifted and found[MISSING].movement == "missing 0.0% → 50.0%"
    assert [*find_changes(["1", "2"] * 50, [None] * 100)] == [MISSING]
    assert find_changes(["1", "2"] * 50, ["many"] * 100)[MISSING].has_drifted, (
        "text where numbers were"
    )
    found = find_changes(["a", "b"] * 100, ["a", "c"] * 100, number=False)[VALUES]
    assert found.has_drifted and found.movement in ("b 50.0% → 0.0%", "c 0.0% → 50.0%")


def test_trifles_are_no_drift_and_fewer_digits_are_the_same_numbers():
    random = np.random.default_rng(0)
    found = find_changes(cells(random.normal(size=9000)), cells(random.normal(0.1, 1, 9000)))[
        VALUES
    ]
    assert found.p_value < 1e-6 and found.psi < 0.1 and not found.has_drifted
    knots = np.random.default_rng(0).integers(5, 12, (2, 500)) * 1.15078
    found = find_changes(cells(knots[0]), [f"{value:.10g}" for value in knots[1]])[VALUES]
    assert not found.has_drifted and found.p_value > 0.05


def test_what_never_repeats_is_not_told_apart():
    found = find_changes([f"a{n}" for n in range(99)], [f"b{n}" for n in range(99)], number=False)[
        VALUES
    ]
    assert not found.has_drifted and found.movement == "no frequent value"


def test_one_drift_is_found_among_many_features_and_named_alone():
    random = np.random.default_rng(1)
    before, now = ({f"x{n}": random.normal(size=600) for n in range(40)} for _ in range(2))
    now["x7"] = now["x7"] + 0.7
    sides = ({name: cells(values) for name, values in side.items()} for side in (before, now))
    found = compare_columns(*sides, before.keys(), **LIMITS)
    assert [change.feature for change in found if change.has_drifted] == ["x7"]


def test_the_error_is_that_of_all_features_together():
    """In 30 weeks at an error of 5 %, 1.5 false alarms are expected; without Holm's correction over
    the 10 features, 12.
    """
    random = np.random.default_rng(2)
    alarms = 0
    for _ in range(30):
        sides = ({f"x{n}": cells(random.normal(size=60)) for n in range(10)} for _ in range(2))
        found = compare_columns(*sides, {f"x{n}" for n in range(10)}, error=0.05, least_psi=0)
        alarms += any(change.has_drifted for change in found)
    assert alarms <= 6, "more have a chance of 0.1 %"


TEXTS = st.lists(st.none() | st.sampled_from(["", "nan", "inf", "1", "2.5", "-7", "a", "é"]))


@given(before=TEXTS, now=TEXTS, number=st.booleans())
def test_any_cells_have_a_finite_answer(before: Cells, now: Cells, number: bool):
    if not before or not now:
        return
    found = find_changes(before, now, number=number)
    assert all(0 <= c.p_value <= 1 and 0 <= c.psi < np.inf for c in found.values()) and found
    same = find_changes(before, before, number=number)
    assert not any(change.has_drifted for change in same.values())


def numbers_of(size: int, seed: int) -> np.ndarray:
    return np.exp(np.random.default_rng(seed).normal(size=size))


def ids(low: int, high: int, size: int, seed: int) -> Cells:
    return cells(np.random.default_rng(seed).integers(low, high, size))


def list_value_movements(before: Cells, now: Cells, *, number: bool) -> list[str]:
    found = find_changes(before, now, number=number).values()
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
    found = list_value_movements(cells(numbers_of(size, 0)), cells(now), number=True)
    assert any(" → " in what for what in found)


def test_a_sentinel_that_the_baseline_has_now_and_then_is_drift_once_it_is_frequent():
    before, now = numbers_of(800, 0), numbers_of(800, 1)
    before[:2], now[:50] = -999, -999
    assert list_value_movements(cells(before), cells(now), number=True)
    assert list_value_movements(ids(0, 4000, 10_000, 0), ids(0, 2000, 10_000, 1), number=False), (
        "half are gone"
    )


@pytest.mark.parametrize("number", [False, True])
@pytest.mark.parametrize(("values", "size"), [(4000, 10_000), (4000, 3000), (100, 1000)])
def test_identifiers_replaced_by_others_are_drift(values: int, size: int, number: bool):
    """Also where they are numbers of the same range: even ones by odd ones."""
    before = ids(0, values, size, 0)
    odd = [str(2 * int(x) + 1) for x in ids(0, values, size, 1)]
    before = [str(2 * int(x)) for x in before]
    assert list_value_movements(before, odd, number=number)
    same = [str(2 * int(x)) for x in ids(0, values, size, 2)]
    assert not list_value_movements(before, same, number=number)


def test_requests_that_are_sent_again_are_no_drift():
    """Each of a customer's requests within the hour has the same measured value."""
    before, now = (cells(np.repeat(numbers_of(400, seed), 3)) for seed in (0, 1))
    assert not list_value_movements(before, now, number=True)
    before, now = ([f"{side}{n // 3}" for n in range(1200)] for side in "ab")
    assert not list_value_movements(before, now, number=False)


SETS = ["deploy.endpoint=live", "deploy.capture_share=1", "monitor.days=7"]
ANSWER = {"outputs": {"price": 0.5}, "label": "a", "sure": True}


def source(record: Mapping[str, Any], answer: Any = None, variant: str = NO_VARIANT) -> Source:
    found = Source()
    for number in range(100):
        filled = {name: f"{value}{number % 7}" for name, value in record.items()}
        found.add(RecordedRequest(filled, answer, variant))
    return found


def compare_recipe_sources(asked: Source, baseline: Source, *sets: str) -> Period:
    recipe: Recipe = load_recipe(CHECKOUT / "examples/trainer.yaml", [*SETS, *sets])
    assert recipe.monitor is not None
    return compare_sources(recipe, recipe.monitor, asked, baseline)


def test_labels_of_raw_records_are_no_features_and_columns_that_requests_had_before_are():
    asked = source({"a": "x"}, variant="version-1")
    raw = source({"a": "x", "order_id": "7", "label": "l"})
    found = compare_recipe_sources(asked, raw)
    assert [*found.before.columns] == ["a"] and found.list_drifted_features(
        "values", "missing"
    ) == []
    assert "order_id, label: not compared, because no request has them" in "; ".join(found.notes)
    named = compare_recipe_sources(asked, raw, "monitor.features=[label]")
    assert named.list_drifted_features("missing") == ["label"]
    both = {"a": "x", "b": "y"}
    for earlier in (source(both, variant="version-1"), source(both, answer=ANSWER)):
        assert compare_recipe_sources(asked, earlier).list_drifted_features("missing") == ["b"]


@pytest.mark.parametrize(
    ("path", "near"),
    [
        ("outptus.price", "nearest valid name: outputs.price"),
        ("label", "valid names: outputs.price"),
        ("sure", "valid names: outputs.price"),
    ],
)
def test_a_prediction_that_no_answer_has_is_refused(path: str, near: str):
    asked = source({"a": "x"}, ANSWER, "version-1")
    with pytest.raises(RecipeError, match=f"prediction: none of 100 .* number '{path}'; {near}"):
        compare_recipe_sources(asked, asked, f"monitor.prediction={path}")
    found = compare_recipe_sources(asked, asked, "monitor.prediction=outputs.price")
    assert "answer.outputs.price" in found.before.columns
    scores = source({"a": "x"}, {"price": 1}, "version-1")
    with pytest.raises(RecipeError, match=r"prediction of the baseline: none of 100"):
        compare_recipe_sources(asked, scores, "monitor.prediction=outputs.price")
