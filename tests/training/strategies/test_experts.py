"""A mixture of experts has the curve of one process, however its ranks share the experts.

In float64, as in ``test_equivalence``; the bias moves far in each step, so that a load that is not
the global batch's would send tokens elsewhere.
"""

import json
import shutil
from types import SimpleNamespace

import pytest
import torch

from benchmarks.strategies.cases import SETTINGS, container, write_data
from benchmarks.strategies.runs import distance
from steps.train import job
from tests.training import worlds
from tests.training.trainings import arguments, losses
from training.strategies.experts import share_experts
from trainyard.common.errors import TrainingError

EXACT = 1e-13  # relative
MODEL = {"context_length": 32, "layers": 2, "heads": 4, "dim": 32, "experts": 4, "hidden_dim": 24}
SHORT = SETTINGS | {
    "workload_config": json.dumps(MODEL | {"balance_rate": 0.02}),
    "precision": "float64",
    "max_steps": 4,
    "checkpoint_interval": 2,
    "validation_interval": 2,
}
SHARED = {
    2: {
        "DDP × 2, expert × 2": {"expert_parallel": 2},
        "context × 2": {"context_parallel": 2},
        "pipeline × 2": {"pipeline_parallel": 2},
    },
    4: {
        "DDP × 4, expert × 2": {"expert_parallel": 2, "activation_checkpointing": "full"},
        "FSDP2 × 4, expert × 2": {"strategy": "fsdp", "expert_parallel": 2, "micro_batch": 2},
    },
}
"""World size → what its ranks train under."""


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """(data, a single process's training)."""
    data, root = (tmp_path_factory.mktemp(name) for name in ("data", "alone"))
    write_data(data)
    container(data, root)
    job.main(arguments(root, SHORT | {"strategy": "single", "micro_batch": 16}))
    return data, root


def off(root, reference) -> float:
    """The largest relative difference of the losses in training and validation."""
    return max(
        distance(losses(root, name), losses(reference, name))
        for name in ("loss", "validation_loss")
    )


@pytest.mark.slow
@pytest.mark.parametrize("world", SHARED)
def test_ranks_that_share_experts_have_the_curve_of_one_process(alone, tmp_path, world):
    data, reference = alone
    roots = {name: container(data, tmp_path / name) for name in SHARED[world]}
    worlds.train_each({root: SHORT | SHARED[world][name] for name, root in roots.items()}, world)
    for name, root in roots.items():
        assert len(losses(root)) == 4 and off(root, reference) < EXACT, name
        whole, mine = (len((r / "model/model.safetensors").read_bytes()) for r in (reference, root))
        assert whole == mine, name  # the artifact holds all experts
        if "expert" in name:  # and so does a checkpoint, which one process goes on from
            for folder in root.glob("checkpoints/*/step-00000004"):
                shutil.rmtree(folder)
            shutil.rmtree(root / "model")
            job.main(arguments(root, SHORT | {"strategy": "single"}))
            assert off(root, reference) < EXACT, name


def test_a_workload_that_does_not_say_how_is_refused_by_name():
    mesh = {"expert": SimpleNamespace(size=lambda: 2)}
    with pytest.raises(TrainingError, match="expert_parallel 2: the workload has no expert_paral"):
        share_experts(SimpleNamespace(), torch.nn.Identity(), mesh)
