"""Reading a whole dataset in the order in which it was packed, and dropping what was read."""

from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.training.trainings import write_dataset
from training.data.dataset import Dataset, Share
from training.data.manifest import Field

FIELDS = {"number": Field(dtype="int64")}


@settings(max_examples=15)  # every shard is an fsync
@given(counts=st.lists(st.integers(1, 90), min_size=1, max_size=3), size=st.integers(1, 60))
def test_raw_objects_come_by_name_and_their_samples_as_they_were_packed(counts, size):
    random = np.random.default_rng(0)  # shards lie in the order of their hashes, so shuffled
    packed = {f"b{n}": random.integers(0, 2**60, count) for n, count in enumerate(counts)}
    with TemporaryDirectory() as name:
        for host in reversed(packed):
            write_dataset(Path(name), {"number": packed[host]}, FIELDS, host=host, shard_bytes=80)
        dataset = Dataset(Path(name))
        passages = list(dataset.stream(size))
    assert {len(passage.sources) for passage in passages[:-1]} <= {size}
    numbers = np.concatenate([passage.samples["number"] for passage in passages])
    assert numbers.tolist() == np.concatenate([packed[host] for host in sorted(packed)]).tolist()
    names = [dataset.source_name(row) for p in passages for row in p.sources.tolist()]
    assert names == [f"{host}.jsonl" for host in sorted(packed) for _ in packed[host]]


@settings(max_examples=15)  # every shard is an fsync
@given(samples=st.integers(1, 90), size=st.integers(1, 40), count=st.integers(1, 5))
def test_the_passages_of_shares_are_those_of_the_whole(samples, size, count):
    def told(passages):
        return [
            (p.samples["number"].tolist(), p.sources.tolist(), p.start, p.before, p.is_past_share)
            for p in passages
        ]

    with TemporaryDirectory() as name:
        for host, numbers in (("a", np.arange(7)), ("b", np.arange(samples))):
            write_dataset(Path(name), {"number": numbers}, FIELDS, host=host, shard_bytes=80)
        dataset = Dataset(Path(name))
        whole = told(dataset.stream(size))
        shares = [Share(index, count) for index in range(count)]
        parts = [told(dataset.stream(size, share)) for share in shares]
        further = told(dataset.stream(size, shares[0], past_share=True))
    assert [passage for part in parts for passage in part] == whole
    assert max(map(len, parts)) - min(map(len, parts)) <= 1
    assert [passage[:4] for passage in further] == [passage[:4] for passage in whole]
    assert [passage[4] for passage in further] == [n >= len(parts[0]) for n in range(len(whole))]


def test_shards_beyond_the_hundred_thousandth_keep_their_order(tmp_path: Path):
    """Their numbers have one digit more."""
    write_dataset(tmp_path, {"number": np.arange(30)}, FIELDS, shard_bytes=80)
    [manifest] = tmp_path.glob("manifest-*.json")
    text = manifest.read_text()
    for number, new in ((0, "99998"), (1, "99999"), (2, "100000")):
        text = text.replace(f"-0000{number}.npy", f"-{new}.npy")
        (tmp_path / f"algo-1-0000{number}.npy").rename(tmp_path / f"algo-1-{new}.npy")
    manifest.write_text(text)
    found = [n for passage in Dataset(tmp_path).stream(7) for n in passage.samples["number"]]
    assert found == list(range(30))


def test_what_was_read_is_unmapped(tmp_path: Path):
    write_dataset(tmp_path, {"number": np.arange(3000)}, FIELDS, shard_bytes=2400)
    mapped = [
        sum(f"{tmp_path}/" in line for line in Path("/proc/self/maps").read_text().splitlines())
        for _ in Dataset(tmp_path).stream(100)
    ]
    assert len(mapped) == 30 and max(mapped) <= 3
