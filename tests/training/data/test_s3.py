"""A dataset read straight from S3 is the same dataset."""

from pathlib import Path

import boto3
import numpy as np
import pytest

from tests.training.data.test_dataset import FIELDS, make, rows
from tests.training.trainings import write_dataset
from training.data.dataset import Dataset
from trainyard.common.errors import DataError

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("dataset")
    write_dataset(folder, make(60, seed=1), FIELDS)
    write_dataset(folder, make(60, seed=2), FIELDS, host="algo-2")
    return folder


@pytest.fixture(scope="module")
def prefix(aws_environment, folder: Path) -> str:
    """Copy the dataset to S3, beside what is no part of it."""
    s3 = boto3.client("s3")
    s3.create_bucket(Bucket="data")
    for path in folder.glob("*.*"):
        s3.upload_file(str(path), "data", f"a b/é/train/{path.name}")
    s3.put_object(Bucket="data", Key="a b/é/train/deeper/manifest-x.json", Body=b"{")
    return "s3://data/a b/é/train"


def test_it_equals_the_local_one(prefix, folder):
    local, remote = Dataset(folder), Dataset(prefix + "/")
    assert remote.fingerprint == local.fingerprint == Dataset(prefix).fingerprint
    assert len(remote) == 120
    remote.check_files()
    order = np.random.default_rng(0).integers(0, 120, 500)
    assert rows(remote.read(order)) == rows(local.read(order))
    pairs = zip(remote.iter_batches(7), local.iter_batches(7), strict=True)
    assert all(rows(one) == rows(other) for one, other in pairs)


def test_what_is_cut_or_missing_is_named(prefix, folder):
    remote, s3 = Dataset(prefix), boto3.client("s3")
    name = remote.manifests.files[3]
    body, place = (folder / name).read_bytes(), {"Bucket": "data", "Key": f"a b/é/train/{name}"}

    def assert_reads_fail(said: str) -> None:
        for act in (remote.check_files, lambda: remote.read(np.arange(120))):
            with pytest.raises(DataError, match=f"{prefix}/{name}: {said}"):
                act()

    s3.put_object(**place, Body=body[:-1])
    assert_reads_fail(f"has {len(body) - 1} bytes, its manifest says")
    s3.delete_object(**place)
    assert_reads_fail(".* missing; copy it again")
    s3.put_object(**place, Body=body)
    with pytest.raises(DataError, match="nothing here: holds no manifest"):
        Dataset(prefix + "/nothing here")
    with pytest.raises(DataError, match="no-such-bucket/a: cannot be listed|holds no manifest"):
        Dataset("s3://no-such-bucket/a")
