"""The shard job: records to splits, and what happens to bad ones."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from steps.shard import job
from steps.shard.job import SPLITS, split_of
from training.data.dataset import Dataset
from training.data.manifest import fingerprint, read_manifests

SETTINGS = {"context_length": 8, "layers": 1, "heads": 1, "dim": 8}
RECORDS = [{"key": f"file-{n}.py", "text": f"text number {n} of them\n"} for n in range(200)]


def lines(records) -> bytes:
    return "".join(json.dumps(record) + "\n" for record in records).encode()


@pytest.fixture
def shard(tmp_path: Path) -> Callable[..., Path]:
    """Run one instance of the job over files given as name → content; its container's root."""

    def run(files: dict[str, bytes], *arguments: str, host: str = "algo-1", hosts: int = 1) -> Path:
        root = tmp_path / f"{host}-of-{hosts}"
        raw = root / "processing/input/raw"
        raw.mkdir(parents=True)
        (root / "config").mkdir()
        cluster = {"current_host": host, "hosts": [f"algo-{n + 1}" for n in range(hosts)]}
        (root / "config/resourceconfig.json").write_text(json.dumps(cluster))
        for name, content in files.items():
            (raw / name).parent.mkdir(parents=True, exist_ok=True)
            (raw / name).write_bytes(content)
        shares = ["--validation_share", "0.2", "--test_share", "0.2", "--samples_per_shard", "50"]
        name = ["--workload", "language_model", "--workload_config", json.dumps(SETTINGS)]
        job.main([*name, *shares, *arguments, "--root", str(root)])
        return root

    return run


def texts(folder: Path) -> list[str]:
    """The documents of a split, in the order in which they were packed."""
    [(_, manifest)] = read_manifests(folder)
    shards = [np.fromfile(folder / s.file, "<u2").reshape(-1, 9) for s in manifest.shards]
    samples = np.concatenate(shards)
    stream = [samples[0, 0], *samples[:, 1:].ravel()]
    text = bytes(t if t < 256 else 0 for t in stream).decode()
    return [document for document in text.split("\0") if document]


def failure(shard, capsys, files, *arguments, **options) -> str:
    with pytest.raises(SystemExit) as end:
        shard(files, *arguments, **options)
    assert end.value.code == 1
    printed = capsys.readouterr().out
    assert printed.rstrip().splitlines()[-1].startswith("error: ")
    return printed.rpartition("error: ")[2].strip()


@given(key=st.text(), a=st.floats(0, 0.49), b=st.floats(0, 0.49))
def test_the_split_follows_from_the_key_alone(key, a, b):
    try:
        key.encode()
    except UnicodeEncodeError:
        return
    assert split_of(key, a, b) == split_of(key, a, b) in SPLITS
    assert split_of(key, 0, 0) == "train"
    # a larger test share takes from the others and never gives back
    if split_of(key, a, b) == "test":
        assert split_of(key, a, b + 0.5) == "test"


def test_the_shares_are_kept():
    keys = [split_of(f"key {n}", 0.1, 0.3) for n in range(20_000)]
    shares = {split: keys.count(split) / len(keys) for split in SPLITS}
    assert shares == pytest.approx({"train": 0.6, "validation": 0.1, "test": 0.3}, abs=0.01)


def test_every_record_is_in_the_split_of_its_key_and_in_no_other(shard):
    root = shard(
        {"a.jsonl": lines(RECORDS[:90]), "sub/b.jsonl.gz": gzip.compress(lines(RECORDS[90:]))}
    )
    for split in SPLITS:
        expected = [r["text"] for r in RECORDS if split_of(r["key"], 0.2, 0.2) == split]
        assert texts(root / "processing/output" / split) == expected
        [(_, manifest)] = read_manifests(root / "processing/output" / split)
        assert manifest.records == len(expected) > 10
        assert manifest.quarantined == 0


def test_the_same_input_gives_the_same_bytes(shard):
    files = {"a.jsonl": lines(RECORDS)}
    one, other = shard(files), shard(files, hosts=2)
    for path in (one / "processing/output").rglob("*"):
        if path.is_file():
            twin = other / path.relative_to(one)
            assert path.read_bytes() == twin.read_bytes()


def test_instances_fill_one_prefix(shard, tmp_path):
    roots = [
        shard({"a.jsonl": lines(RECORDS[:100])}, host="algo-1", hosts=3),
        shard({"b.jsonl": lines(RECORDS[100:])}, host="algo-2", hosts=3),
        shard({}, host="algo-3", hosts=3),
    ]
    (tmp_path / "train").mkdir()
    for root in roots:
        for file in (root / "processing/output/train").iterdir():
            assert not (tmp_path / "train" / file.name).exists()
            file.rename(tmp_path / "train" / file.name)
    together = Dataset(tmp_path / "train")
    assert len(together.manifests) == 3
    assert together.fingerprint == fingerprint(reversed(together.manifests))


def test_bad_records_are_quarantined_up_to_one_in_a_thousand(shard, capsys):
    many = lines(RECORDS * 10)  # 2,000 good ones
    root = shard({"a.jsonl": many + b"{not json\n" + b"\n  \n" + lines([{"key": 3, "text": ""}])})
    [(_, manifest)] = read_manifests(root / "processing/output/train")
    assert manifest.quarantined == 2  # and a blank line is nothing
    assert "Traceback" not in capsys.readouterr().out


@pytest.mark.parametrize(
    "bad",
    [
        b"{not json\n", b"[1]\n", b'"text"\n', b"\xff\xfe\n", b'{"text": "no key"}\n',
        b'{"key": 1, "text": "x"}\n', b'{"key": "k"}\n', b'{"key": "k", "text": 7}\n',
        b'{"key": "k", "text": "\\ud800"}\n',
        b'{"key": "\\udfff", "text": "x"}\n', b"[" * 100_000 + b"\n",
    ],
)  # fmt: skip
def test_too_many_bad_records_end_the_job_and_name_the_first(shard, capsys, bad):
    message = failure(shard, capsys, {"a.jsonl": lines(RECORDS[:2]) + bad + lines(RECORDS[2:])})
    assert message.startswith("1 of 201 records are bad, more than 0.1%; the first: a.jsonl line 3")


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, "0 files in the raw input; upload data under data.input"),
        ({"a.csv": b"x,y\n"}, "a.csv: is neither .jsonl nor .jsonl.gz"),
        ({"a.jsonl.gz": b"plain text"}, "a.jsonl.gz: is a damaged gzip file"),
        ({"a.jsonl.gz": gzip.compress(lines(RECORDS))[:-20]}, "a.jsonl.gz: is a damaged gzip file"),
    ],
)
def test_bad_input_ends_the_job_with_one_message(shard, capsys, tmp_path, files, expected):
    assert expected in failure(shard, capsys, files)
    assert expected in (tmp_path / "algo-1-of-1/output/message").read_text()
    assert not list(tmp_path.rglob("manifest-*.json"))


def test_wrong_workload_settings_are_named(shard, capsys):
    files = {"a.jsonl": lines(RECORDS)}
    assert "is no JSON" in failure(shard, capsys, files, "--workload_config", "{")
    assert "workload_config.layers: is 0" in failure(
        shard, capsys, files, "--workload_config", '{"layers": 0}', host="algo-2"
    )
