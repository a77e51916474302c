"""Places where the host would wait for a GPU are found without one; our steps have none."""

import json

import pytest
import torch

from benchmarks.host_reads import MORE, STEPS, HostReads, ReadError, counted, watch
from benchmarks.strategies.cases import CASES, container, write_data
from tests.training.workloads.image import pictures
from tests.training.workloads.image.test_workload import sharded
from tests.training.workloads.tabular import tables
from training.tools.contract_tests.contract import Trial, losses

pytestmark = pytest.mark.long

READERS = {
    "item": lambda x: x.sum().item(),
    "float": lambda x: float(x[0]),
    "bool": lambda x: bool((x > 1).any()),
    "a branch": lambda x: 1 if x.mean() > 0 else 2,
    "a printed number": lambda x: f"{x.max():.3f}",
    "tolist": lambda x: x.tolist(),
    "a mask as an index": lambda x: x[x > 1],
    "values at a mask": lambda x: x.clone().__setitem__(x > 1, x[:2]),
    "nonzero": lambda x: x.nonzero(),
    "unique": lambda x: x.unique(),
    "cpu": lambda x: (x * 2).cpu(),
    "numpy": lambda x: (x * 2).numpy(),
    "equal": lambda x: torch.equal(x, x + 1),
    "clipping that complains": lambda x: torch.nn.utils.clip_grad_norm_(
        [parameter_of(x)], 1.0, error_if_nonfinite=True
    ),
    "in the backward pass": lambda x: read_in_backward(x),  # noqa: PLW0108 - defined below
}
OTHERS = {
    "sums": lambda x: (x * 2).sum().sqrt(),
    "a condition": lambda x: torch.where(x > 1, x, 0),
    "one value at a mask": lambda x: x.clone().__setitem__(x > 1, 0.0),
    "rows by number": lambda x: x[torch.tensor([0, 1])],
    "clipping": lambda x: torch.nn.utils.clip_grad_norm_([parameter_of(x)], 1.0),
    "the host's own": lambda x: torch.arange(3).sum().item(),
}


def parameter_of(x: torch.Tensor) -> torch.nn.Parameter:
    parameter = torch.nn.Parameter(x * 1)
    parameter.grad = x * 2
    return parameter


def read_in_backward(x: torch.Tensor) -> None:
    y = (x * 1).requires_grad_()
    y.register_hook(lambda gradient: gradient * gradient.norm().item())
    (y * x).sum().backward()


@pytest.mark.parametrize("name", READERS)
def test_a_read_is_found_where_it_is_made(name):
    x = torch.arange(4.0)
    with HostReads() as reads:
        reads.put([x])
        READERS[name](x)
    assert reads.found and all(__file__ in read.where for read in reads.found), reads.found
    with HostReads(forbidden=True) as reads, pytest.raises(ReadError, match="wait for the device"):
        reads.put([x])
        READERS[name](x)


@pytest.mark.parametrize("name", OTHERS)
def test_what_the_device_does_by_itself_is_none(name):
    x = torch.arange(4.0)
    with HostReads(forbidden=True) as reads:
        reads.put([x])
        OTHERS[name](x)


@pytest.mark.sweep
@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        *("LAMB, averages", "DDP × 2", "AdamW, averages, FSDP2 × 2", "tensor × 2", "pipeline × 2"),
        "float16, FSDP2 × 2",
    ],
)
def test_between_logged_steps_the_host_reads_nothing(name, tmp_path):
    write_data(tmp_path / "data")
    world, differs = (CASES | MORE)[name]
    root = container(tmp_path / "data", tmp_path / "root")
    assert counted(root, world, differs) == [[[], []]] * world


def test_the_tabular_and_the_image_workload_read_nothing(tmp_path):
    """Covers the workload's part of a step: units, inputs, model, loss, backward pass."""
    tables.dataset(tmp_path / "train", tables.SETTINGS, {"a": tables.table(300, 1)})
    images = sharded(tmp_path / "images", pictures.folder(12))
    for trial in (
        Trial("tabular", tables.SETTINGS, tmp_path),
        Trial("image", pictures.CONFIG, images),
    ):
        model, batch = trial.model(), trial.batch()
        with HostReads(forbidden=True) as reads:
            reads.put([*model.parameters(), *model.buffers(), *batch.values()])
            trial.shared_workload.units(batch)
            losses(trial.shared_workload, model, batch)[1].backward()


def test_a_workload_that_reads_is_found_in_a_training(root, train, tmp_path, monkeypatch):
    """The toy's loss searches for the sample that spoils a training."""
    from training.loop import Loop

    monkeypatch.setattr(Loop, "_train_step", Loop._train_step)  # as it is again afterwards
    watch(tmp_path / "reads.json")
    train(root, **(STEPS | {"micro_batch": 4}))
    told = json.loads((tmp_path / "reads.json").read_text())
    assert [len(step) for step in told] == [2, 2]  # once a micro-batch
    assert all("toys/ragged/workload.py" in where for step in told for _, where in step)
