"""Samples are prepared in threads, and the result depends on their position alone."""

import itertools
import random

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.training.trainings import write_dataset
from training.data.dataset import Dataset
from training.data.loader import Loader, Preparation, split_batch
from training.data.manifest import Field
from training.data.sample_order import create_uniform_order
from trainyard.common.errors import TrainingError

SAMPLES = 41
FIELDS = {"content": Field(dtype="uint8", shape=None), "number": Field(dtype="int64")}


@pytest.fixture(scope="module")
def dataset(tmp_path_factory) -> Dataset:
    folder = tmp_path_factory.mktemp("dataset")
    widths = np.arange(SAMPLES) % 5
    samples = {
        "content": np.arange(widths.sum(), dtype=np.uint8),
        "content_offsets": np.concatenate(([0], np.cumsum(widths))),
        "number": np.arange(SAMPLES),
    }
    write_dataset(folder, samples, FIELDS)
    return Dataset(folder)


def prepare(sample, seed):
    """Return values computed from every stored value, and a random one."""
    drawn = -1.0 if seed is None else random.Random(seed).random()
    told = [sample["content"].sum(), len(sample["content"]), sample["number"], drawn]
    return {"told": np.array(told), "one": np.int64(sample["number"])}


def read_all_ranks(
    dataset: Dataset, world: int, micro: int, *, position: int, until: int, threads: int
):
    """Return what all ranks together read at positions ``position`` … ``until``, in that order."""
    rows = []
    options = {"global_batch": 12, "micro_batch": micro, "world": world, "position": position}
    ready = Preparation(prepare, seed=3, threads=threads)
    order = create_uniform_order(dataset.fingerprint, 3, len(dataset))
    options["preparation"] = ready
    ranks = [Loader(dataset, order, rank=rank, **options) for rank in range(world)]
    for _ in range(position, until, 12):
        for loader in ranks:
            for batch in itertools.islice(loader, 12 // world // micro):
                rows += batch["told"].tolist()
    for loader in ranks:
        loader.close()
    return rows


@pytest.fixture(scope="module")
def rows(dataset: Dataset) -> list[list[float]]:
    return read_all_ranks(dataset, 1, 12, position=0, until=12 * 21, threads=1)


@given(
    layout=st.sampled_from([(1, 12), (1, 4), (2, 3), (4, 3), (4, 1)]),
    begin=st.integers(0, 9),
    threads=st.integers(1, 4),
)
def test_the_same_for_any_ranks_batches_threads_and_after_a_resume(
    dataset, rows, layout, begin, threads
):
    """Covers three epochs, bit for bit."""
    world, micro = layout
    found = read_all_ranks(dataset, world, micro, position=12 * begin, until=120, threads=threads)
    assert found == rows[12 * begin : 120]


def test_every_epoch_sees_a_sample_in_another_way(rows):
    assert len({row[3] for row in rows}) == len(rows)
    first, second = rows[:SAMPLES], rows[SAMPLES : 2 * SAMPLES]
    assert {tuple(row[:3]) for row in first} == {tuple(row[:3]) for row in second}


def test_without_positions_nothing_is_random_and_samples_have_their_own_values(dataset):
    samples = dataset.read(range(SAMPLES))
    batch = Preparation(prepare, threads=2).make_batch(samples)
    assert batch["told"][:, 3].tolist() == [-1.0] * SAMPLES
    assert batch["one"].dtype == torch.int64
    assert batch["one"].tolist() == samples["number"].tolist()
    rows = split_batch(samples)
    assert set(rows[0]) == {"content", "number"}
    assert np.concatenate([row["content"] for row in rows]).tolist() == samples["content"].tolist()
    assert batch["told"][:, 1].tolist() == np.diff(samples["content_offsets"]).tolist()


def test_without_prepare_samples_stay_as_they_are(dataset):
    class Workload:
        pass

    samples = dataset.read(range(7))
    batch = Preparation.from_workload(Workload()).make_batch(samples)
    assert batch.keys() == samples.keys()
    assert all(batch[name].numpy().tobytes() == samples[name].tobytes() for name in batch)


WRONG = [{"x": np.zeros(3)}, {"x": np.zeros(2, np.float32)}, {"y": np.zeros(2)}]


@pytest.mark.parametrize("wrong", WRONG)
def test_samples_of_unequal_shape_are_named(dataset, wrong):
    samples = dataset.read(range(5))

    def uneven(sample, seed):
        return wrong if sample["number"] == samples["number"][-1] else {"x": np.zeros(2)}

    with pytest.raises(TrainingError, match="prepare returned .* for one sample and .*'x'"):
        Preparation(uneven, threads=2).make_batch(samples)


def test_an_error_in_a_thread_is_raised_where_the_batch_is_taken(dataset):
    def broken(sample, seed):
        raise ValueError("cannot be decoded")

    order = create_uniform_order(dataset.fingerprint, 0, len(dataset))
    options = {"global_batch": 4, "micro_batch": 4, "preparation": Preparation(broken, threads=2)}
    with Loader(dataset, order, **options) as loader, pytest.raises(ValueError, match="decoded"):
        next(loader)
