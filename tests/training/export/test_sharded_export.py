"""Weights written by many ranks: the same bytes as from one, and no rank holds all of them."""

import json
import logging
import multiprocessing
import os
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import nn
from torch.distributed import TCPStore

from tests.training import worlds
from tests.training.trainings import config
from training.export import artifact
from training.export.artifact import _assign_writers, _group_into_files, group_export_names
from training.export.weight_location import LocalWeights, count_parameters, gather_weights
from training.strategies import start_strategy
from training.workloads import load_workload
from training.workloads.language_model.workload import Workload
from trainyard.common.errors import TrainingError

pytestmark = pytest.mark.long

SETTINGS = {"context_length": 8, "layers": 2, "heads": 2, "dim": 16}
TOLD = {"workload": "language_model", "workload_config": SETTINGS, "steps": 3}
SHARD = 5000
LAYOUTS = {
    "ddp": {"strategy": "ddp"},
    "fsdp": {"strategy": "fsdp"},
    "tensor": {"tensor_parallel": 2},
    "pipeline": {"pipeline_parallel": 2},
}


def model_of(seed: int = 0) -> tuple[Workload, nn.Module]:
    torch.manual_seed(seed)
    workload = load_workload("language_model", SETTINGS)
    return workload, workload.model()


def write(folder: Path, shard_bytes: int = SHARD, workload: Workload | None = None) -> Path:
    known, model = model_of()
    artifact.save_artifact(
        folder, LocalWeights(model.state_dict()), workload or known, TOLD, [], None, shard_bytes
    )
    return folder


def content(folder: Path) -> dict[str, bytes]:
    names = [p for p in folder.glob("*") if p.name.startswith("model") or p.name == "config.json"]
    return {path.name: path.read_bytes() for path in names}


class AtOnce:
    def __init__(self, workload: Workload) -> None:
        self._workload = workload

    def export(self, weights):
        assert len(weights) > 10
        return self._workload.export(weights)

    def files(self):
        return {}


def test_a_larger_one_has_hugging_faces_index_and_the_same_weights(tmp_path):
    from transformers import AutoModelForCausalLM

    one, many = write(tmp_path / "one", artifact.SHARD_BYTES), write(tmp_path / "many")
    index = json.loads((many / "model.safetensors.index.json").read_text())
    files = sorted(set(index["weight_map"].values()))
    assert len(files) > 3 and files[0] == f"model-00001-of-{len(files):05d}.safetensors"
    assert not (many / "model.safetensors").exists()
    parts = {file: load_file(many / file) for file in files}
    whole = load_file(one / "model.safetensors")
    assert {n: file for file in files for n in parts[file]} == index["weight_map"]
    for name, file in index["weight_map"].items():
        assert torch.equal(parts[file][name], whole[name])
    assert index["metadata"]["total_size"] == sum(t.nbytes for t in whole.values())
    theirs = AutoModelForCausalLM.from_pretrained(many)
    theirs.save_pretrained(tmp_path / "theirs", max_shard_size=SHARD)
    other = json.loads((tmp_path / "theirs/model.safetensors.index.json").read_text())
    assert other["metadata"] == index["metadata"]
    assert other["weight_map"].keys() == index["weight_map"].keys()
    sizes = [sum(t.nbytes for t in part.values()) for part in parts.values() if len(part) > 1]
    assert max(sizes) <= SHARD
    tokens = torch.randint(0, 257, (2, 8))
    ours = artifact.load_artifact(many)[1](tokens)
    with torch.no_grad():
        theirs = [AutoModelForCausalLM.from_pretrained(f)(tokens).logits for f in (one, many)]
    assert torch.equal(*theirs) and torch.allclose(theirs[0], ours, atol=1e-5)
    assert torch.equal(artifact.load_artifact(one)[1](tokens), ours)


def test_a_workload_that_needs_all_weights_at_once_gives_the_same_files(tmp_path):
    at_once = write(tmp_path / "at-once", workload=AtOnce(model_of()[0]))
    same, other = load_all(at_once), load_all(write(tmp_path / "parts"))
    assert same.keys() == other.keys() and all(torch.equal(same[n], other[n]) for n in same)


class Stacked(Workload):
    """A workload with its own export, derived from one whose parts do not fit it."""

    def export(self, weights):
        return {"all": torch.cat([t.flatten() for t in weights.values()])}, {}


class Whole(Workload):
    export_parts = None


def test_the_parts_of_another_export_are_not_asked_for():
    names = ["one", "two", "three"]
    for kind, parts in ((Workload, 3), (Stacked, 1), (Whole, 1)):
        assert len(group_export_names(object.__new__(kind), names)) == parts


def load_all(folder: Path) -> dict[str, torch.Tensor]:
    files = folder.glob("model*.safetensors")
    return {name: tensor for file in files for name, tensor in load_file(file).items()}


def test_parts_that_do_not_make_up_the_whole_are_refused(tmp_path):
    workload = model_of()[0]
    workload.export_parts = lambda names: [[name] for name in names if "norm" not in name]
    with pytest.raises(TrainingError, match=r"gives .*norm.* as nothing, of all weights as"):
        write(tmp_path, workload=workload)


def test_files_are_spread_over_the_ranks_that_have_their_weights():
    looks = {str(n): torch.empty(10, device="meta") for n in range(8)}
    files = _group_into_files(looks, 80)
    assert ["".join(names) for names in files.values()] == ["01", "23", "45", "67"]
    stages = dict(zip(files, [(0, 1), (0, 1), (2, 3), (2, 3)], strict=True))
    assert [*_assign_writers(stages).values()] == [0, 1, 2, 3]
    assert [*_assign_writers(dict.fromkeys(files, range(2))).values()] == [0, 0, 1, 1]
    assert [*_assign_writers(dict.fromkeys(files, range(64))).values()] == [0, 16, 32, 48]


@pytest.mark.slow
def test_every_layout_writes_the_bytes_of_one_process(tmp_path):
    one = write(tmp_path / "one")
    expected = content(one)
    stores = [TCPStore("127.0.0.1", 0, None, True, wait_for_workers=False) for _ in range(6)]
    ports = [store.port for store in stores]
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(worlds.PRELOADED)
    processes = [context.Process(target=_rank, args=(tmp_path, ports, n)) for n in range(2)]
    for process in processes:
        process.start()
    assert worlds.finish(processes) == [0, 0]
    for layout in LAYOUTS:
        folders = [content(tmp_path / layout / str(rank)) for rank in range(2)]
        assert folders[0] | folders[1] == expected, layout
        assert not folders[0].keys() & folders[1].keys() and all(folders), layout
    at_once = [content(tmp_path / "at once" / str(rank)) for rank in range(2)]
    assert not at_once[1] and load_all(tmp_path / "at once/0").keys() == load_all(one).keys()
    said = [(tmp_path / f"said-{rank}").read_text() for rank in range(2)]
    assert "it needs all weights at once" in said[0] and not said[1]
    told = [(tmp_path / f"failed-{rank}").read_text() for rank in range(2)]
    assert told[0] == told[1] and told[0].startswith("rank 1 could not write the model: ")


def _rank(root: Path, ports: list[int], rank: int) -> None:
    os.environ |= worlds.variables(0, rank, 2) | {"TORCHELASTIC_USE_AGENT_STORE": "True"}
    torch.set_num_threads(1)
    for port, (name, layout) in zip(ports[:4], LAYOUTS.items(), strict=True):
        _save(root / name / str(rank), port, layout)
    handler = logging.FileHandler(root / f"said-{rank}")
    logging.getLogger("training.export.artifact").addHandler(handler)
    _save(root / "at once" / str(rank), ports[4], LAYOUTS["fsdp"], at_once=True)
    logging.getLogger("training.export.artifact").removeHandler(handler)
    if rank == 1:
        (root / "failing").mkdir()
        (root / "failing/1").write_text("a file where the folder should be")
    with pytest.raises(TrainingError) as caught:
        _save(root / "failing" / str(rank), ports[5], LAYOUTS["fsdp"])
    (root / f"failed-{rank}").write_text(str(caught.value))


def _save(folder: Path, port: int, layout: dict, *, at_once: bool = False) -> None:
    os.environ["MASTER_PORT"] = str(port)
    workload, model = model_of()
    numbers = sum(one.numel() for one in model.parameters())
    with start_strategy(config(micro_batch=2, **layout), workload) as strategy:
        strategy.prepare(model)
        given = AtOnce(workload) if at_once else workload
        artifact.save_artifact(folder, strategy, given, TOLD, [], None, SHARD)
        assert count_parameters(strategy) == numbers
        whole = gather_weights(strategy)
        assert bool(whole) == (strategy.ranks.rank == 0)
