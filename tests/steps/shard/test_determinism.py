"""The dataset depends on the input and the settings: not on instances, processes or order."""

import random
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steps.shard import job
from steps.shard.plan import SPLITS
from tests.steps.shard.conftest import ARGUMENTS, container, five_objects
from training.data.dataset import Dataset

FILES = five_objects()


def dataset(folder: Path, parts: Sequence[Sequence[str]], *arguments: str) -> dict:
    """The union of what instances make of their parts: split → (fingerprint, all samples)."""
    hosts = [f"algo-{number + 1}" for number in range(len(parts))]
    for host, part in zip(hosts, parts, strict=True):
        root = container(folder / host, {name: FILES[name] for name in part}, host, hosts)
        job.main([*ARGUMENTS, *arguments, "--root", str(root)])
        for split in SPLITS:
            source = root / "processing/output" / split
            shutil.copytree(source, folder / split, dirs_exist_ok=True)
    found = {}
    for split in SPLITS:
        one = Dataset(folder / split)
        found[split] = one.fingerprint, one.read(np.arange(len(one)))["tokens"].tobytes()
    return found


@pytest.fixture(scope="module")
def expected(tmp_path_factory) -> dict:
    return dataset(tmp_path_factory.mktemp("expected"), [sorted(FILES)])


@settings(max_examples=12)
@given(owners=st.tuples(*[st.integers(0, 3)] * 5), order=st.permutations(sorted(FILES)))
def test_any_partition_over_instances_gives_the_same_dataset(expected, owners, order):
    instances = max(owners) + 1
    parts = [[name for name, owner in zip(order, owners, strict=True) if owner == number]
             for number in range(instances)]  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        assert dataset(Path(folder), parts) == expected


@pytest.mark.parametrize(("instances", "processes"), [(1, 3), (2, 2), (4, 1)])
def test_instances_and_processes_give_the_same_dataset(tmp_path, expected, instances, processes):
    names = sorted(FILES)
    parts = [names[number::instances] for number in range(instances)]
    assert dataset(tmp_path, parts, "--processes", str(processes)) == expected


def test_the_order_of_listing_does_not_matter(tmp_path, expected, monkeypatch):
    listed = Path.iterdir

    def shuffled(folder: Path) -> Iterator[Path]:
        paths = list(listed(folder))
        random.Random(7).shuffle(paths)
        return iter(paths)

    monkeypatch.setattr(Path, "iterdir", shuffled)
    assert dataset(tmp_path, [sorted(FILES, reverse=True)]) == expected


def test_an_object_under_two_names_is_read_once(tmp_path, expected, monkeypatch):
    monkeypatch.setitem(FILES, "z/copy of a.jsonl", FILES["a.jsonl"])
    assert dataset(tmp_path, [sorted(FILES)]) == expected
