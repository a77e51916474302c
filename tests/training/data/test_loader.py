"""The loader yields the given order, ahead of time, from one thread that ends when it should."""

import gc
import itertools
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.training.data.test_dataset import FIELDS, make
from tests.training.trainings import write_dataset
from training.data import loader as module
from training.data.dataset import Dataset
from training.data.loader import Loader
from training.data.sample_order import Order, create_uniform_order, create_windowed_order
from trainyard.common.errors import DataError

pytestmark = pytest.mark.long

SAMPLES = 157  # in some 15 shards


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("dataset")
    write_dataset(folder, make(SAMPLES), FIELDS)
    return folder


@pytest.fixture
def dataset(folder: Path) -> Dataset:
    return Dataset(folder)


def threads() -> list[str]:
    names = (thread.name for thread in threading.enumerate())
    return sorted(name for name in names if name.startswith(("loader", "shards")))


def take(loader: Loader, count: int) -> list[dict[str, np.ndarray]]:
    return [
        {name: tensor.numpy().copy() for name, tensor in batch.items()}
        for batch in itertools.islice(loader, count)
    ]


def work(loader: Loader, count: int) -> None:
    """Take batches as a training does, with some work between them."""
    for _ in range(count):
        next(loader)
        time.sleep(0.003)


def until(happened: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not happened():
        assert time.monotonic() < deadline, threads()
        time.sleep(0.01)


def same(one: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> bool:
    return one.keys() == other.keys() and all(
        one[name].dtype == other[name].dtype and np.array_equal(one[name], other[name])
        for name in one
    )


def make_order(dataset: Dataset, kind: str, seed: int = 0, window: int = 40) -> Order:
    if kind == "uniform":
        return create_uniform_order(dataset.fingerprint, seed, len(dataset))
    return create_windowed_order(dataset.fingerprint, seed, dataset.manifests.samples, window)


@given(
    kind=st.sampled_from(["uniform", "windowed"]),
    loaded=st.booleans(),
    world=st.integers(1, 5),
    micro=st.integers(1, 60),
    accumulation=st.integers(1, 3),
    position=st.integers(0, 1000),
    chunk=st.integers(1, 3000),
    data=st.data(),
)
def test_it_gives_what_a_plain_read_in_the_same_order_gives(
    folder, kind, loaded, world, micro, accumulation, position, chunk, data
):
    """Fixed and variable fields; batches larger and smaller than a chunk and than the dataset."""
    rank = data.draw(st.integers(0, world - 1))
    share = micro * accumulation
    dataset, before = Dataset(folder, in_memory=loaded), module.CHUNK
    order = make_order(dataset, kind)
    try:
        module.CHUNK = chunk
        part = {"global_batch": share * world, "micro_batch": micro, "rank": rank, "world": world}
        with Loader(dataset, order, **part, position=position) as loader:
            for step in range(4):
                begin = position + step * share * world
                for number in range(accumulation):
                    assert loader.position == begin
                    [batch] = take(loader, 1)
                    first = begin + rank * share + number * micro
                    assert same(batch, dataset.read(order.indices_at(range(first, first + micro))))
            assert loader.position == position + 4 * share * world
    finally:
        module.CHUNK = before


def test_batches_stay_as_they_are_when_others_are_taken(dataset):
    with Loader(dataset, make_order(dataset, "uniform"), global_batch=4, micro_batch=4) as loader:
        first = next(loader)
        expected = {name: tensor.clone() for name, tensor in first.items()}
        take(loader, 200)
    assert first["text_offsets"].shape == (5,)
    assert all(torch.equal(first[name], expected[name]) for name in first)


@pytest.fixture
def read_sizes(monkeypatch) -> list[int]:
    """Return how many samples each read of a dataset has asked for."""
    sizes, read = [], Dataset.read
    monkeypatch.setattr(Dataset, "read", lambda self, i: sizes.append(len(i)) or read(self, i))
    return sizes


def test_the_first_batch_waits_for_no_thread_and_chunks_grow_from_it_to_their_size(
    dataset, read_sizes, monkeypatch
):
    monkeypatch.setattr(module, "CHUNK", 2000)
    with Loader(dataset, make_order(dataset, "uniform"), global_batch=2, micro_batch=2) as loader:
        next(loader)
        assert read_sizes == [2] and not threads()
        take(loader, 299)
    assert read_sizes[:5] == [2, 4, 8, 16, 32]
    sample = dataset.manifests.bytes.sum() / len(dataset)
    assert 1000 < max(read_sizes) * sample <= 2000
    assert sum(read_sizes) <= 600 + (module.PREFETCH_CHUNKS + 1) * max(read_sizes)


def test_a_consumer_that_only_reads_needs_no_thread(dataset, monkeypatch):
    read = Dataset.read
    monkeypatch.setattr(Dataset, "read", lambda self, i: time.sleep(0.02) or read(self, i))
    with Loader(dataset, make_order(dataset, "uniform"), global_batch=9, micro_batch=9) as loader:
        take(loader, 20)
        assert not threads()


def test_chunks_may_be_read_in_any_order(dataset):
    """Two threads read at once, and one may overtake the other."""
    order = make_order(dataset, "uniform")
    chunks = module._Chunks(dataset, order, 7, 20, 1, 2, False)
    for first, count in ((0, 4), (4, 8), (40, 16), (12, 16), (0, 4), (44, 3)):
        found = chunks.read(first, count)
        wanted = [7 + k // 10 * 20 + 10 + k % 10 for k in range(first, first + count)]
        expected = dataset.read(order.indices_at(np.array(wanted)))
        assert same({name: tensor.numpy() for name, tensor in found.items()}, expected)


class Blocking(Order):
    """An order that blocks until it is released."""

    def __init__(self, order: Order) -> None:
        self.order, self.may = order, threading.Event()
        self.may.set()

    def indices_at(self, positions):
        self.may.wait(10)
        return self.order.indices_at(positions)


def test_time_spent_waiting_is_counted(dataset):
    order = Blocking(make_order(dataset, "uniform"))
    with Loader(dataset, order, global_batch=8, micro_batch=8) as loader:
        began = time.perf_counter()
        take(loader, 20)
        before = loader.stall_seconds
        assert before <= time.perf_counter() - began
        order.may.clear()
        threading.Timer(0.5, order.may.set).start()
        began = time.perf_counter()
        while not order.may.is_set():
            next(loader)
        assert 0.1 < loader.stall_seconds - before <= time.perf_counter() - began


def test_the_thread_reads_ahead_while_nobody_waits(dataset):
    with Loader(dataset, make_order(dataset, "uniform"), global_batch=8, micro_batch=8) as loader:
        work(loader, 4)
        until(lambda: all(future.done() for _, _, future in loader._coming))
        assert len(loader._coming) == module.PREFETCH_CHUNKS


@pytest.mark.parametrize("loaded", [False, True])
def test_the_thread_ends_with_the_loader(folder, loaded):
    dataset = Dataset(folder, in_memory=loaded)
    order = make_order(dataset, "windowed")
    with (
        pytest.raises(ZeroDivisionError),  # what a training loop may raise
        Loader(dataset, order, global_batch=8, micro_batch=8) as loader,
    ):
        work(loader, 9)
        assert "loader_0" in threads()
        began = time.monotonic()
        raise ZeroDivisionError
    assert "loader_0" not in threads()
    assert time.monotonic() - began < 60
    forgotten = Loader(dataset, order, global_batch=8, micro_batch=8)
    work(forgotten, 9)
    del forgotten, dataset, loader
    gc.collect()
    until(lambda: not threads())


@pytest.mark.parametrize("loaded", [False, True])
def test_an_error_of_the_thread_is_raised_each_time_that_its_batch_is_asked_for(tmp_path, loaded):
    write_dataset(tmp_path, make(SAMPLES), FIELDS)
    dataset = Dataset(tmp_path, in_memory=loaded)
    order = Order(len(dataset), lambda epoch: lambda positions: positions)
    shard = len(dataset.manifests.files) - 2
    (tmp_path / dataset.manifests.files[shard]).unlink()
    good = int(dataset.starts[shard])
    order.find_next_shards = lambda position: np.arange(len(dataset.manifests.files))
    with Loader(dataset, order, global_batch=1, micro_batch=1) as loader:
        given = []
        with pytest.raises(DataError, match="missing; copy it again"):
            given.extend(batch["tokens"] for batch in loader)
        assert good - module.CHUNK <= len(given) <= good
        for _ in range(3):
            with pytest.raises(DataError, match="missing; copy it again"):
                next(loader)


def test_a_batch_that_ranks_cannot_share_is_refused(dataset):
    with pytest.raises(ValueError, match="global_batch=10 is not a multiple of micro"):
        Loader(dataset, make_order(dataset, "uniform"), global_batch=10, micro_batch=4)


def test_the_first_batch_of_a_process_waits_for_no_import(folder: Path, run_python):
    """numpy.unique and the like import modules on their first call: 12 ms of a resume."""
    code = f"""
import sys, training.data.loader, training.data.sample_order
from training.data.dataset import Dataset
before = set(sys.modules)
dataset = Dataset({str(folder)!r})
order = training.data.sample_order.create_uniform_order(dataset.fingerprint, 0, len(dataset))
next(training.data.loader.Loader(dataset, order, global_batch=8, micro_batch=8, position=64))
print(sorted(set(sys.modules) - before))
"""
    done = run_python("-c", code)
    assert done.stdout.strip() == "[]", done.stderr
