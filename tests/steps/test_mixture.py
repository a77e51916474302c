"""Two inputs from raw records to scores: packed on two instances, trained by weights, sliced."""

import json
import shutil
import tarfile
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from steps.evaluate import job as evaluate_job
from steps.shard.shard_plan import SPLITS
from steps.train import job as train_job
from tests.steps.shard.conftest import instances
from training.data.dataset import Dataset
from training.data.mixture import collect_inputs

pytestmark = pytest.mark.long

SIZES = {"web": 300, "code": 40}
WORKLOAD = [
    "--workload", "language_model",
    "--workload_config", '{"context_length": 32, "layers": 1, "heads": 2, "dim": 32}',
]  # fmt: skip
MIXTURE = {"weights": {"web": 1, "code": 3}, "changes": [{"step": 4, "weights": {"web": 1}}]}
LOOP = {"strategy": "single", "max_steps": 6, "global_batch": 8, "micro_batch": 4,
        "learning_rate": 0.01, "log_interval": 1, "mixture": json.dumps(MIXTURE)}  # fmt: skip


def records(name: str, numbers: range) -> str:
    return "".join(json.dumps({"text": f"{name} has text number {n}"}) + "\n" for n in numbers)


def shard(root: Path) -> None:
    """Two instances, each with a part: JSON Lines of one input, plain text of the other."""
    parts = (range(part, SIZES["web"], 2) for part in (0, 1))
    files = {f"web/part-{n}.jsonl": records("web", part).encode() for n, part in enumerate(parts)}
    lines = [f"code has text number {n}\n" for n in range(SIZES["code"])]
    files["code/all.txt"] = "".join([*lines, "web has text number 7\n"]).encode()
    shares = ["--validation_share", "0.2", "--test_share", "0.2", "--processes", "1"]
    words = [*WORKLOAD, *shares, "--inputs", *SIZES]
    for container in instances(root / "shard", files, 2, base=words):
        for split in SPLITS:
            output = container / "processing/output" / split
            shutil.copytree(output, root / split, dirs_exist_ok=True)


def test_from_the_records_of_two_inputs_to_their_slices(tmp_path: Path):
    shard(tmp_path)
    datasets = {split: Dataset(tmp_path / split) for split in SPLITS}
    assert all(set(collect_inputs(data.manifests)) == set(SIZES) for data in datasets.values())
    assert sum(data.records for data in datasets.values()) == sum(SIZES.values())

    for split in ("train", "validation"):
        shutil.copytree(tmp_path / split, tmp_path / "ml/input/data" / split)
    loop = [part for name, value in LOOP.items() for part in (f"--{name}", str(value))]
    train_job.main([*WORKLOAD, *loop, "--root", str(tmp_path / "ml")])
    history = (tmp_path / "ml/model/history.jsonl").read_text().splitlines()
    seen = {line["step"]: line for line in map(json.loads, history) if "loss" in line}
    assert [seen[step]["samples.code"] for step in (1, 4, 6)] == [6, 24, 24]
    assert [seen[step]["samples.web"] for step in (1, 4, 6)] == [2, 8, 24]

    folder = tmp_path / "ml/processing/input"
    for split in ("train", "test"):
        shutil.copytree(tmp_path / split, folder / split)
    (folder / "model").mkdir()
    with tarfile.open(folder / "model/model.tar.gz", "w:gz") as tar:
        tar.add(tmp_path / "ml/model", ".")
    evaluate_job.main(["--slices", "source", "--root", str(tmp_path / "ml")])
    scores = tmp_path / "ml/processing/output/scores/challenger.parquet"
    found = pq.read_table(scores).column("slice.source").to_pylist()
    assert len(found) == datasets["test"].records
    assert {name: found.count(name) > 0 for name in SIZES} == dict.fromkeys(SIZES, True)
    assert found.count("web") > found.count("code")
