"""Check that no workload or strategy mixes tensors of the host with the accelerator's.

Runs on the CPU with ``placement``, which reports the same errors as CUDA.
"""

import json

import pytest
import torch

from steps.train import job
from tests.training import placement, worlds
from tests.training.placement import ACCELERATOR, MixedDevices
from tests.training.strategies.cases import MODEL
from tests.training.strategies.cases import write_data as write_tokens
from tests.training.strategies.tuned_models import MODELS, SETTINGS
from tests.training.torches import lacks
from tests.training.trainings import TOYS, arguments, compute_metrics, write_ragged
from tests.training.workloads.tabular import tables
from training.data.dataset import Dataset
from training.export.artifact import load_artifact
from training.strategies.single import Strategy
from training.workloads.tabular.workload import Workload

pytestmark = pytest.mark.long

TABLE = tables.SETTINGS | {"dropout": 0.5, "embedding_dropout": 0.2}
SHORT = SETTINGS | {"strategy": "single", "max_steps": 2, "checkpoint_interval": 1}


RECOMPUTED = {} if lacks("2.13.0") else {"activation_checkpointing": "full"}
"""An older torch compares the devices of recomputed tensors, bypassing the simulation."""


@pytest.fixture
def simulated_placement(monkeypatch):
    monkeypatch.syspath_prepend(str(TOYS))
    for owner, name in ((Strategy, "__init__"), (torch, "from_numpy")):
        monkeypatch.setattr(owner, name, getattr(owner, name))
    mode = placement.simulate()
    yield mode
    mode.__exit__(None, None, None)


def write(root, workload: str) -> None:
    for split, count in (("train", 60), ("validation", 20)):
        folder = root / "input/data" / split
        if workload == "tabular":
            tables.dataset(folder, TABLE, {"a": tables.table(count)})
        elif workload != "language_model":
            write_ragged(folder, count)
    if workload == "language_model":
        write_tokens(root / "input/data")


WORKLOADS = {"tabular": TABLE, "language_model": MODEL, "toys.tuned": MODELS["all of it"]}


def train(root, workload: str, **settings) -> None:
    given = {"workload": workload, "workload_config": json.dumps(WORKLOADS[workload])}
    job.main(arguments(root, SHORT | given | settings))


@pytest.mark.parametrize("workload", WORKLOADS)
def test_a_workload_trains_and_is_scored_on_an_accelerator(simulated_placement, tmp_path, workload):
    write(tmp_path, workload)
    train(tmp_path, workload, precision="bfloat16")
    found, model, _ = load_artifact(tmp_path / "model")
    before = simulated_placement.placed
    compute_metrics(found, model.to(ACCELERATOR), Dataset(tmp_path / "input/data/validation"))
    assert simulated_placement.placed > before > 20


@pytest.mark.sweep
@pytest.mark.slow
def test_every_strategy_keeps_to_the_accelerator(tmp_path):
    cases = {}
    for name, differs in {
        "ddp": {"strategy": "ddp"},
        "fsdp": {"strategy": "fsdp"},
        "tensor": {"strategy": "ddp", "tensor_parallel": 2},
        "pipeline": {"strategy": "ddp", "pipeline_parallel": 2} | RECOMPUTED,
    }.items():
        root = tmp_path / name
        write(root, "toys.tuned")
        config = {"workload": "toys.tuned", "workload_config": json.dumps(MODELS["all of it"])}
        cases[root] = SHORT | config | differs
    worlds.train_and_resume(cases, 2, 2, placement.simulate)
    for root in cases:
        printed = (root / "rank-0.log").read_text()
        assert (root / "model/config.json").is_file(), printed[-3000:]
        assert "resumed from the checkpoint of step 1" in printed


FAULTS = [
    lambda batch: batch["label"].cpu(),  # labels on the host
    lambda batch: torch.ones(len(batch["label"])),  # weights made on the host
]


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_that_cuda_would_find_is_found(simulated_placement, tmp_path, monkeypatch, fault):
    loss = Workload.loss
    monkeypatch.setattr(
        Workload, "loss", lambda self, logits, batch: loss(self, logits * fault(batch), batch)
    )
    write(tmp_path, "tabular")
    with pytest.raises(MixedDevices, match=r"mul: .*cpu:0.* on cpu|mul: .* on cpu, .*cpu:0"):
        train(tmp_path, "tabular")


def test_units_that_are_counted_on_the_host_are_taken(simulated_placement, tmp_path, monkeypatch):
    monkeypatch.setattr(Workload, "units", lambda self, batch: torch.tensor(len(batch["label"])))
    write(tmp_path, "tabular")
    train(tmp_path, "tabular")
