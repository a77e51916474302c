"""Amounts as people write them."""

import pytest

from trainyard.common.errors import RecipeError
from trainyard.foresight.question import hours, number


@pytest.mark.parametrize(
    ("text", "value"), [("300B", 3e11), ("1.4T", 1.4e12), ("2e12", 2e12), ("5", 5), ("1,000k", 1e6)]
)
def test_numbers(text: str, value: float):
    assert number("--tokens", text) == pytest.approx(value)


@pytest.mark.parametrize(("text", "value"), [("30d", 720), ("36h", 36), ("2w", 336), ("12", 12)])
def test_times(text: str, value: float):
    assert hours("--deadline", text) == value


@pytest.mark.parametrize("text", ["", "many", "3 parsecs", "0", "-3d", "nan"])
def test_what_is_no_amount_is_named_with_its_option(text: str):
    with pytest.raises(RecipeError, match=r"--deadline .*expected a time such as 36h"):
        hours("--deadline", text)
