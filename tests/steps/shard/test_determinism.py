"""The dataset depends on the distinct records and the settings, not on how they lie in files, on
instances, processes or order.
"""

import json
import random
import re
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steps.shard import read_object, survey_pass
from steps.shard.shard_plan import SPLITS
from tests.steps.shard.conftest import (
    RECORDS,
    as_csv,
    as_parquet,
    container,
    five_objects,
    lines,
    names,
    run_all,
)
from training.data.dataset import Dataset

pytestmark = pytest.mark.long

WRITERS = {"jsonl": lines, "csv": as_csv, "parquet": as_parquet}


def dataset(folder: Path, files: Mapping[str, bytes], *arguments: str, instances: int = 1) -> dict:
    """Shard files on instances that share a folder; return split → (fingerprint, all samples)."""
    hosts = names(instances)
    source = container(folder / "raw", files, "", []) / "processing/input/raw"
    places = ["--input", str(source), "--output", str(folder / "out")]
    run_all([container(folder / host, {}, host, hosts) for host in hosts], *arguments, *places)
    found = {}
    for split in SPLITS:
        one = Dataset(folder / "out" / split)
        found[split] = one.fingerprint, one.read(np.arange(len(one)))["tokens"].tobytes()
    return found


@pytest.fixture(scope="module")
def expected(tmp_path_factory) -> dict:
    return dataset(tmp_path_factory.mktemp("expected"), five_objects())


@settings(max_examples=12)
@given(data=st.data())
def test_any_arrangement_of_records_with_repetitions_gives_the_same_dataset(expected, data):
    """Distribute records over files of any number and kind, in any folders and order, some
    repeatedly.
    """
    again = data.draw(st.lists(st.sampled_from(RECORDS), max_size=60))
    source = random.Random(data.draw(st.integers(0, 10**6)))
    records = [*RECORDS, *again]
    source.shuffle(records)
    count = data.draw(st.integers(1, 6))
    parts = [[r for r in records if source.random() < 0.3] for _ in range(count - 1)] + [records]
    kinds = [source.choice(sorted(WRITERS)) for _ in parts]
    names = [f"{source.choice(['', 'x/', 'y/z/'])}{n}.{kind}" for n, kind in enumerate(kinds)]
    files = {name: WRITERS[kind](part or [records[0]])
             for name, kind, part in zip(names, kinds, parts, strict=True)}  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        instances = data.draw(st.integers(1, 3))
        assert dataset(Path(folder), files, instances=instances) == expected


def test_of_equal_texts_with_other_keys_always_the_same_stays(tmp_path):
    """So the split, which depends on the key, does not depend on the order of the records."""
    first = [{"key": f"a-{n}", "text": f"text {n}"} for n in range(100)]
    second = [{"key": f"b-{n}", "text": f"text {n}"} for n in range(100)]
    there = dataset(tmp_path / "there", {"1.jsonl": lines(first), "2.jsonl": lines(second)})
    back = dataset(tmp_path / "back", {"1.jsonl": lines(second[::-1] + first)})
    assert there == back


def test_processes_sizes_and_the_order_of_listing_change_nothing(tmp_path, monkeypatch, expected):
    assert dataset(tmp_path / "2", five_objects(), "--processes", "3") == expected
    monkeypatch.setattr(read_object, "RUN_BYTES", 700)
    monkeypatch.setattr(survey_pass, "ROWS", 7)
    monkeypatch.setattr("steps.shard.sorted_runs.MAPS", 2)
    listed = Path.iterdir

    def shuffle_listing(folder: Path) -> Iterator[Path]:
        paths = list(listed(folder))
        random.Random(7).shuffle(paths)
        return iter(paths)

    monkeypatch.setattr(Path, "iterdir", shuffle_listing)
    assert dataset(tmp_path / "1", dict(reversed(five_objects().items()))) == expected


def test_by_folder_no_sample_holds_text_of_two_folders(tmp_path):
    files = {"web/1.jsonl": lines(RECORDS[:100]), "books/1.jsonl": lines(RECORDS[80:])}
    found = dataset(tmp_path / "two", files, "--by_folder", instances=2)
    split_up = {"web/1.jsonl": lines(RECORDS[:50]), "web/2.csv": as_csv(RECORDS[50:100]),
                "books/b/1.jsonl": lines(RECORDS[80:][::-1])}  # fmt: skip
    assert dataset(tmp_path / "four", split_up, "--by_folder") == found
    numbers: dict[str, list[int]] = {"web": [], "books": []}
    for split in SPLITS:
        data, text = Dataset(tmp_path / "two/out" / split), {"web": "", "books": ""}
        for passage in data.stream(1):
            folder = data.get_source_name(int(passage.sources[0])).split("/")[0]
            tokens = passage.samples["tokens"][0][1:].tolist()
            text[folder] += "".join(map(chr, tokens))
        for folder, said in text.items():
            numbers[folder] += map(int, re.findall(r"number (\d+) of", said))
    assert max(numbers["web"]) < 100 and min(numbers["books"]) >= 80
    assert sorted(sum(numbers.values(), [])) == list(range(200))


def test_tiny_files_make_no_more_shards_than_one(tmp_path):
    files = {
        f"{n:04}.jsonl": lines([{"key": f"{n}", "text": f"file {n} " * 9}]) for n in range(300)
    }
    dataset(tmp_path / "many", files, "--shard_mb", "64")
    for split in SPLITS:
        one = Dataset(tmp_path / "many/out" / split)
        assert len(one.manifests.names) == 1
        tokens = one.read(np.arange(len(one)))["tokens"]
        padding = (tokens[:, :-1] == 256) & (tokens[:, 1:] == 256)
        assert padding.sum() < tokens.shape[1]  # less than one sample


@pytest.mark.parametrize(("change", "expected"), [
    (lambda raw, units: raw["records"].append(1), "raw.records: '6 values'"),
    (lambda raw, units: raw["records"].__setitem__(0, 7), "disagree about the raw objects"),
    (lambda raw, units: units.unlink(), "list . of . units"),
], ids=["length", "other data", "missing"])  # fmt: skip
def test_a_missing_instance_and_one_with_other_data_are_noticed(tmp_path, change, expected):
    from trainyard.common.errors import DataError

    dataset(tmp_path, five_objects(), instances=2)
    path = tmp_path / "out/train/manifest-algo-2.json"
    whole = json.loads(path.read_bytes())
    change(whole["raw"], path)
    if path.exists():
        path.write_text(json.dumps(whole))
    with pytest.raises(DataError, match=expected):
        Dataset(tmp_path / "out/train")
