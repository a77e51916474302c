"""The weights of a mixture: allowed values, and the whole numbers that they become."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from training.input_shares import PARTS, Mixture, list_identity_shares, parse_mixture
from training.input_shares import to_whole_number_shares as whole_numbers
from trainyard.common.errors import TrainingError


@pytest.mark.parametrize(
    ("weights", "whole"),
    [
        ([0.7, 0.2, 0.1], [7, 2, 1]),
        ([70, 20, 10], [7, 2, 1]),
        ([1 / 3, 1 / 3, 1 / 3], [1, 1, 1]),
        ([0.333, 0.667], [333, 667]),
        ([1e-300, 2e-300], [1, 2]),
        ([5.0], [1]),
        ([1.7e308, 1.7e308], [1, 1]),  # their sum exceeds a float
    ],
)
def test_weights_are_reduced_to_whole_numbers(weights, whole):
    named = {f"{n}": weight for n, weight in enumerate(weights)}
    assert list(whole_numbers(named).values()) == whole
    assert Mixture(weights=named).phases == [(0, whole_numbers(named))]


@given(st.lists(st.floats(1e-4, 1.0), min_size=1, max_size=9))
def test_other_weights_are_rounded_to_less_than_one_part(weights):
    found = whole_numbers({f"{n}": weight for n, weight in enumerate(weights)})
    total = sum(found.values())
    assert total <= PARTS and min(found.values()) >= 1
    for share, weight in zip(found.values(), weights, strict=True):
        assert abs(share / total - weight / math.fsum(weights)) < 1 / PARTS


def test_the_order_of_the_names_and_the_scale_make_no_other_training():
    one = Mixture(weights={"b": 0.2, "a": 0.8})
    other = Mixture.model_validate({"weights": {"a": 4, "b": 1}, "changes": []})
    shares = [list_identity_shares(mixture) for mixture in (one, other)]
    assert shares == [[{"step": 0, "shares": {"a": 4, "b": 1}}]] * 2
    assert [list(found[0]["shares"]) for found in shares] == [["a", "b"]] * 2


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"weights": {"a": 0}}, "greater than 0"),
        ({"weights": {"a": math.nan}}, "finite"),
        ({"weights": {"a": math.inf}}, "finite"),
        ({"weights": {}}, "at least 1"),
        ({"weights": {"a": 1, "b": 1e-6}}, "b has 1e-06, less than one sample in 65,536"),
        ({"weights": {"a": 1}, "changes": [{"step": 0, "weights": {"a": 1}}]}, "step"),
        ({"weights": {"a": 1}, "changes": [{"step": 5, "weights": {"a": 1, "b": 1e-6}}]},
         "weights after step 5: b has 1e-06"),
        ({"weights": {"a": 1}, "changes": [{"step": 5, "weights": {"a": 1}}] * 2},
         "do not ascend"),
    ],
)  # fmt: skip
def test_wrong_weights_are_refused(fields, said):
    with pytest.raises(ValidationError, match=said):
        Mixture.model_validate(fields)


def test_the_hyperparameter_is_read_and_a_wrong_one_is_named():
    assert parse_mixture("") is None
    assert parse_mixture('{"weights": {"a": 1, "b": 3}}').names == ["a", "b"]
    with pytest.raises(TrainingError, match=r"mixture.weights.a: .*greater than 0"):
        parse_mixture('{"weights": {"a": 0}}')
