"""A dataset read straight from S3 is the same dataset."""

import itertools
from pathlib import Path

import boto3
import numpy as np
import pytest

from tests.training.data.test_dataset import FIELDS, make, rows
from tests.training.trainings import write_dataset
from training.data.dataset import Dataset
from training.data.loader import Loader
from training.data.sample_order import create_uniform_order, create_windowed_order
from trainyard.common.errors import DataError

pytestmark = pytest.mark.long


@pytest.fixture
def prefix(emulator, tmp_path: Path, monkeypatch, request) -> str:
    """Write 120 samples under the test's own prefix; the same files are in ``tmp_path``."""
    for name, value in emulator.env.items():
        monkeypatch.setenv(name, value)
    write_dataset(tmp_path, make(60, seed=1), FIELDS)
    write_dataset(tmp_path, make(60, seed=2), FIELDS, host="algo-2")
    s3 = boto3.client("s3")
    bucket = "data-" + str(abs(hash(request.node.name)))[:8]
    s3.create_bucket(Bucket=bucket)
    for path in tmp_path.glob("*.*"):
        s3.upload_file(str(path), bucket, f"a b/é/train/{path.name}")
    s3.put_object(Bucket=bucket, Key="a b/é/train/deeper/manifest-x.json", Body=b"{")
    return f"s3://{bucket}/a b/é/train"


def remove(prefix: str, name: str) -> None:
    bucket, _, key = prefix.removeprefix("s3://").partition("/")
    boto3.client("s3").delete_object(Bucket=bucket, Key=f"{key}/{name}")


@pytest.mark.parametrize("slash", ["", "/"])
def test_it_equals_the_local_one(prefix, tmp_path, slash):
    local, remote = Dataset(tmp_path), Dataset(prefix + slash)
    assert remote.fingerprint == local.fingerprint and len(remote) == 120
    remote.check()
    order = np.random.default_rng(0).integers(0, 120, 500)
    assert rows(remote.read(order)) == rows(local.read(order))
    pairs = zip(remote.batches(7), local.batches(7), strict=True)
    assert all(rows(one) == rows(other) for one, other in pairs)


@pytest.mark.parametrize("kind", ["uniform", "windowed"])
def test_the_loader_reads_each_object_once_an_epoch(prefix, tmp_path, emulator, kind):
    local, remote = Dataset(tmp_path), Dataset(prefix)
    order = (
        create_uniform_order(local.fingerprint, 0, 120)
        if kind == "uniform"
        else create_windowed_order(local.fingerprint, 0, local.manifests.samples, 30)
    )
    with Loader(remote, order, global_batch=8, micro_batch=4) as loader:
        for number, batch in enumerate(itertools.islice(loader, 75)):
            expected = local.read(order.indices_at(range(4 * number, 4 * number + 4)))
            found = {name: tensor.numpy() for name, tensor in batch.items()}
            assert rows(found) == rows(expected)


def test_what_is_missing_is_named(prefix, tmp_path):
    remote = Dataset(prefix)
    name = remote.manifests.files[3]
    remove(prefix, name)
    for act in (remote.check, lambda: remote.read(np.arange(120))):
        with pytest.raises(DataError, match=f"{prefix}/{name}: .* missing; copy it again"):
            act()
    with pytest.raises(DataError, match="nothing here: holds no manifest"):
        Dataset(prefix + "/nothing here")
    with pytest.raises(DataError, match="no-such-bucket/a: cannot be listed|holds no manifest"):
        Dataset("s3://no-such-bucket/a")


def test_a_cut_object_is_named(prefix, tmp_path):
    remote = Dataset(prefix)
    name = remote.manifests.files[3]
    bucket, _, key = prefix.removeprefix("s3://").partition("/")
    body = (tmp_path / name).read_bytes()[:-1]
    boto3.client("s3").put_object(Bucket=bucket, Key=f"{key}/{name}", Body=body)
    for act in (remote.check, lambda: remote.read(np.arange(120))):
        with pytest.raises(DataError, match=f"{name}: has {len(body)} bytes, its manifest says"):
            act()
