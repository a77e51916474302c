"""The tables of scores are the same, byte for byte, whatever the number of processes."""

import logging
import pickle
import tarfile
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from torch import nn

from steps.evaluate import job as evaluate_job
from steps.evaluate import score_rows as rows_module
from steps.evaluate.score_rows import Scoring, Source, TrainedModel, compute_rows, run_in_order
from tests.training.test_language_model import pack
from tests.training.trainings import write_dataset
from training.data.dataset import Dataset
from training.export.artifact import save_artifact
from training.export.weight_location import LocalWeights
from training.workloads import load_workload

SETTINGS = {"context_length": 16, "layers": 1, "heads": 2, "dim": 32}
ARN = "arn:aws:sagemaker:us-east-1:123456789012:model-package/one/1"


def model(folder: Path, seed: int, train: Dataset) -> None:
    """A model.tar.gz."""
    workload = load_workload("language_model", SETTINGS)
    torch.manual_seed(seed)
    told = {
        "workload": "language_model", "workload_config": SETTINGS,
        "train_config": {"precision": "float32"}, "train_fingerprint": train.fingerprint,
        "steps": 0, "parameters": 0, "world_size": 1, "packages_sha256": None,
        "training": {"identity": None, "stretches": []},
    }  # fmt: skip
    save_artifact(folder / "files", LocalWeights(workload.model().state_dict()), workload, told, [])
    with tarfile.open(folder / "model.tar.gz", "w:gz") as tar:
        tar.add(folder / "files", ".")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """The job's folder: documents of up to 200 tokens, so that many span samples and batches."""
    inputs = tmp_path / "processing/input"
    workload = load_workload("language_model", SETTINGS)
    packing = workload.packing
    for split, count in (("train", 3), ("test", 60)):
        texts = [f"{split} {n} " * (n % 25) for n in range(count)]
        texts[-1] = "over the end of a share " * 60
        for host, part in (("a", texts[::2]), ("b", texts[1::2])):
            tokens = {"tokens": pack(workload, part)}
            write_dataset(inputs / split, tokens, packing.fields, host=host, workload=packing.info)
    for number, name in enumerate(("model", "champion")):
        (inputs / name).mkdir()
        model(inputs / name, number, Dataset(inputs / "train"))
    return tmp_path


def tables(root: Path, processes: int) -> dict[str, bytes]:
    """Name of a table → its bytes."""
    told = ["--champion", ARN, "--processes", str(processes), "--slices", "source"]
    evaluate_job.main([*told, "--baseline_units", "100", "--root", str(root)])
    folder = root / "processing/output/scores"
    assert {path.suffix for path in folder.iterdir()} == {".parquet"}, "parts are left"
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def run_champion_here(what, work, tasks, results):
    """The champion's tasks in this process, as they would arrive in another: a start less each."""
    if what.startswith("challenger"):
        yield from run_in_order(what, work, tasks, results)
        return
    for task, result in zip(tasks, results, strict=True):
        work(*pickle.loads(pickle.dumps(task)))
        yield result


@pytest.mark.sweep
def test_two_processes_write_the_very_files_of_one(root, caplog, monkeypatch):
    caplog.set_level(logging.INFO)
    monkeypatch.setattr("steps.evaluate.score_rows.run_in_order", run_champion_here)
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "1")
    alone = tables(root, 1)
    assert {"challenger.parquet", "champion.parquet"} <= alone.keys()
    assert alone["challenger.parquet"] != alone["champion.parquet"]
    assert tables(root, 2) == alone
    assert "champion: processes: 2, samples: " in caplog.text
    batches = -(-len(Dataset(root / "processing/input/test")) // 16)
    table = pq.read_table(root / "processing/output/scores/challenger.parquet")
    assert batches > 8 and max(table["loss.weight"].to_pylist()) > 3 * 16 * 16


class Alone:
    """A user's workload, whose ``scores`` takes no share."""

    def scores(self, model, test, slices=()):
        yield {"example": np.arange(3), "group": np.arange(3)}


def test_a_workload_that_takes_no_share_is_scored_by_one_process(tmp_path, caplog):
    caplog.set_level(logging.INFO)
    one = nn.Linear(1, 1)
    source = Source(tmp_path)
    challenger = TrainedModel(Alone(), one, {}, {"bytes": 0, "sha256": ""}, source)
    scoring = Scoring("challenger", "alone", {}, tmp_path, source, tmp_path)
    blocks = list(compute_rows(scoring, challenger, lambda: one, None, tmp_path, process_count=4))
    assert len(blocks) == 1 and "scores() cannot compute a share" in caplog.text


@pytest.mark.parametrize(
    ("gpus", "there", "wide", "size", "expected"),
    [(8, 96, 10**4, 10**9, 8), (8, 96, 10**4, 400, 1),
     (0, 16, 10**4, 10**9, 4), (0, 2, 10**4, 10**9, 1), (0, 16, 10**4, 300, 2),
     (0, 16, 10, 10**9, 16), (0, 2, 10, 10**9, 2), (0, 2, 10, 10**4, 1)],
)  # fmt: skip
def test_as_many_processes_as_are_of_use(monkeypatch, gpus, there, wide, size, expected):
    """A small model is computed by a process for each core, a large one by several threads."""
    monkeypatch.setattr("torch.cuda.device_count", lambda: gpus)
    monkeypatch.setattr(rows_module, "count_cores", lambda: there)
    with torch.device("meta"):
        model = nn.Linear(10**5, wide, bias=False)
    assert rows_module.choose_process_count(model, SimpleNamespace(bytes=size)) == expected
