"""Threads read the samples that the memory maps hold, and end with the loader."""

import errno
import gc
import itertools
import os
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.training.data.test_dataset import FIELDS, make
from tests.training.data.test_loader import same
from tests.training.data.test_open_shards import DAMAGES
from tests.training.trainings import write_dataset
from training.data import reads_in_flight as module
from training.data.dataset import Dataset
from training.data.loader import Loader
from training.data.reads_in_flight import ReadsInFlight
from training.data.sample_order import create_uniform_order
from training.data.torch_dataset import ShardDataset
from trainyard.common.errors import DataError

pytestmark = pytest.mark.long

SAMPLES = 200  # in some 20 shards


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_dataset(tmp_path, make(SAMPLES), FIELDS)
    return tmp_path


@pytest.fixture
def late(monkeypatch) -> None:
    """Every storage counts as late, so threads read."""
    monkeypatch.setattr(module, "LATE", 0.0)


def threads() -> int:
    return sum(thread.name.startswith("reads") for thread in threading.enumerate())


def none_left() -> None:
    """Wait until the threads of loaders that nobody holds any more have ended."""
    gc.collect()
    deadline = time.monotonic() + 60
    while threads():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def open_files(folder: Path) -> int:
    entries = (Path("/proc/self/fd") / entry for entry in os.listdir("/proc/self/fd"))
    return sum(os.path.realpath(entry).startswith(f"{folder}/") for entry in entries)


def order(dataset: Dataset):
    return create_uniform_order(dataset.fingerprint, 0, len(dataset))


@pytest.fixture(scope="module")
def shared(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("dataset")
    write_dataset(folder, make(SAMPLES), FIELDS)
    return folder


@given(
    batches=st.lists(st.lists(st.integers(0, SAMPLES - 1), max_size=40), min_size=1, max_size=4),
    most=st.integers(1, 9),
    descriptors=st.integers(0, 9),
    rate=st.floats(0, 1e9),
)
def test_any_number_of_threads_reads_what_the_maps_hold(shared, batches, most, descriptors, rate):
    """Samples in any order, neighbours and repetitions among them."""
    dataset = Dataset(shared)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "LATE", 0.0)
        patch.setattr(module, "MOST", most)
        patch.setattr(module, "DESCRIPTORS", descriptors)
        reads = ReadsInFlight(dataset)
        reads.rate = rate
        for indices in batches:
            found = reads.read(np.array(indices, np.int64))
            assert same(found, dataset.read(indices))
            assert open_files(shared) <= descriptors + most + 2 * len(dataset.manifests.files)
        reads.close()


@given(
    world=st.integers(1, 4),
    micro=st.integers(1, 30),
    accumulation=st.integers(1, 3),
    steps=st.integers(1, 4),
    most=st.integers(1, 9),
    later=st.integers(1, 9),
)
def test_a_run_resumed_with_other_threads_and_ranks_sees_every_sample_of_the_order(
    shared, world, micro, accumulation, steps, most, later
):
    dataset, share = Dataset(shared), micro * accumulation
    position = 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "LATE", 0.0)
        for count, ranks in ((most, world), (later, 1)):
            patch.setattr(module, "MOST", count)
            part = {"global_batch": share * ranks, "micro_batch": micro, "world": ranks}
            for rank in range(ranks):
                with Loader(
                    dataset, order(dataset), **part, rank=rank, position=position
                ) as loader:
                    batches = list(itertools.islice(loader, accumulation * steps))
                for number, batch in enumerate(batches):
                    step, place = divmod(number, accumulation)
                    first = position + (step * ranks + rank) * share + place * micro
                    expected = dataset.read(order(dataset).indices_at(range(first, first + micro)))
                    assert same({name: one.numpy() for name, one in batch.items()}, expected)
            assert loader.position == position + steps * share * ranks
            position = loader.position


def test_data_in_the_page_cache_are_read_by_the_maps_alone(folder):
    dataset = Dataset(folder)
    dataset.read(np.arange(SAMPLES))
    none_left()
    reads = ReadsInFlight(dataset)
    for _ in range(5):
        reads.read(np.random.default_rng(0).permutation(SAMPLES))
    assert not reads.late and reads.count == 0 and threads() == 0


@pytest.mark.parametrize(
    ("latency", "rate", "count"),
    [
        (1e-6, 1e9, 0),  # no storage waited for
        (1e-3, 10, module.HEADROOM),  # one after the other would do
        (1e-3, 10_000, module.HEADROOM * 10),
        (0.1, 100, module.HEADROOM * 10),
        (0.1, float("inf"), module.MOST),
        (0.1, 0, module.HEADROOM),
    ],
)
def test_as_many_are_in_flight_as_latency_and_rate_need(folder, latency, rate, count):
    reads = ReadsInFlight(Dataset(folder))
    reads._latency, reads.rate = latency, rate
    assert reads.count == count


@pytest.mark.parametrize("name", ["algo-1-00003.npy", "algo-1-00003.text.npy"])
@pytest.mark.parametrize(("damage", "expected"), DAMAGES)
def test_damage_is_named_as_the_maps_name_it(folder, late, name, damage, expected):
    dataset = Dataset(folder)
    damage(folder / name)
    reads = ReadsInFlight(dataset)
    [shard] = np.flatnonzero(dataset.manifests.files == "algo-1-00003.npy")
    others = np.delete(np.arange(SAMPLES), np.arange(*dataset.starts[shard : shard + 2]))
    for _ in range(2):
        assert len(reads.read(others)["weight"]) == len(others)
        with pytest.raises(DataError, match=expected) as failure:
            reads.read(np.arange(SAMPLES))
        assert str(folder / name) in str(failure.value)


def test_a_sample_whose_values_lie_outside_their_file_is_an_error(folder, late):
    path = folder / "algo-1-00003.npy"
    content = np.load(path)
    content["text"] += 1000
    np.save(path, content)
    with pytest.raises(DataError, match="text lies outside its file"):
        ReadsInFlight(Dataset(folder)).read(np.arange(SAMPLES))


def test_a_file_cut_off_after_it_was_opened_is_an_error(folder, late):
    reads = ReadsInFlight(Dataset(folder))
    reads.read(np.arange(SAMPLES))
    os.truncate(folder / "algo-1-00003.npy", 200)
    with pytest.raises(DataError, match=r"algo-1-00003.npy: ends before a sample's last byte"):
        reads.read(np.arange(SAMPLES))


def test_an_error_comes_with_its_batch_each_time_that_it_is_asked_for(folder, late):
    dataset = Dataset(folder)
    (folder / "algo-1-00003.text.npy").unlink()
    with Loader(dataset, order(dataset), global_batch=4, micro_batch=4) as loader:
        with pytest.raises(DataError, match="00003.text.npy: .* missing; copy it again"):
            list(itertools.islice(loader, SAMPLES // 4))
        for _ in range(3):
            with pytest.raises(DataError, match="00003.text.npy: .* missing; copy it again"):
                next(loader)


def test_threads_and_files_end_with_the_loader(folder, late):
    none_left()
    dataset = Dataset(folder)
    with Loader(dataset, order(dataset), global_batch=8, micro_batch=8) as loader:
        list(itertools.islice(loader, 9))
        assert threads() > 0
    before = open_files(folder)  # those of the maps
    assert threads() == 0
    forgotten = Loader(dataset, order(dataset), global_batch=8, micro_batch=8)
    list(itertools.islice(forgotten, 9))
    del forgotten
    none_left()
    assert open_files(folder) == before


@pytest.mark.parametrize("workers", [0, 2])
def test_other_loops_get_the_same_samples(folder, late, workers):
    """A batch's samples are read at once in each of the DataLoader's processes."""
    dataset, expected = ShardDataset(folder), Dataset(folder)
    loader = dataset.loader(8, num_workers=workers)
    for number, batch in enumerate(itertools.islice(loader, 10)):
        plain = expected.read(order(expected).indices_at(range(8 * number, 8 * number + 8)))
        assert same({name: one.numpy() for name, one in batch.items()}, plain)


def test_other_loops_wait_for_no_more_than_what_is_in_flight(folder, late, monkeypatch):
    """A whole read must arrive before its first batch is used."""
    real, read = os.preadv, ReadsInFlight.read

    def slow(descriptor, buffers, offset, flags=0):
        if flags:
            raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))  # not in the page cache
        time.sleep(0.002)
        return real(descriptor, buffers, offset)

    def counted(reads: ReadsInFlight, indices: np.ndarray) -> dict[str, np.ndarray]:
        sizes.append(len(indices))
        return read(reads, indices)

    sizes: list[int] = []
    monkeypatch.setattr(os, "preadv", slow)
    monkeypatch.setattr(ReadsInFlight, "read", counted)
    list(ShardDataset(folder, samples=400).loader(2))
    assert sum(sizes) == 400
    assert 2 < max(sizes) <= module.MOST


@pytest.mark.parametrize("code", [errno.EAGAIN, errno.ENOSYS, errno.EPERM, errno.EINVAL])
def test_where_the_kernel_or_a_sandbox_refuses_to_look_into_the_cache_samples_are_read(
    folder, late, monkeypatch, code
):
    """A container's seccomp profile answers EPERM or ENOSYS to ``preadv2``."""
    real = os.preadv

    def refusing(descriptor, buffers, offset, flags=0):
        if flags:
            raise OSError(code, os.strerror(code))
        return real(descriptor, buffers, offset)

    monkeypatch.setattr(os, "preadv", refusing)
    dataset = Dataset(folder)
    reads, indices = ReadsInFlight(dataset), np.arange(SAMPLES)[::-1].copy()
    reads.read(indices[:1])
    assert same(reads.read(indices), dataset.read(indices))
    reads.close()
