"""Tests of ``python -m steps.shard.inspect``."""

from functools import partial
from pathlib import Path

import numpy as np
import pytest

from tests.conftest import call_module
from tests.training.data.test_dataset import FIELDS, make
from tests.training.trainings import write_dataset
from training.data.dataset import Dataset

pytestmark = pytest.mark.long

inspect = partial(call_module, "steps.shard.inspect")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A dataset of two splits, 60 + 20 samples."""
    write_dataset(tmp_path / "data/train", make(60), FIELDS)
    write_dataset(tmp_path / "data/test", make(20, seed=1), FIELDS, split="test")
    return tmp_path / "data"


def test_counts_samples_and_fingerprints(run_python, folder):
    shown = run_python("-m", "steps.shard.inspect", str(folder), "--samples", "2")
    assert shown.returncode == 0, shown.stderr
    header, train, test, *_ = shown.stdout.splitlines()
    assert header.split()[:3] == ["split", "samples", "records"]
    assert train.split()[:3] == ["train", "60", "60"] and test.split()[:3] == ["test", "20", "20"]
    for split in ("train", "test"):
        dataset = Dataset(folder / split)
        sizes = dataset.manifests.bytes.sum(axis=1)
        assert f"{split} {dataset.fingerprint}" in shown.stdout
        row = train if split == "train" else test
        assert row.split()[-1] == f"{sizes.max() / sizes.mean():.2f}"
    last = Dataset(folder / "train").read([59])["tokens"][0]
    assert f"59  tokens  {np.array2string(last)}" in shown.stdout


def test_verify_tells_by_its_exit_status(folder):
    arguments = (str(folder), "--verify", "--samples", "0")
    whole = inspect(*arguments)
    assert whole.returncode == 0 and "train: 10 files, every hash matches" in whole.stdout
    shard = folder / "test" / Dataset(folder / "test").manifests.files[0]
    content = bytearray(shard.read_bytes())
    content[-1] ^= 1
    shard.write_bytes(content)
    damaged = inspect(*arguments)
    assert damaged.returncode == 1
    assert f"damaged {shard.name}: its SHA-256 is" in damaged.stdout
    assert "train: 10 files, every hash matches" in damaged.stdout
    shown = inspect(str(folder.parent / "none"))
    assert shown.returncode == 1 and "Traceback" not in shown.stderr
    assert "neither it nor a folder in it contains a manifest" in shown.stderr
