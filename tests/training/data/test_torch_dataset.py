"""Other frameworks' samplers and loaders give each step the same samples as our loader."""

import itertools
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
from accelerate.data_loader import BatchSamplerShard
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import BatchSampler, DataLoader, DistributedSampler, RandomSampler

from tests.conftest import CHECKOUT
from tests.training.data.test_dataset import FIELDS, make
from tests.training.data.test_loader import make_order
from tests.training.trainings import write_dataset
from training.data.dataset import Dataset
from training.data.loader import Loader
from training.data.torch_dataset import Batch, ShardDataset, collate
from training.export import shipped_files
from trainyard.common.errors import DataError

pytestmark = pytest.mark.long

SAMPLES, SEED = 101, 3


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("dataset")
    write_dataset(folder, make(SAMPLES), FIELDS)
    return folder


def native(folder: Path, steps: int, batch: int, shuffle: str = "uniform") -> list[list[float]]:
    """Return the weights (unique per sample) of each global batch of the native loop, sorted."""
    data = Dataset(folder)
    order = make_order(data, shuffle, SEED, 20)
    with Loader(data, order, global_batch=batch, micro_batch=batch) as loader:
        return [sorted(next(loader)["weight"].tolist()) for _ in range(steps)]


def accelerates(train: ShardDataset, micro: int, rank: int, world: int) -> list[list[int]]:
    batches = BatchSampler(range(len(train)), micro, drop_last=True)
    return list(BatchSamplerShard(batches, world, rank))


def lightnings(train: ShardDataset, micro: int, rank: int, world: int) -> list[list[int]]:
    sampler = DistributedSampler(train, world, rank, shuffle=False)
    return list(BatchSampler(sampler, micro, drop_last=True))


def list_batches(train: ShardDataset, micro: int, rank: int, world: int) -> list[list[int]]:
    return list(train.loader(micro, rank=rank, world=world).batch_sampler)


@given(
    share=st.sampled_from([accelerates, lightnings, list_batches]),
    phases=st.lists(st.sampled_from([(1, 1), (2, 2), (3, 1), (4, 3)]), min_size=1, max_size=3),
    steps=st.integers(1, 12),
)
def test_each_step_has_the_native_samples_whoever_shares_them_however_often_resumed(
    folder, share, phases, steps
):
    """A phase is (ranks, micro-batches of a rank per step); each resumes the previous one."""
    micro, seen, expected, state = 3, [], [], {"position": 0}
    for world, accumulated in phases:
        batch = micro * world * accumulated
        train = ShardDataset(folder, seed=SEED, samples=steps * batch)
        train.load_state_dict(state)
        ranks = [share(train, micro, rank, world) for rank in range(world)]
        assert {len(batches) for batches in ranks} == {steps * accumulated}
        for step in range(steps):
            window = slice(step * accumulated, (step + 1) * accumulated)
            taken = [train.__getitems__(b) for batches in ranks for b in batches[window]]
            seen += sorted(w for part in taken for w in part.tensors["weight"].tolist())
            train.advance(batch)
        state = train.state_dict()
        expected += [batch] * steps
    endless = iter(itertools.chain.from_iterable(native(folder, sum(expected), 1)))
    for batch in expected:
        assert sorted(itertools.islice(endless, batch)) == seen[:batch]
        del seen[:batch]
    assert state == {"position": sum(expected)}


@pytest.mark.parametrize(("shuffle", "workers"), [("uniform", 0), ("windowed", 0), ("windowed", 2)])
def test_a_loader_gives_the_native_batches_with_any_number_of_workers(folder, workers, shuffle):
    train = ShardDataset(folder, seed=SEED, samples=160, shuffle=shuffle, window_samples=20)
    train.load_state_dict({"position": 3 * 8})
    options = {"num_workers": workers, "persistent_workers": workers > 0}
    given = [sorted(b["weight"].tolist()) for b in train.loader(8, **options)]
    assert given == native(folder, 23, 8, shuffle)[3:]


def test_a_second_pass_goes_on_where_the_training_stands(folder):
    train = ShardDataset(folder, seed=SEED, samples=40)
    before = torch.get_rng_state()
    for epoch in range(2):
        train.set_epoch(epoch)
        given = [sorted(b["weight"].tolist()) for b in train.loader(8)]
        assert given == native(folder, 10, 8)[epoch * 5 : epoch * 5 + 5]
        train.advance(40)
    assert torch.equal(torch.get_rng_state(), before), "a random number was drawn"
    train.set_epoch(2)
    with pytest.raises(DataError, match=r"pass 3 would repeat .*; call advance"):
        train.set_epoch(3)


def test_a_shuffling_sampler_is_named(folder):
    train = ShardDataset(folder)
    loader = DataLoader(train, 16, sampler=RandomSampler(train), collate_fn=collate)
    with pytest.raises(DataError, match=r"random order already.*shuffle=False"):
        next(iter(loader))


def test_an_evaluation_reads_the_shards_in_their_order_and_its_end_may_be_filled_up(folder):
    plain, data = ShardDataset(folder, shuffle=None), Dataset(folder)
    assert len(plain) == SAMPLES
    for epoch in range(2):
        plain.set_epoch(epoch)
    found = plain.__getitems__([SAMPLES - 1, 0]).tensors["weight"].tolist()
    assert found == data.read([SAMPLES - 1, 0])["weight"].tolist()


def test_samples_of_a_batch_are_those_read_one_by_one(folder):
    train = ShardDataset(folder, seed=SEED)
    batch = train.__getitems__(range(9))
    assert isinstance(batch, Batch) and len(batch) == len(batch[:]) == 9
    for index, sample in enumerate(batch):
        alone = train[index]
        assert sample.keys() == alone.keys() == FIELDS.keys()
        assert all(torch.equal(sample[name], alone[name]) for name in FIELDS)
    assert torch.equal(batch[-1]["text"], batch[8]["text"])
    with pytest.raises(IndexError):
        batch[9]


def test_a_transform_sees_the_batch_in_stored_types_and_others_may_collate_it(folder):
    def transform(batch: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        assert batch["tokens"].dtype == torch.uint16
        return {"input_ids": batch["tokens"].long()}

    batch = ShardDataset(folder, transform=transform).__getitems__(range(5))
    stacked = collate(list(batch))["input_ids"]
    assert torch.equal(stacked, collate(batch)["input_ids"])
    assert torch.equal(stacked, torch.utils.data.default_collate(list(batch))["input_ids"])


def test_a_loader_of_torch_as_it_comes_takes_batches_as_they_were_read(folder):
    """No collate_fn: ``default_collate`` finds ours by the samples' type, also of ragged ones."""
    train, data = ShardDataset(folder, seed=SEED, samples=160), Dataset(folder)
    order = make_order(data, "uniform", SEED)
    positions = np.arange(160).reshape(-1, 8)
    for batch, expected in zip(DataLoader(train, 8, drop_last=True), positions, strict=True):
        read = data.read(order.indices_at(expected))
        assert batch.keys() == read.keys()
        assert all(np.array_equal(batch[name], read[name]) for name in read)


REQUESTS = st.lists(
    st.tuples(st.integers(0, 60), st.integers(1, 3), st.integers(1, 4), st.integers(1, 5)),
    min_size=1,
    max_size=6,
)


@given(st.sampled_from(["uniform", "windowed", None]), REQUESTS)
def test_what_is_read_ahead_is_what_is_asked_for_in_whatever_pattern(folder, shuffle, requests):
    """A request: so many batches from a position on, of so many samples, so far apart."""
    options = {"seed": SEED, "shuffle": shuffle, "window_samples": 20}
    train, alone = (ShardDataset(folder, **options) for _ in range(2))
    for begin, stride, size, count in requests:
        for number in range(count):
            start = begin + number * size * stride
            items = [n for n in range(start, start + size * stride, stride) if n < SAMPLES]
            if not items:
                continue
            found = train.__getitems__(items).tensors
            expected = [alone[item] for item in items]
            assert found["weight"].tolist() == [float(one["weight"]) for one in expected]
            texts = zip(found["text_offsets"][:-1], found["text_offsets"][1:], strict=True)
            for (start_, stop), one in zip(texts, expected, strict=True):
                assert torch.equal(found["text"][start_:stop], one["text"])


@pytest.mark.parametrize(("rank", "world", "shuffle"), [(0, 1, "uniform"), (1, 3, None)])
def test_batches_that_follow_each_other_are_read_several_at_once(folder, rank, world, shuffle):
    train = ShardDataset(folder, shuffle=shuffle, samples=96)
    sizes, read = [], train.data.read
    train.data.read = lambda indices: sizes.append(len(indices)) or read(indices)
    given = [b["weight"] for b in train.loader(2, rank=rank, world=world)]
    assert sum(map(len, given)) == 96 // world
    assert sum(sizes) == 96 // world, "something was read that nobody asked for"
    assert len(sizes) <= 7  # 1, 2, 4, 8 … batches


def test_a_batch_that_a_loop_changes_does_not_change_the_next(folder):
    train, other = (ShardDataset(folder, seed=SEED, samples=48) for _ in range(2))
    for batch, expected in zip(train.loader(4), other.loader(4), strict=True):
        assert torch.equal(batch["weight"], expected["weight"])
        for tensor in batch.values():
            tensor.zero_()


def test_a_copy_in_another_process_opens_the_shards_itself(folder):
    train = ShardDataset(folder, seed=SEED)
    train.load_state_dict({"position": 5})
    copy = pickle.loads(pickle.dumps(train))
    assert copy.data is not train.data
    assert np.array_equal(copy[0]["tokens"], train[0]["tokens"])


def test_what_travels_with_a_script_reads_the_shards_without_the_rest(folder, tmp_path, run_python):
    for name, path in shipped_files.iter_room_files(CHECKOUT, shipped_files.READER):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(path.read_bytes())
    code = f"from training.data.torch_dataset import *; print(len(ShardDataset({str(folder)!r})))"
    done = run_python("-c", code, cwd=tmp_path)
    assert done.stdout.split() == [str(SAMPLES)], done.stderr
