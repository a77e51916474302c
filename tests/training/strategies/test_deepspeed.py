"""ZeRO 1, 2 and 3 in two real ranks: the curve of one, and checkpoints that one goes on from."""

import pytest

from tests.training import worlds
from tests.training.strategies.test_libraries import GIVEN, goes_on_and_hands_on
from training.config import TrainConfig
from training.strategies import started
from trainyard.common.errors import TrainingError


def settings_of(**fields) -> dict:
    from training.strategies.deepspeed import settings

    return settings(TrainConfig(strategy="deepspeed", **GIVEN | fields), world=2)


def test_the_configuration_that_deepspeed_is_given():
    assert settings_of(precision="float32", zero_stage=2, micro_batch=2, grad_clip=0.5) == {
        "train_batch_size": 8,
        "train_micro_batch_size_per_gpu": 2,
        "gradient_accumulation_steps": 2,
        "gradient_clipping": 0.5,
        "zero_optimization": {"stage": 2},
    }
    # Autocast over float32 weights, not bfloat16 weights; gradients are sent as float32.
    autocast = settings_of(precision="bfloat16")["torch_autocast"]
    assert autocast == {"enabled": True, "dtype": "bfloat16", "lower_precision_safe_modules": []}


def test_without_a_launcher_it_says_so():
    config = TrainConfig(strategy="deepspeed", precision="float32", **GIVEN)
    with pytest.raises(TrainingError, match="start the job with torchrun or mpirun"):
        with started(config, None):
            pass


@pytest.mark.slow
@pytest.mark.parametrize(("stage", "begin"), [(1, 0), (2, 2), (3, 2)])
def test_zero_gives_the_curve_of_one(root, train, stage, begin):
    def launch_two(both, **settings):
        worlds.train(both, 2, strategy="deepspeed", zero_stage=stage, **settings)
        return (both / "rank-0.log").read_text()

    printed = goes_on_and_hands_on(root, train, launch_two, begin)
    assert f'"zero_optimization": {{"stage": {stage}}}' in printed
