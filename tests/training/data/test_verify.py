"""Verification finds a changed byte, wherever it is."""

from pathlib import Path

import pytest

from tests.training.data.test_dataset import FIELDS, make
from tests.training.trainings import write_dataset
from training.data.dataset import Dataset
from training.data.verify import verify

pytestmark = pytest.mark.long


@pytest.fixture
def dataset(tmp_path: Path) -> Dataset:
    write_dataset(tmp_path, make(20), FIELDS, shard_bytes=300)
    return Dataset(tmp_path)


def damaged(dataset: Dataset) -> list[str]:
    return [f"{d.file}: {d.reason}" for d in verify(dataset.folder, dataset.manifests)]


def test_an_untouched_dataset_is_whole(dataset: Dataset):
    assert not damaged(dataset)
    assert len([*dataset.folder.glob("*.npy")]) == dataset.manifests.bytes.size == 6


def test_every_flipped_byte_is_found(dataset: Dataset):
    for path in dataset.folder.glob("*-00001*.npy"):
        whole = path.read_bytes()
        for position in range(len(whole)):
            changed = bytearray(whole)
            changed[position] ^= 1 << position % 8
            path.write_bytes(changed)
            [found] = damaged(dataset)
            assert found.startswith(f"{path.name}: its SHA-256 is")
        path.write_bytes(whole)


def test_missing_and_cut_files_are_found(dataset: Dataset):
    (dataset.folder / "algo-1-00000.npy").unlink()
    (dataset.folder / "algo-1-00002.text.npy").write_bytes(b"")
    missing, cut = sorted(damaged(dataset))
    assert missing == "algo-1-00000.npy: is missing"
    assert cut.startswith("algo-1-00002.text.npy: has 0 bytes, its manifest says 1")
