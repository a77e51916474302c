"""Tests of the train split's summary, which an evaluation reads instead of the split."""

import json
from pathlib import Path

import numpy as np
import pytest

from steps.shard import job, split_summary
from tests.steps.shard.conftest import ARGUMENTS, RECORDS, container, five_objects, lines
from training.data.dataset import Dataset
from training.workloads import load_packing

TABLES = ("", "examples", "sample")


def run_shard_job(
    root: Path, files: dict[str, bytes], *options: str, arguments: list[str] = ARGUMENTS
) -> Path:
    """The folder into which one instance wrote."""
    container(root / "algo-1", files, "algo-1", ["algo-1"])
    places = ["--output", str(root / "out"), "--root", str(root / "algo-1")]
    job.main([*arguments, *options, *places])
    return root / "out"


def fingerprints(folder: Path) -> list[str]:
    return [Dataset(folder / "summary" / table).fingerprint for table in TABLES]


def names(dataset: Dataset) -> list[int]:
    packing = load_packing("language_model", {"context_length": 8, "layers": 1, "heads": 1})
    return sorted(n for block in packing.examples(dataset) for n in block["example"].tolist())


@pytest.fixture(scope="module")
def summarized(tmp_path_factory) -> Path:
    return run_shard_job(tmp_path_factory.mktemp("whole"), five_objects(), "--summary")


def test_it_names_every_example_and_has_all_of_a_small_split_in_the_same_order(summarized):
    table = Dataset(summarized / "summary/examples")
    named = table.read(np.arange(len(table)))["example"].tolist()
    assert sorted(named) == names(Dataset(summarized / "train"))
    assert len(named) == Dataset(summarized / "train").records
    train, sample = Dataset(summarized / "train"), Dataset(summarized / "summary/sample")
    assert sample.fingerprint == train.fingerprint == Dataset(summarized / "summary").fingerprint
    everything = np.arange(len(train))
    assert (sample.read(everything)["tokens"] == train.read(everything)["tokens"]).all()
    [manifest] = [path for path in (summarized / "summary").iterdir() if path.is_file()]
    assert manifest.read_bytes() == (summarized / "train/manifest-algo-1.json").read_bytes()


def test_a_large_split_gives_samples_at_even_distances(tmp_path, monkeypatch):
    monkeypatch.setattr(split_summary, "SAMPLE_BYTES", 3000)
    one = run_shard_job(tmp_path / "one", five_objects(), "--summary")
    two = run_shard_job(tmp_path / "two", {"a.jsonl": lines(RECORDS[::-1])}, "--summary")
    assert fingerprints(one) == fingerprints(two)
    sample, train = Dataset(one / "summary/sample"), Dataset(one / "train")
    size = int(sample.manifests.bytes.sum())
    assert 1000 < size < 2 * 3000 < int(train.manifests.bytes.sum())
    rows, all_rows = (
        {row.tobytes() for row in d.read(np.arange(len(d)))["tokens"]} for d in (sample, train)
    )
    assert rows < all_rows
    assert len(np.unique(sample.manifests.source)) == len(np.unique(train.manifests.source))


def test_it_changes_nothing_of_the_splits_and_a_rerun_adds_it(tmp_path, summarized):
    root = tmp_path / "later"
    without = run_shard_job(root, five_objects())
    assert not (without / "summary").exists()
    before = Dataset(without / "train").fingerprint
    again = run_shard_job(root, five_objects(), "--summary")
    assert (
        before == Dataset(again / "train").fingerprint == Dataset(summarized / "train").fingerprint
    )
    assert fingerprints(again) == fingerprints(summarized)


def test_groups_are_named_too(tmp_path):
    rows = [{"size": n % 7, "y": n % 2, "user": f"user {n % 40}"} for n in range(200)]
    settings = {"numbers": ["size"], "label": "y", "label_above": 0.5, "group": "user"}
    told = ["--workload", "tabular", "--workload_config", json.dumps(settings), "--key", "user"]
    folder = run_shard_job(tmp_path, {"a.jsonl": lines(rows)}, "--summary", arguments=told)
    named, train = (
        d.read(np.arange(len(d)))
        for d in (Dataset(folder / "summary/examples"), Dataset(folder / "train"))
    )
    assert len(named["example"]) == len(train["label"]) > 50
    assert sorted(named["group"].tolist()) == sorted(train["group"].tolist())
    rows = np.column_stack([train[name] for name in sorted(train)]).astype(np.float64)
    assert len({*named["example"].tolist()}) == len({row.tobytes() for row in rows})
