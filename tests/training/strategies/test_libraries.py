"""SMDDP, SMP, and mpirun: two real ranks over fakes of their documented API give the curve of one.

The libraries themselves run on AWS's images only; nothing here says how fast they are.
"""

import re
import shutil
from pathlib import Path

import pytest
from safetensors.numpy import load_file

from tests.fakes import launch
from tests.training.trainings import config, losses
from training.strategies import start_strategy
from training.strategies.ranks import check_machines, read_meeting_address
from trainyard.common.errors import TrainingError

pytestmark = pytest.mark.long

SETTINGS = {"micro_batch": 2, "max_steps": 8, "checkpoint_interval": 2, "validation_interval": 8}


def copy_container(root: Path, name: str, begin: int) -> Path:
    """Return a container that resumes ``root``'s checkpoint of step ``begin`` (0: none)."""
    both = root.with_name(name)
    shutil.copytree(root / "input", both / "input")
    if begin:
        shutil.copytree(root / "checkpoints", both / "checkpoints")
        keep_only(both, begin)
    return both


def went_on(root: Path, train, both: Path, printed: str, begin: int) -> None:
    """Check that two ranks went on from step ``begin`` as one did; then one resumes theirs."""
    assert (f"resumed from the checkpoint of step {begin}" in printed) == (begin > 0), printed
    close(both, root, begin + 1)
    keep_only(both, 6)
    train(both, **SETTINGS)
    close(both, root, 7)


def weights(root: Path) -> dict:
    return load_file(root / "model/model.safetensors")


def close(root: Path, expected: Path, first: int) -> None:
    """Check that the curve from step ``first`` on, and the final weights, are the same."""
    for name in ("loss", "grad_norm", "validation_loss"):
        curve, given = (
            {step: value for step, value in losses(folder, name).items() if step >= first}
            for folder in (expected, root)
        )
        assert given == pytest.approx(curve, rel=1e-5), name
    final = weights(expected)
    assert weights(root).keys() == final.keys()
    for name, tensor in weights(root).items():
        assert tensor == pytest.approx(final[name], rel=1e-3, abs=1e-5), name


def keep_only(root: Path, step: int) -> None:
    """Remove all checkpoints but that of ``step``, as if the job had been lost soon after it."""
    for folder in root.glob("checkpoints/*/step-*"):
        if int(folder.name[5:]) != step:
            shutil.rmtree(folder)
    assert list(root.glob(f"checkpoints/*/step-{step:08d}/complete.json"))


@pytest.mark.sweep
@pytest.mark.slow
def test_ddp_under_a_real_mpirun_gives_the_curve_of_one(root, train):
    train(root, **SETTINGS)
    both = copy_container(root, "both", 0)
    went_on(root, train, both, launch.mpirun(both, strategy="ddp", **SETTINGS), 0)


@pytest.mark.slow
def test_strategies_of_sagemakers_give_the_curve_of_one(root, train):
    train(root, **SETTINGS)
    for strategy in ("smddp", "smp"):
        both = copy_container(root, strategy, 2)
        went_on(root, train, both, launch.torchrun(both, strategy=strategy, **SETTINGS), 2)


@pytest.mark.parametrize(
    ("strategy", "expected"),
    [
        ("smddp", "smdistributed.dataparallel is not in the image; .* images.training"),
        ("smp", "torch.sagemaker is not in this image; .* set strategy to fsdp"),
    ],
)
def test_a_library_that_is_not_there_is_named_with_the_image_that_has_it(strategy, expected):
    refused = pytest.raises(TrainingError, match=re.compile(expected, re.S))
    with refused, start_strategy(config(strategy=strategy), None):
        pass


def test_where_the_ranks_meet_is_what_the_launcher_or_awss_driver_says():
    driver = {"SM_MASTER_ADDR": "algo-1", "SM_MASTER_PORT": "7777"}
    assert read_meeting_address("MASTER_ADDR", driver) == "algo-1"
    assert read_meeting_address("MASTER_PORT", driver) == "7777"
    assert read_meeting_address("MASTER_ADDR", driver | {"MASTER_ADDR": "10.0.0.1"}) == "10.0.0.1"
    with pytest.raises(TrainingError, match="MASTER_PORT is not set: .*mpirun: -x MASTER_ADDR"):
        read_meeting_address("MASTER_PORT", {})


def test_a_machine_without_ranks_is_noticed():
    mpi = {"OMPI_COMM_WORLD_LOCAL_SIZE": "8", "SM_HOST_COUNT": "2"}
    check_machines(16, mpi)
    check_machines(8, {"SM_HOST_COUNT": "2"})  # torchrun: its own matter
    with pytest.raises(TrainingError, match="started 8 ranks, 8 of them .* has 2 machines"):
        check_machines(8, mpi)
