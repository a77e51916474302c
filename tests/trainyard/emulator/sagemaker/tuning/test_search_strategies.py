"""Strategies: their suggestions, and reproducibility by a seed."""

import sys
from dataclasses import replace

import pytest

from trainyard.emulator.sagemaker.tuning import search_strategies
from trainyard.emulator.sagemaker.tuning.search_strategies import (
    STRATEGIES,
    Question,
    Trial,
    space_of,
    unavailable_reason,
)

SPACE = space_of(
    {
        "ContinuousParameterRanges": [
            {"Name": "x", "MinValue": "-5", "MaxValue": "5"},
            {"Name": "y", "MinValue": "-5", "MaxValue": "5"},
        ]
    }
)
SMALL = space_of({"CategoricalParameterRanges": [{"Name": "c", "Values": list("abcdef")}]})


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
    assert "pip install optuna" in (unavailable_reason("Bayesian") or "")
    assert not any(unavailable_reason(strategy) for strategy in ("Random", "Grid", "Hyperband"))
    question = Question(SMALL, [], minimize=True, seed="s", number=0)
    assert all(STRATEGIES[strategy](question) for strategy in ("Random", "Grid", "Hyperband"))
