"""Rules of thumb: their figures and their sources."""

import re

import pytest

from trainyard.foresight.rules import count, on_learning_rate, on_tokens


def test_tokens_a_parameter_beside_what_is_optimal():
    said = on_tokens(70e9, 1.4e12)
    assert said.startswith("20 tokens a parameter") and "arXiv 2203.15556" in said


def test_the_rate_goes_with_the_square_root_of_the_batch():
    same, more = (next(iter(on_learning_rate(8192, tokens))) for tokens in (4e6, 16e6))
    rate = r"would have ([\d.e-]+) "
    found = [float(re.search(rate, said)[1]) for said in (same, more)]
    assert found[1] == pytest.approx(2 * found[0], rel=0.05)
    assert "arXiv 2205.10287" in same and "llama-2-70b" in same


@pytest.mark.parametrize(
    ("number", "text"), [(1.4e12, "1.4 T"), (7e10, "70 B"), (4.19e6, "4.19 M"), (12, "12")]
)
def test_counts(number: float, text: str):
    assert count(number) == text
