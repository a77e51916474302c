"""ZeRO 1, 2 and 3 on two real ranks: one process's curve, and checkpoints that it can resume."""

import multiprocessing
import os

import pytest

from tests.training import worlds
from tests.training.strategies.test_fsdp_sharding import write_numbers
from tests.training.strategies.test_libraries import SETTINGS, copy_container, went_on
from tests.training.trainings import config
from training.strategies import start_strategy
from trainyard.common.errors import TrainingError

pytestmark = pytest.mark.long


def settings_of(**fields) -> dict:
    from training.strategies.deepspeed import build_settings

    return build_settings(config(**{"strategy": "deepspeed", "micro_batch": 4} | fields), world=2)


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
    given = config(strategy="deepspeed", precision="float32")
    message = "start the job with torchrun or mpirun"
    with pytest.raises(TrainingError, match=message), start_strategy(given, None):
        pass


STAGES = [{3: 2}, pytest.param({1: 0, 2: 2}, marks=pytest.mark.sweep)]
"""ZeRO stage → step from whose checkpoint the ranks resume; 0: they start anew."""


def import_deepspeed() -> None:
    """Import it once per rank, since it takes seconds."""
    os.environ["DS_ACCELERATOR"] = "cpu"
    import deepspeed  # noqa: F401


def run_apart(*given) -> None:
    """Run a rank in a forked process, since the library keeps state of earlier trainings; what it
    leaves behind says how it ended.
    """
    process = multiprocessing.get_context("fork").Process(target=worlds.run_rank, args=given)
    process.start()
    process.join()


@pytest.mark.slow
@pytest.mark.parametrize("stages", STAGES, ids=str)
def test_zero_gives_the_curve_of_one_and_refuses_a_weight_without_dimensions(root, train, stages):
    train(root, **SETTINGS)
    roots = {
        stage: copy_container(root, f"stage {stage}", begin) for stage, begin in stages.items()
    }
    cases = {
        both: SETTINGS | {"strategy": "deepspeed", "zero_stage": stage}
        for stage, both in roots.items()
    }
    scaled = root.with_name("scaled")
    write_numbers(scaled / "input/data", 24)
    cases[scaled] = {"strategy": "deepspeed", "workload": "toys.scaled", "micro_batch": 2}
    worlds.train_each(cases, 2, before=import_deepspeed, run=run_apart)
    for stage, both in roots.items():
        printed = (both / "rank-0.log").read_text()
        went_on(root, train, both, printed, stages[stage])
        assert f'"zero_optimization": {{"stage": {stage}}}' in printed
    said = (scaled / "output/failure").read_text()
    assert said.startswith("strategy deepspeed: the weight temperature has no dimensions, and")
