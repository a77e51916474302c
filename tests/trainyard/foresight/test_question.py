"""Amounts as people write them."""

import pytest

from trainyard.common.errors import RecipeError
from trainyard.foresight.question import parse_hours, parse_number


def test_amounts():
    numbers = {"300B": 3e11, "1.4T": 1.4e12, "2e12": 2e12, "5": 5, "1,000k": 1e6}
    for text, value in numbers.items():
        assert parse_number("--tokens", text) == pytest.approx(value), text
    for text, value in {"30d": 720, "36h": 36, "2w": 336, "12": 12}.items():
        assert parse_hours("--deadline", text) == value, text


@pytest.mark.parametrize("text", ["", "many", "3 parsecs", "0", "-3d", "nan"])
def test_what_is_no_amount_is_named_with_its_option(text: str):
    with pytest.raises(RecipeError, match=r"--deadline .*expected a time such as 36h"):
        parse_hours("--deadline", text)
