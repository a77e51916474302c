"""Ranges: scales, bounds, and the inverse of the scales."""

import math
import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainyard.emulator.sagemaker.tuning.search_strategies import (
    Numeric,
    grid,
    is_in_space,
    sample,
    size,
    space_of,
)


def numeric(low: float, high: float, scaling: str, whole: bool = False) -> Numeric:
    return Numeric("x", low, high, scaling, whole)


@given(
    st.sampled_from(["Linear", "Logarithmic", "ReverseLogarithmic"]),
    st.floats(0.001, 0.4),
    st.floats(0.5, 0.999),
    st.floats(0, 1),
)
def test_a_value_is_in_its_range_and_leads_back(
    scaling: str, low: float, high: float, unit: float
) -> None:
    found = numeric(low, high, scaling)
    value = found.scale_unit(unit)
    assert low <= float(value) <= high
    back = found.unit(value)
    assert back is not None and math.isclose(back, unit, abs_tol=1e-9)


@pytest.mark.parametrize(
    "scaling, middle", [("Linear", 0.5005), ("Logarithmic", 0.0316), ("ReverseLogarithmic", 0.968)]
)
def test_each_scale_has_its_own_middle(scaling: str, middle: float) -> None:
    ends = (0.001, 1.0) if scaling != "ReverseLogarithmic" else (0.0, 0.999)
    value = float(numeric(*ends, scaling).scale_unit(0.5))
    assert math.isclose(value, middle, rel_tol=0.01)


@pytest.mark.parametrize("low, scaling", [(1, "Linear"), (1, "Logarithmic")])
def test_every_integer_is_drawn_the_ends_too(low: int, scaling: str) -> None:
    found = numeric(low, 4, scaling, whole=True)
    drawn = Counter(found.scale_unit(n / 999) for n in range(1000))
    assert set(drawn) == {"1", "2", "3", "4"}
    if scaling == "Linear":
        assert max(drawn.values()) - min(drawn.values()) <= 2


def test_auto_is_logarithmic_where_a_range_spans_orders_of_magnitude() -> None:
    ranges = [
        {"Name": "lr", "MinValue": "0.0001", "MaxValue": "0.1"},
        {"Name": "p", "MinValue": "0.1", "MaxValue": "0.9", "ScalingType": "Auto"},
        {"Name": "z", "MinValue": "0", "MaxValue": "5000"},
    ]
    found = space_of({"ContinuousParameterRanges": ranges})
    assert [item.scaling for item in found] == ["Logarithmic", "Linear", "Linear"]


def test_a_grid_has_each_combination_once() -> None:
    space = space_of(
        {
            "CategoricalParameterRanges": [
                {"Name": "a", "Values": ["x", "y", "z"]},
                {"Name": "b", "Values": ["1", "2"]},
            ]
        }
    )
    found = [tuple(values.values()) for values in grid(space)]
    assert len(found) == len(set(found)) == size(space) == 6


def test_what_is_drawn_is_within_and_what_is_not_is_not() -> None:
    space = space_of(
        {
            "IntegerParameterRanges": [{"Name": "n", "MinValue": "1", "MaxValue": "9"}],
            "CategoricalParameterRanges": [{"Name": "c", "Values": ["a", "b"]}],
        }
    )
    assert is_in_space(space, sample(space, random.Random(0)))
    assert not is_in_space(space, {"n": "10", "c": "a"})
    assert not is_in_space(space, {"n": "3", "c": "other"})
    assert not is_in_space(space, {"n": "3"})
