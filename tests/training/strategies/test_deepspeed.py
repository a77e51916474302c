"""ZeRO 1, 2 and 3 on two real ranks: one process's curve, and checkpoints that it can resume."""

import os

import pytest

from tests.training import worlds
from tests.training.strategies.test_fsdp_sharding import write_numbers
from tests.training.strategies.test_libraries import GIVEN, SETTINGS, begun, went_on
from tests.training.trainings import TOYS
from training.config import TrainConfig
from training.strategies import start_strategy
from trainyard.common.errors import TrainingError

pytestmark = pytest.mark.long


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
    message = "start the job with torchrun or mpirun"
    with pytest.raises(TrainingError, match=message), start_strategy(config, None):
        pass


@pytest.mark.slow
def test_a_weight_without_dimensions_is_refused_by_name(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(TOYS))
    write_numbers(tmp_path / "input/data", 24)
    settings = {"strategy": "deepspeed", "workload": "toys.scaled", "micro_batch": 2}
    assert worlds.finish(worlds.start(tmp_path, 2, **settings)) == [1, 1]
    said = (tmp_path / "output/failure").read_text()
    assert said.startswith("strategy deepspeed: the weight temperature has no dimensions, and")


STAGES = [{3: 2}, pytest.param({1: 0, 2: 2}, marks=pytest.mark.sweep)]
"""ZeRO stage → step from whose checkpoint the ranks resume; 0: they start anew."""


def import_deepspeed() -> None:
    """Import it once per rank, since it takes seconds."""
    os.environ["DS_ACCELERATOR"] = "cpu"
    import deepspeed  # noqa: F401


@pytest.mark.slow
@pytest.mark.parametrize("stages", STAGES, ids=str)
def test_zero_gives_the_curve_of_one(root, train, stages):
    train(root, **SETTINGS)
    roots = {stage: begun(root, f"stage {stage}", begin) for stage, begin in stages.items()}
    cases = {
        both: SETTINGS | {"strategy": "deepspeed", "zero_stage": stage}
        for stage, both in roots.items()
    }
    worlds.train_each(cases, 2, before=import_deepspeed, run=worlds.run_apart)
    for stage, both in roots.items():
        printed = (both / "rank-0.log").read_text()
        went_on(root, train, both, printed, stages[stage])
        assert f'"zero_optimization": {{"stage": {stage}}}' in printed
