"""What was written with a setting that has left is read where the setting changed nothing."""

import pytest
from pydantic import ValidationError

from training.config import TrainConfig
from training.workloads.language_model.config import LanguageModelConfig

LOOP = {"max_steps": 1, "global_batch": 1, "micro_batch": 1, "learning_rate": 0.1}


@pytest.mark.parametrize("written", [0.95, "0.95"], ids=["record", "hyperparameter"])
def test_a_neutral_value_is_read_and_another_one_is_refused_by_its_name(written):
    assert TrainConfig(**LOOP, momentum=written) == TrainConfig(**LOOP)
    with pytest.raises(ValidationError, match="momentum\n"):
        TrainConfig(**LOOP, momentum=0.9)


def test_a_dense_model_of_before_is_read_and_a_mixture_of_experts_is_refused():
    dense = {"experts": 0, "active_experts": 2, "balance_rate": 0.001}
    assert LanguageModelConfig(**dense) == LanguageModelConfig()
    with pytest.raises(ValidationError, match="experts\n"):
        LanguageModelConfig(**dense | {"experts": 4})
