"""Rules of thumb: their figures and their sources."""

import re

import pytest

from trainyard.common.errors import RecipeError
from trainyard.foresight.rules_of_thumb import MODELS, count, on_learning_rate, on_tokens, published
from trainyard.foresight.setting import Setting

PARAMETERS = {"gpt-3-175b": 175e9, "llama-3-70b": 70.6e9, "llama-3-405b": 405e9}


@pytest.mark.parametrize("name", MODELS)
def test_each_is_a_setting_and_has_a_source(name: str):
    model = published(name)
    assert Setting(gpu="H100-80", **model.shape).layers
    assert "arXiv" in model.source


@pytest.mark.parametrize("name", PARAMETERS)
def test_the_shape_has_the_parameters_of_the_name(name: str):
    it = Setting(gpu="H100-80", **published(name).shape)
    attention = 2 * it.hidden**2 * (1 + it.kv_heads / it.heads)
    block = attention + (2 + it.gated) * it.hidden * it.ffn
    total = it.layers * block + 2 * it.vocab * it.hidden
    assert total == pytest.approx(PARAMETERS[name], rel=0.01)


def test_a_wrong_name_is_answered_with_the_nearest():
    with pytest.raises(RecipeError, match=r"lama-3-8b.*nearest valid name: llama-3-8b.*--shapes"):
        published("lama-3-8b")


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
