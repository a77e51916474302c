"""All operators of conditions, against Python's own."""

import operator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.trainyard.language.test_expressions import World
from trainyard.language.evaluation import check_condition, is_condition_met
from trainyard.language.expressions import ExpressionError

PYTHON = {
    "Equals": operator.eq,
    "GreaterThan": operator.gt,
    "GreaterThanOrEqualTo": operator.ge,
    "LessThan": operator.lt,
    "LessThanOrEqualTo": operator.le,
}
numbers = st.integers(-3, 3) | st.sampled_from([-1.5, 0.0, 0.5, 2.0])
words = st.text("ab", max_size=2)
comparisons = st.builds(
    lambda kind, pair: {"Type": kind, "LeftValue": pair[0], "RightValue": pair[1]},
    st.sampled_from(sorted(PYTHON)),
    st.tuples(numbers, numbers) | st.tuples(words, words),
)
memberships = st.builds(
    lambda value, values: {"Type": "In", "QueryValue": value, "Values": values},
    numbers,
    st.lists(numbers, max_size=3),
)
conditions = st.recursive(
    comparisons | memberships,
    lambda inner: (
        st.builds(lambda c: {"Type": "Not", "Condition": c}, inner)
        | st.builds(lambda cs: {"Type": "Or", "Conditions": cs}, st.lists(inner, max_size=3))
    ),
    max_leaves=8,
)


def model(condition: dict) -> bool:
    kind = condition["Type"]
    if kind == "Not":
        return not model(condition["Condition"])
    if kind == "Or":
        return any(map(model, condition["Conditions"]))
    if kind == "In":
        return condition["QueryValue"] in condition["Values"]
    return PYTHON[kind](condition["LeftValue"], condition["RightValue"])


@given(conditions)
def test_conditions_hold_as_in_python(condition: dict) -> None:
    check_condition(condition)
    assert is_condition_met(condition, World()) == model(condition)


def test_both_sides_may_be_expressions() -> None:
    world = World({"max": 0.5}, files={"s3://b/m": b'{"loss": 0.4}'})
    left = {"Std:JsonGet": {"S3Uri": "s3://b/m", "Path": "loss"}}
    condition = {"Type": "LessThan", "LeftValue": left, "RightValue": {"Get": "Parameters.max"}}
    assert is_condition_met(condition, world)


@pytest.mark.parametrize(
    ("kind", "left", "right", "message"),
    [
        ("Equals", "1", 1, r"'1' \(String\) with 1 \(Number\)"),
        ("Equals", True, 1, "must have one type"),
        ("LessThan", "0.4", 0.5, "must have one type"),
        ("LessThan", True, False, "no order"),
        ("Equals", None, None, "not a string, number or boolean"),
        ("Equals", {"a": 1}, {"a": 1}, "not a string, number or boolean"),
    ],
)
def test_types_that_do_not_compare(kind: str, left: Any, right: Any, message: str) -> None:
    with pytest.raises(ExpressionError, match=message):
        is_condition_met({"Type": kind, "LeftValue": left, "RightValue": right}, World())


@pytest.mark.parametrize(
    "condition",
    [
        {"Type": "Equal", "LeftValue": 1, "RightValue": 1},
        {"Type": "Equals", "LeftValue": 1},
        {"Type": "Not"},
        {"Type": {"Get": "Parameters.x"}},
        {"Type": "Or", "Conditions": [{"Type": "Maybe"}]},
        "Equals",
    ],
)
def test_malformed_conditions_are_refused(condition: Any) -> None:
    with pytest.raises(ExpressionError):
        check_condition(condition)
