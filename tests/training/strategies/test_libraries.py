"""Horovod, SMDDP, SMP: two real ranks over fakes of their documented API give the curve of one.

The libraries themselves run on AWS's images only; nothing here says how fast they are.
"""

import re
import shutil
from pathlib import Path

import pytest
from safetensors.numpy import load_file

from errors import TrainingError
from tests.fakes import launch
from tests.training.trainings import losses
from training.config import TrainConfig
from training.strategies import started
from training.strategies.ranks import check_machines, read_meeting

TWO = {"micro_batch": 2, "max_steps": 6, "checkpoint_interval": 3, "validation_interval": 3}
GIVEN = {"max_steps": 10, "global_batch": 8, "micro_batch": 4, "learning_rate": 0.01}


@pytest.fixture
def alone(train, root, tmp_path):
    """(strategy-independent settings, folder of two ranks, curve, weights) of one rank."""

    def run(**settings):
        both = tmp_path / "both"
        shutil.copytree(root, both)
        train(root, **TWO | settings)
        return both, losses(root), weights(root)

    return run


def weights(root: Path) -> dict:
    return load_file(root / "model/model.safetensors")


def close(root: Path, curve: dict, final: dict) -> None:
    assert losses(root) == pytest.approx(curve, rel=1e-5)
    assert weights(root).keys() == final.keys()
    for name, tensor in weights(root).items():
        assert tensor == pytest.approx(final[name], rel=1e-3, abs=1e-5), name


def keep_only(root: Path, step: int) -> None:
    """As if the job had been lost soon after it saved ``step``."""
    for folder in root.glob("checkpoints/*/step-*"):
        if int(folder.name[5:]) != step:
            shutil.rmtree(folder)
    assert list(root.glob(f"checkpoints/*/step-{step:08d}/complete.json"))


@pytest.mark.slow
@pytest.mark.parametrize("optimizer", ["adamw", "lamb"])
def test_horovod_under_a_real_mpirun_gives_the_curve_of_one(alone, optimizer):
    both, curve, final = alone(optimizer=optimizer)
    done = launch.mpirun(both, strategy="horovod", optimizer=optimizer, **TWO)
    assert done.returncode == 0, done.stdout
    close(both, curve, final)


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["smddp", "smp"])
def test_a_strategy_of_sagemakers_gives_the_curve_of_one_and_resumes(alone, strategy, train):
    both, curve, final = alone()
    launch.torchrun(both, strategy=strategy, **TWO)
    close(both, curve, final)
    # The first three steps of two ranks, the last three of one: checkpoints are every strategy's.
    keep_only(both, 3)
    train(both, **TWO)
    close(both, {step: curve[step] for step in (4, 5, 6)}, final)
    keep_only(both, 3)
    assert "resumed from the checkpoint of step 3" in launch.torchrun(
        both, strategy=strategy, **TWO
    )
    close(both, {step: curve[step] for step in (4, 5, 6)}, final)


@pytest.mark.parametrize(
    ("strategy", "expected"),
    [
        ("horovod", "horovod is not in the image, .* images.training, .* set strategy to ddp"),
        ("smddp", "smdistributed.dataparallel is not in the image; .* images.pytorch_version"),
        ("smp", "torch.sagemaker is not in this image; .* set strategy to fsdp"),
    ],
)
def test_a_library_that_is_not_there_is_named_with_the_image_that_has_it(strategy, expected):
    config = TrainConfig(strategy=strategy, **GIVEN)
    with pytest.raises(TrainingError, match=re.compile(expected, re.S)), started(config, None):
        pass


def test_where_the_ranks_meet_is_what_the_launcher_or_awss_driver_says():
    driver = {"SM_MASTER_ADDR": "algo-1", "SM_MASTER_PORT": "7777"}
    assert read_meeting("MASTER_ADDR", driver) == "algo-1"
    assert read_meeting("MASTER_PORT", driver) == "7777"
    assert read_meeting("MASTER_ADDR", driver | {"MASTER_ADDR": "10.0.0.1"}) == "10.0.0.1"
    with pytest.raises(TrainingError, match="MASTER_PORT is not set: .*mpirun: -x MASTER_ADDR"):
        read_meeting("MASTER_PORT", {})


def test_a_machine_without_ranks_is_noticed():
    mpi = {"OMPI_COMM_WORLD_LOCAL_SIZE": "8", "SM_HOST_COUNT": "2"}
    check_machines(16, mpi)
    check_machines(8, {"SM_HOST_COUNT": "2"})  # torchrun: its own matter
    with pytest.raises(TrainingError, match="started 8 ranks, 8 of them .* has 2 machines"):
        check_machines(8, mpi)
