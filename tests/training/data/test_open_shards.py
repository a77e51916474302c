"""Shards are opened when they are read, checked when they are opened, and closed in time."""

import os
import time
import weakref
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from tests.training.data.test_dataset import FIELDS, make, rows
from tests.training.trainings import write_dataset
from training.data import open_shards
from training.data.dataset import Dataset
from training.data.manifest import Samples
from training.data.verify import verify_shards
from trainyard.common.errors import DataError

SAMPLES = 200  # in some 20 shards


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_dataset(tmp_path, make(SAMPLES), FIELDS)
    return tmp_path


def everything(dataset: Dataset) -> Samples:
    return dataset.read(np.arange(len(dataset)))


def count_mapped_files(folder: Path) -> int:
    """Return how many files of the folder this process has mapped."""
    return Path("/proc/self/maps").read_text().count(str(folder))


def edit(path: Path, changes: dict[bytes, bytes]) -> None:
    content = path.read_bytes()
    for before, after in changes.items():
        content = content.replace(before, after)
    path.write_bytes(content)


DAMAGES = [
    (lambda path: path.unlink(), "missing; copy it again"),
    (lambda path: path.write_bytes(b""), "has 0 bytes, its manifest says"),
    (lambda path: os.truncate(path, 100), "has 100 bytes, its manifest says"),
    (lambda path: path.write_bytes(bytes(path.stat().st_size)), "is not the .npy file"),
    (lambda path: edit(path, {b"<u2": b"<i2", b"|u1": b"|i1"}), "it holds .*(i2|int8)"),
    (lambda path: edit(path, {b",), }": b"1,1)}"}), "expected one dimension"),
    (lambda path: (path.unlink(), path.mkdir()), "cannot be read"),
]
"""(damage to a file, what is said of it)."""


@pytest.mark.parametrize("loaded", [False, True])
@pytest.mark.parametrize("name", ["algo-1-00003.npy", "algo-1-00003.text.npy"])
@pytest.mark.parametrize(("damage", "expected"), DAMAGES)
def test_damage_is_found_when_the_shard_is_opened(folder, loaded, name, damage, expected):
    dataset = Dataset(folder, in_memory=loaded)
    damage(folder / name)
    with pytest.raises(DataError, match=expected) as failure:
        everything(dataset)
    assert str(folder / name) in str(failure.value)
    [shard] = np.flatnonzero(dataset.manifests.files == "algo-1-00003.npy")
    others = np.delete(np.arange(SAMPLES), np.arange(*dataset.starts[shard : shard + 2]))
    assert len(rows(dataset.read(others))) == len(others)


def test_a_sample_whose_values_lie_outside_their_file_is_an_error(folder):
    path = folder / "algo-1-00003.npy"
    content = np.load(path)
    content["text"] += 1000
    np.save(path, content)
    with pytest.raises(DataError, match="text is outside its file"):
        everything(Dataset(folder))


def test_a_sample_that_is_not_there_is_an_error(folder):
    for index in (-1, SAMPLES):
        with pytest.raises(IndexError, match="holds samples 0 to 199"):
            Dataset(folder).read([0, index])


def test_maps_are_closed_when_they_are_too_many(folder, monkeypatch):
    expected = rows(everything(Dataset(folder)))
    assert count_mapped_files(folder) == 0
    monkeypatch.setattr(open_shards, "MAPS", 10)
    dataset, random = Dataset(folder), np.random.default_rng(0)
    for _ in range(100):
        chosen = random.integers(0, SAMPLES, 2)
        assert rows(dataset.read(chosen)) == [expected[index] for index in chosen]
        assert 2 <= count_mapped_files(folder) <= 10
    assert rows(everything(dataset)) == expected  # one read may need more
    kept = dataset.read([3])
    del dataset
    assert count_mapped_files(folder) == 0
    assert rows(kept) == [expected[3]]


@pytest.mark.parametrize("loaded", [False, True])
def test_threads_may_read_at_once_while_shards_are_closed(folder, monkeypatch, loaded):
    expected = rows(everything(Dataset(folder)))
    monkeypatch.setattr(open_shards, "MAPS", 6)
    monkeypatch.setattr(open_shards, "MEMORY", 2000)
    dataset = Dataset(folder, in_memory=loaded)

    def read(seed: int) -> bool:
        chosen = np.random.default_rng(seed).integers(0, SAMPLES, 30)
        return rows(dataset.read(chosen)) == [expected[index] for index in chosen]

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(read, range(100)))


def test_what_is_held_is_read_ahead_and_all_else_forgotten(folder, monkeypatch):
    """However little memory is kept by default."""
    monkeypatch.setattr(open_shards, "MEMORY", 1)
    dataset = Dataset(folder, in_memory=True)
    expected = rows(everything(Dataset(folder)))
    shards = len(dataset.manifests.files)
    first, second = np.arange(shards // 2), np.arange(shards // 2 - 2, shards)
    dataset.prefetch_shards(first)
    dataset.read(dataset.starts[first])
    watched = weakref.ref(dataset.tables.open_shards(first[:1]).rows[0].base)
    dataset.prefetch_shards(second)
    assert watched() is None  # its memory is free
    deadline = time.monotonic() + 60
    while not all(loading.done() for loading in dataset.tables._loading.values()):
        assert time.monotonic() < deadline
    for path in folder.glob("*.npy"):
        path.unlink()
    begin = int(dataset.starts[second[0]])
    for _ in range(2):
        found = [row for i in range(begin, SAMPLES) for row in rows(dataset.read([i]))]
        assert found == expected[begin:]
    with pytest.raises(DataError, match="missing"):
        dataset.read([0])


def test_more_than_the_machine_has_is_refused(folder, monkeypatch):
    sizes = {"SC_PHYS_PAGES": 5, "SC_PAGE_SIZE": 1000}
    monkeypatch.setattr(open_shards.os, "sysconf", sizes.__getitem__)
    Dataset(folder).prefetch_shards(None)  # maps take no memory
    with pytest.raises(DataError, match="the machine has 0.0 GB; use loop.shuffle=windowed"):
        Dataset(folder, in_memory=True).prefetch_shards(None)


def test_no_byte_of_a_header_leads_to_another_error(folder):
    """Whatever the header contains: the result is the samples or a DataError."""
    path, random = folder / "algo-1-00003.npy", np.random.default_rng(0)
    content, failures = path.read_bytes(), 0
    for _ in range(150):
        changed = bytearray(content)
        changed[random.integers(len(content) // 2)] = random.integers(256)
        path.write_bytes(changed)
        try:
            everything(Dataset(folder))
        except DataError:
            failures += 1
    assert failures > 50


def test_verification_finds_a_changed_byte_and_what_is_missing_or_cut(folder):
    dataset = Dataset(folder)

    def list_damages() -> list[str]:
        found = verify_shards(folder, dataset.manifests)
        return sorted(f"{damage.file}: {damage.reason}" for damage in found)

    assert not list_damages()
    for path in folder.glob("*-00001*.npy"):
        whole = path.read_bytes()
        for position in range(0, len(whole), 31):
            changed = bytearray(whole)
            changed[position] ^= 1 << position % 8
            path.write_bytes(changed)
            [found] = list_damages()
            assert found.startswith(f"{path.name}: its SHA-256 is")
        path.write_bytes(whole)
    (folder / "algo-1-00000.npy").unlink()
    (folder / "algo-1-00002.text.npy").write_bytes(b"")
    missing, cut = list_damages()
    assert missing == "algo-1-00000.npy: is missing"
    assert cut.startswith("algo-1-00002.text.npy: has 0 bytes, its manifest says 1")
