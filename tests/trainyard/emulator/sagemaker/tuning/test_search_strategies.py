"""Ranges and their scales; strategies: their suggestions, and reproducibility by a seed."""

import math
import random
import sys
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainyard.emulator.sagemaker.tuning import search_strategies
from trainyard.emulator.sagemaker.tuning.search_strategies import (
    STRATEGIES,
    Numeric,
    Question,
    Trial,
    build_space,
    count_combinations,
    explain_missing_strategy,
    is_in_space,
    iter_grid,
    sample_values,
)

RANGE = {"MinValue": "-5", "MaxValue": "5"}
SPACE = build_space({"ContinuousParameterRanges": [{"Name": name, **RANGE} for name in "xy"]})
SMALL = build_space({"CategoricalParameterRanges": [{"Name": "c", "Values": list("abcdef")}]})


@given(
    st.sampled_from(["Linear", "Logarithmic", "ReverseLogarithmic"]),
    st.floats(0.001, 0.4),
    st.floats(0.5, 0.999),
    st.floats(0, 1),
)
def test_a_value_is_in_its_range_and_leads_back(scaling: str, low: float, high: float, unit: float):
    found = Numeric("x", low, high, scaling, False)
    value = found.from_unit(unit)
    assert low <= float(value) <= high
    back = found.to_unit(value)
    assert back is not None and math.isclose(back, unit, abs_tol=1e-9)


@pytest.mark.parametrize(
    ("scaling", "low", "high", "middle"),
    [
        ("Linear", 0.001, 1.0, 0.5005),
        ("Logarithmic", 0.001, 1.0, 0.0316),
        ("ReverseLogarithmic", 0.0, 0.999, 0.968),
    ],
)
def test_each_scale_has_its_own_middle(scaling, low, high, middle) -> None:
    value = float(Numeric("x", low, high, scaling, False).from_unit(0.5))
    assert math.isclose(value, middle, rel_tol=0.01)


@pytest.mark.parametrize("scaling", ["Linear", "Logarithmic"])
def test_every_integer_is_drawn_the_ends_too(scaling: str) -> None:
    found = Numeric("x", 1, 4, scaling, True)
    drawn = Counter(found.from_unit(n / 999) for n in range(1000))
    assert set(drawn) == {"1", "2", "3", "4"}
    assert scaling != "Linear" or max(drawn.values()) - min(drawn.values()) <= 2


def test_auto_is_logarithmic_where_a_range_spans_orders_of_magnitude() -> None:
    ranges = [
        {"Name": "lr", "MinValue": "0.0001", "MaxValue": "0.1"},
        {"Name": "p", "MinValue": "0.1", "MaxValue": "0.9", "ScalingType": "Auto"},
        {"Name": "z", "MinValue": "0", "MaxValue": "5000"},
    ]
    found = build_space({"ContinuousParameterRanges": ranges})
    assert [item.scaling for item in found] == ["Logarithmic", "Linear", "Linear"]


def test_a_grid_has_each_combination_once() -> None:
    choices = {"a": ["x", "y", "z"], "b": ["1", "2"]}
    ranges = [{"Name": name, "Values": values} for name, values in choices.items()]
    space = build_space({"CategoricalParameterRanges": ranges})
    found = [tuple(values.values()) for values in iter_grid(space)]
    assert len(found) == len(set(found)) == count_combinations(space) == 6


def test_what_is_drawn_is_within_and_what_is_not_is_not() -> None:
    integers = [{"Name": "n", "MinValue": "1", "MaxValue": "9"}]
    space = SMALL + build_space({"IntegerParameterRanges": integers})
    assert is_in_space(space, sample_values(space, random.Random(0)))
    for outside in ({"n": "10", "c": "a"}, {"n": "3", "c": "other"}, {"n": "3"}):
        assert not is_in_space(space, outside)


def bowl(values: dict[str, str]) -> float:
    return (float(values["x"]) - 2) ** 2 + (float(values["y"]) + 1) ** 2


def search_for(strategy: str, jobs: int, sign: int = 1) -> list[float]:
    trials: list[Trial] = []
    for number in range(jobs):
        question = Question(SPACE, list(trials), minimize=sign > 0, seed="s", number=number)
        values = STRATEGIES[strategy](question)
        trials.append(Trial(values, sign * bowl(values)))
    return [sign * trial.objective for trial in trials if trial.objective is not None]


@pytest.mark.parametrize("sign", [1, -1])
def test_a_bayesian_search_finds_a_bowls_ground_sooner_than_chance(sign: int) -> None:
    searched, drawn = search_for("Bayesian", 40, sign), search_for("Random", 40)
    assert min(searched) < min(drawn)
    assert sum(searched[20:]) < 0.5 * sum(drawn[20:])


@pytest.mark.parametrize("strategy", ["Bayesian", "Random", "Hyperband", "Grid"])
def test_the_same_question_has_the_same_answer(strategy: str) -> None:
    trials = [Trial({"c": "a"}, 1.0), Trial({"c": "b"})]
    question = Question(SMALL, trials, minimize=True, seed="7", number=2)
    assert STRATEGIES[strategy](question) == STRATEGIES[strategy](question)


def test_another_seed_is_another_search() -> None:
    question = Question(SPACE, [], minimize=True, seed="1", number=0)
    assert STRATEGIES["Random"](question) != STRATEGIES["Random"](replace(question, seed="2"))


def test_bayesian_tries_nothing_twice_while_something_is_left() -> None:
    trials: list[Trial] = []
    for number in range(6):
        question = Question(SMALL, list(trials), minimize=True, seed="s", number=number)
        values = STRATEGIES["Bayesian"](question)
        trials.append(Trial(values, float(ord(values["c"])), has_failed=number == 1))
    assert {trial.values["c"] for trial in trials} == set("abcdef")


def test_what_does_not_fit_the_ranges_is_left_out() -> None:
    odd = [Trial({"c": "z"}, 0.0), Trial({"other": "a"}, 0.0)]
    question = Question(SMALL, odd, minimize=True, seed="s", number=0)
    assert STRATEGIES["Bayesian"](question)["c"] in "abcdef"


def test_without_optuna_bayesian_alone_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    monkeypatch.setattr(search_strategies, "find_spec", lambda name: None)
    assert "pip install optuna" in (explain_missing_strategy("Bayesian") or "")
    assert not any(
        explain_missing_strategy(strategy) for strategy in ("Random", "Grid", "Hyperband")
    )
    question = Question(SMALL, [], minimize=True, seed="s", number=0)
    assert all(STRATEGIES[strategy](question) for strategy in ("Random", "Grid", "Hyperband"))
