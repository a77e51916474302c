"""ZeRO 1, 2 and 3 go on from DDP's checkpoint as DDP does, and one process goes on from theirs."""

import shutil

import pytest

from errors import TrainingError
from tests.training import worlds
from tests.training.strategies.test_libraries import GIVEN, close, keep_only, weights
from tests.training.trainings import losses
from training.config import TrainConfig
from training.strategies import started

pytest.importorskip("deepspeed")
SETTINGS = {"micro_batch": 2, "max_steps": 8, "checkpoint_interval": 2, "validation_interval": 8}


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
    # Autocast over float32 weights, not DeepSpeed's bfloat16 weights; gradients are sent as float32.
    autocast = settings_of(precision="bfloat16")["torch_autocast"]
    assert autocast == {"enabled": True, "dtype": "bfloat16", "lower_precision_safe_modules": []}


def test_without_a_launcher_it_says_so():
    config = TrainConfig(strategy="deepspeed", precision="float32", **GIVEN)
    with pytest.raises(TrainingError, match="start the job with torchrun or mpirun"):
        with started(config, None):
            pass


@pytest.mark.slow
@pytest.mark.parametrize("stage", [1, 2, 3])
def test_zero_takes_up_ddps_training_and_hands_it_on(root, tmp_path, train, stage):
    """The curve is the same: seen from single's, which is DDP's to the last bits."""
    start = tmp_path / "start"
    shutil.copytree(root, start)
    train(root, **SETTINGS)
    curve, final = losses(root), weights(root)
    train(start, **SETTINGS)
    keep_only(start, 2)
    worlds.train(start, 2, strategy="deepspeed", zero_stage=stage, **SETTINGS)
    log = (start / "rank-0.log").read_text()
    assert "resumed from the checkpoint of step 2" in log
    assert f'"zero_optimization": {{"stage": {stage}}}' in log and "rror" not in log
    close(start, {step: curve[step] for step in range(3, 9)}, final)
    keep_only(start, 6)  # written by ZeRO
    train(start, **SETTINGS)
    close(start, {step: curve[step] for step in (7, 8)}, final)
