"""Published models: their shapes and their sources."""

import pytest

from trainyard.common.errors import RecipeError
from trainyard.foresight.model_shapes import MODELS, get_model
from trainyard.foresight.setting import Setting

PARAMETERS = {"gpt-3-175b": 175e9, "llama-3-70b": 70.6e9, "llama-3-405b": 405e9}


@pytest.mark.parametrize("name", MODELS)
def test_each_is_a_setting_and_has_a_source(name: str):
    model = get_model(name)
    assert Setting(gpu="H100-80", **model.shape).layers
    assert "arXiv" in model.source


@pytest.mark.parametrize("name", PARAMETERS)
def test_the_shape_has_the_parameters_of_the_name(name: str):
    it = Setting(gpu="H100-80", **get_model(name).shape)
    attention = 2 * it.hidden**2 * (1 + it.kv_heads / it.heads)
    block = attention + (2 + it.gated) * it.hidden * it.ffn
    total = it.layers * block + 2 * it.vocab * it.hidden
    assert total == pytest.approx(PARAMETERS[name], rel=0.01)


def test_a_wrong_name_is_answered_with_the_nearest():
    with pytest.raises(RecipeError, match=r"lama-3-8b.*nearest valid name: llama-3-8b.*--shapes"):
        get_model("lama-3-8b")
