"""The loop: the same curve for every number of ranks, exact resume, and a clean end when it fails.

The samples of the toy workload hold one unit or eight, so a mean of means is not the mean.
"""

import os
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from tests.training import worlds
from tests.training.trainings import (
    SETTINGS,
    compute_metrics,
    history,
    losses,
    write_dataset,
    write_ragged,
)
from training.config import TrainConfig
from training.data.dataset import Dataset
from training.data.manifest import Field
from training.data.sample_order import create_uniform_order
from training.export.artifact import load_artifact
from training.loop import Loop, create_order
from training.watching.clock import PARTS
from training.weights.initial.build_model import build_on_meta, materialize_model

pytestmark = pytest.mark.long


def weights(root: Path) -> dict[str, torch.Tensor]:
    return load_file(root / "model/model.safetensors")


def same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return all(torch.equal(one[name], other[name]) for name in one | other)


def copy_inputs(root: Path, name: str) -> Path:
    """Create a separate container over the same data."""
    shutil.copytree(root / "input", root.parent / name / "input")
    return root.parent / name


def read_rank_logs(root: Path, world: int) -> list[str]:
    return [(root / f"rank-{rank}.log").read_text() for rank in range(world)]


def test_the_loss_is_the_mean_over_all_units_of_the_global_batch_however_it_is_cut(
    root, train, alone
):
    """Computed here from the first batch of the order and a model with the same seed."""
    accumulated, whole = losses(train(root, micro_batch=2, seed=3)), losses(alone)
    from toys.ragged.workload import Model

    model = materialize_model(build_on_meta(lambda: Model(0.0), 3))
    data = Dataset(root / "input/data/train")
    samples = data.read(create_uniform_order(data.fingerprint, 3, 100).indices_at(range(8)))
    batch = torch.from_numpy(samples["numbers"]).long()
    log_p = torch.log_softmax(model(batch[:, 0]), -1)
    costs = [-log_p[i, j, batch[i, 1 + j]].item() for i in range(8) for j in range(batch[i, 0])]
    assert whole[1] == pytest.approx(sum(costs) / len(costs), rel=1e-6)
    assert accumulated == pytest.approx(whole, rel=1e-5) and whole[10] < whole[1]


@pytest.mark.slow
def test_two_ranks_give_the_curve_of_one_and_one_goes_on_from_two(root, train, alone):
    two = root
    outputs = read_rank_logs(worlds.train(two, 2, micro_batch=2, seed=3), 2)
    assert losses(two) == pytest.approx(losses(alone), rel=1e-5)
    validation = "validation_loss"
    assert losses(two, validation) == pytest.approx(losses(alone, validation), rel=1e-5)
    assert "step=1 loss=" in outputs[0] and "step=" not in outputs[1]
    lines = [line for line in history(two) if "loss" in line][1:]  # all ranks there are by then
    assert all(one["units_per_second_per_rank"] == one["units_per_second"] / 2 for one in lines)
    parts = sum(line[f"{part}_seconds"] for line in lines for part in PARTS)
    assert 0.1 < parts / sum(line["step_seconds"] for line in lines) < 1.3
    assert all(line["communication_seconds"] > 0 for line in lines)

    [newest] = two.glob("checkpoints/*/step-00000010")
    shutil.rmtree(newest)
    shutil.rmtree(two / "model")
    resumed = train(two, micro_batch=2, seed=3)
    assert losses(resumed) == pytest.approx(losses(alone), rel=1e-5)
    assert [line["step"] for line in history(resumed)] == [*range(1, 6), 5, *range(6, 11), 10]
    _, _, description = load_artifact(resumed / "model")
    stretches = [(s["since"], s["world_size"]) for s in description["training"]["stretches"]]
    assert stretches == [(0, 2), (5, 1)]


@pytest.mark.parametrize(
    "settings", [{"precision": "bfloat16"}, {"shuffle": "windowed", "window_samples": 20}]
)
def test_a_resumed_run_is_bitwise_the_undisturbed_one(root, train, settings, caplog):
    caplog.set_level("INFO", logger="training")
    settings |= {"workload_config": '{"dropout": 0.5}', "micro_batch": 4}
    undisturbed, trained = losses(train(root, **settings)), weights(root)
    [newest] = root.glob("checkpoints/*/step-00000010")
    next(newest.glob("*.safetensors")).write_bytes(b"torn")
    shutil.rmtree(root / "model")
    torch.manual_seed(99)  # the process's own random state must not matter
    caplog.clear()
    train(root, **settings)
    assert "resumed from the checkpoint of step 5" in caplog.text
    assert losses(root) == undisturbed and same(weights(root), trained)


def test_a_finished_run_has_no_steps_left(root, train, alone):
    before, lines = weights(alone), history(alone)
    shutil.copytree(alone, root, dirs_exist_ok=True)
    (root / "model/model.safetensors").unlink()
    assert same(weights(train(root, seed=3)), before) and history(root) == lines


def test_other_data_or_settings_start_afresh(root, train, alone):
    shutil.copytree(alone, root, dirs_exist_ok=True)
    train(root, seed=3, learning_rate=0.02)
    assert 1 in losses(root)
    write_ragged(root / "input/data/train", 100, seed=7)
    train(root, seed=3)
    assert 1 in losses(root)


def test_learning_rate_and_throughput_are_reported(alone):
    lines = [line for line in history(alone) if "loss" in line]
    assert lines[1]["learning_rate"] == pytest.approx(0.01)
    assert lines[-1]["learning_rate"] == pytest.approx(0.001)
    assert all(line["units_per_second"] > line["samples_per_second"] > 0 for line in lines)
    assert all(0 <= line["data_stall"] < 1 for line in lines)


def test_the_share_of_time_that_is_spent_waiting_for_data_is_reported(root, train, monkeypatch):
    # The first read is of one sample, to see the model with; the second is the first step's.
    read, waits = Dataset.read, iter([0, 2])
    monkeypatch.setattr(
        Dataset, "read", lambda self, i: time.sleep(next(waits, 0)) or read(self, i)
    )
    lines = [line for line in history(train(root)) if "loss" in line]
    assert 0.5 < lines[0]["data_stall"] < 1  # nothing is there when the first step asks
    assert min(line["data_stall"] for line in lines) < 0.1  # four steps' samples come at once


def test_a_windowed_order_is_another_one_and_that_of_one_window_too(root):
    data, given = Dataset(root / "input/data/train"), SETTINGS | {"strategy": "single"}
    chosen = [{}, {"shuffle": "windowed", "window_samples": 20}, {"shuffle": "windowed"}]
    found = [
        create_order(TrainConfig(**given | one), data).indices_at(range(100)).tolist()
        for one in chosen
    ]
    assert all(sorted(one) == [*range(100)] for one in found)
    assert len({*map(tuple, found)}) == 3


def test_missing_shards_end_the_job_before_its_first_step(root, train, capsys):
    victim = next((root / "input/data/validation").glob("*.npy"))
    victim.unlink()
    with pytest.raises(SystemExit):
        train(root)
    reason = (root / "output/failure").read_text()
    assert f"{victim}: the manifest names it, but it is missing" in reason
    assert "step=1 " not in capsys.readouterr().out


def test_the_validation_loss_is_that_of_the_model_without_its_dropout(root, train):
    reported = losses(train(root, workload_config='{"dropout": 0.5}'), "validation_loss")[10]
    workload, model, _ = load_artifact(root / "model")
    found = compute_metrics(workload, model, Dataset(root / "input/data/validation"))
    assert reported == pytest.approx(found["loss"]["value"], rel=1e-5)


def test_a_validation_of_nothing_that_counts_is_named(root, train, capsys):
    folder = root / "input/data/validation"
    shutil.rmtree(folder)
    padding = {"numbers": np.zeros((4, 9), np.uint16)}
    fields = {"numbers": Field(dtype="uint16", shape=(9,))}
    write_dataset(folder, padding, fields, workload={"kind": "ragged"})
    with pytest.raises(SystemExit):
        train(root)
    assert (
        f"error: {folder}: the samples that are validated hold no unit" in capsys.readouterr().out
    )


def test_the_gradient_is_clipped(root, train, alone):
    """Adam ignores the gradient's length, but not its ratio between steps."""
    free, clipped = losses(alone), losses(train(root, seed=3, grad_clip=1e-3))
    assert free[1] == clipped[1] and free[10] != pytest.approx(clipped[10], rel=1e-6)


def test_single_refuses_a_job_of_several_ranks(root, train, monkeypatch, capsys):
    for name, value in {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "2"}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(SystemExit):
        train(root)
    assert "strategy single cannot use 2 ranks" in (root / "output/failure").read_text()


@pytest.mark.slow
def test_a_loss_that_is_not_finite_names_step_and_rank_and_saves_nothing(root):
    step = poison(root, lambda place: place >= 16 and place % 8 >= 4) // 8 + 1
    codes = worlds.finish(worlds.start(root, 2, micro_batch=4, checkpoint_interval=1))
    outputs = read_rank_logs(root, 2)
    assert codes == [1, 1], outputs
    message = (root / "output/failure").read_text()
    first = (step - 1) * 8 + 4  # the second half of the global batch is rank 1's
    where = f"on rank 1, in the samples at positions {first} to {first + 3} of the order"
    assert message.startswith(f"loss is nan at step {step} {where}")
    assert not (root / "model").exists() and "Traceback" not in "".join(outputs)
    saved = sorted(int(p.parent.name[5:]) for p in root.glob("checkpoints/*/step-*/complete.json"))
    assert saved == list(range(1, step))


def poison(root: Path, fits: Callable[[int], bool]) -> int:
    """Write a sample whose loss is NaN; return its place in the order, one that ``fits``."""
    for poison_at in range(100):
        shutil.rmtree(root / "input/data/train")
        write_ragged(root / "input/data/train", 100, poison_at=poison_at)
        data = Dataset(root / "input/data/train")
        order = create_uniform_order(data.fingerprint, 0, len(data)).indices_at(range(80))
        bad = (data.read(order)["numbers"][:, 1] == 31).nonzero()[0]
        if len(bad) and fits(int(bad[0])):
            return int(bad[0])
    raise AssertionError("no place for the poison")


def test_sigterm_saves_at_the_next_step_and_ends_with_the_reason(root, train, monkeypatch):
    step = Loop._train_step

    def asked_to_stop(self, *given) -> None:
        if self.step == 2:
            os.kill(os.getpid(), signal.SIGTERM)
        step(self, *given)

    monkeypatch.setattr(Loop, "_train_step", asked_to_stop)
    with pytest.raises(SystemExit):
        train(root)
    assert (root / "output/failure").read_text().startswith("stopped by SIGTERM after step 3;")
    [saved] = root.glob("checkpoints/*/step-*/complete.json")
    assert saved.parent.name == "step-00000003" and not (root / "model").exists()
