"""A strategy changes speed and memory, never the curve; and any goes on from any other.

In float64, where rounding is 1e-16 and everything larger is an error.
"""

import json
import shutil
from pathlib import Path

import pytest

from steps.train import job
from tests.training import worlds
from tests.training.strategies.cases import (
    CASES,
    GOLDEN,
    MODEL,
    SETTINGS,
    container,
    distance,
    write_data,
)
from tests.training.trainings import arguments, losses

pytestmark = pytest.mark.long

STEPS = 4
EXACT = 1e-12  # relative
SHORT = SETTINGS | {"precision": "float64", "max_steps": STEPS}
SHORT |= {"checkpoint_interval": 2, "validation_interval": 2}
LAMB = SHORT | {
    **{"optimizer": "lamb", "learning_rate": 0.01, "ema_decay": 0.5},
    # Its halves are 23 rows or columns, of which no two ranks have as many.
    "workload_config": json.dumps(MODEL | {"hidden_dim": 46}),
}


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    write_data(folder)
    return folder


@pytest.fixture(scope="module")
def lamb_alone(data, tmp_path_factory) -> Path:
    return run_here(container(data, tmp_path_factory.mktemp("lamb")), **LAMB | {"micro_batch": 16})


def run_here(root: Path, **settings) -> Path:
    job.main(arguments(root, SHORT | {"strategy": "single"} | settings))
    return root


def off(root: Path, reference: Path) -> float:
    """Return the largest relative difference over the steps that ``root`` has, in both losses."""
    every = [losses(reference, name) for name in ("loss", "validation_loss")]
    mine = [losses(root, name) for name in ("loss", "validation_loss")]
    return max(
        distance(curve, {step: whole[step] for step in curve})
        for curve, whole in zip(mine, every, strict=True)
    )


@pytest.mark.sweep
def test_the_curve_is_the_golden_one(data, tmp_path):
    """Recorded by ``python -m benchmarks.strategies --precision float64 --golden``.

    The initial weights are drawn in float32, and torch's ``normal_`` has a kernel for each
    instruction set, whose logarithms and cosines end differently: 3.5e-9 in the losses between
    ``ATEN_CPU_CAPABILITY`` default and AVX2. From equal weights on, float64 differs by 1e-16.
    """
    golden = json.loads(GOLDEN.read_text())
    root = container(data, tmp_path)
    job.main(arguments(root, SETTINGS | {"precision": "float64", "strategy": "single"}))
    for name, key in (("loss", "losses"), ("validation_loss", "validation_losses")):
        expected = {int(step): value for step, value in golden[key].items()}
        assert distance(losses(root, name), expected) < 1e-7


SEVERAL = {
    2: ["tensor × 2", "pipeline × 2"],
    4: ["DDP × 4", "hybrid 2 × 2"],
    8: ["FSDP2 × 2, tensor × 2, pipeline × 2"],
}
"""World size → strategies that its ranks train with."""


@pytest.mark.slow
@pytest.mark.parametrize(
    "world", [pytest.param(n, marks=[pytest.mark.sweep] * (n > 2)) for n in SEVERAL]
)
def test_every_strategy_goes_on_from_one_process_with_its_curve(lamb_alone, tmp_path, world):
    """With LAMB, whose norms are of whole tensors."""
    roots = {name: half_done(lamb_alone, tmp_path / name) for name in SEVERAL[world]}
    worlds.train_each({root: LAMB | CASES[name][1] for name, root in roots.items()}, world)
    for name, root in roots.items():
        assert CASES[name][0] == world
        assert "resumed from the checkpoint of step 2" in (root / "rank-0.log").read_text()
        assert off(root, lamb_alone) < EXACT and len(losses(root)) == STEPS, name
        files = [folder / "model/model.safetensors" for folder in (lamb_alone, root)]
        sizes = [file.stat().st_size for file in files]
        assert sizes[0] == sizes[1], name  # the artifact holds all stages and shards


def half_done(whole: Path, root: Path) -> Path:
    """Copy what a training had left behind after its second step."""
    shutil.copytree(whole, root)
    shutil.rmtree(root / "model")
    for newest in root.glob(f"checkpoints/*/step-{STEPS:08d}"):
        shutil.rmtree(newest)
    return root


@pytest.mark.sweep
@pytest.mark.slow
def test_a_training_goes_on_under_another_strategy_and_world_size(data, tmp_path):
    third = "pipeline × 2, interleaved_1f1b"
    names = ["DDP × 2", "hybrid 2 × 2", third, "pipeline × 2"]
    steps = {"max_steps": 2 * len(names), "validation_interval": 4}
    alone = run_here(container(data, tmp_path / "alone"), micro_batch=16, **steps)
    root = container(data, tmp_path / "root")
    for resumes_at, name in zip((0, 2, 4, 6), names, strict=True):
        for checkpoint in root.glob("checkpoints/*/step-*"):
            if int(checkpoint.name[5:]) != resumes_at:
                shutil.rmtree(checkpoint)
        world, differs = CASES[name]
        worlds.train(root, world, **(SHORT | steps | differs))
        printed = (root / "rank-0.log").read_text().splitlines()
        went_on = [int(line.split()[-1]) for line in printed if "resumed from the chec" in line]
        assert went_on == [2, 4, 6][: resumes_at // 2], name
        assert list(losses(root)) == list(range(1, 9)), name
        assert off(root, alone) < EXACT, name


OTHER = {
    **{"context_length": 32, "layers": 2, "heads": 4, "kv_heads": 2, "dim": 32, "head_dim": 12},
    **{"tie_embeddings": False, "attention_bias": "all", "vocabulary": 267, "qk_norm": True},
    "attend": "document",
}
"""Features that the default model lacks: shared keys, separate embeddings for the logits, biases,
norms of heads, a vocabulary shared unevenly, attention limited to documents."""

SPLIT = ["tensor × 2", "pipeline × 2"]
"""Strategies under which a rank may lack the embedding or the output layer."""


@pytest.mark.sweep
@pytest.mark.slow
def test_shared_keys_and_untied_embeddings_are_split_like_any_other(tmp_path):
    data = tmp_path / "data"
    write_data(data, packed=True)
    trained = {False: [*SPLIT, "tensor × 2, whole stream", "FSDP2 × 2", "context × 2"], True: SPLIT}
    references, cases = {}, {}
    for tied, names in trained.items():
        folder = tmp_path / f"tied {tied}"
        settings = {"workload_config": json.dumps(OTHER | {"tie_embeddings": tied})}
        alone = run_here(container(data, folder / "alone"), micro_batch=16, **settings)
        for name in names:
            root = container(data, folder / name)
            references[root], cases[root] = alone, SHORT | CASES[name][1] | settings
    worlds.train_and_resume(cases, 2, STEPS)
    for root, alone in references.items():
        assert off(root, alone) < EXACT, root
        first, again = ((root / n / "model.safetensors").read_bytes() for n in ("first", "model"))
        assert first == again, root
