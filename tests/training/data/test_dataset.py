"""Shards: what is written is read back; what is damaged is named."""

import json
import re
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.conftest import CHECKOUT
from tests.training.trainings import read_manifests, write_dataset
from training.data.dataset import Dataset
from training.data.manifest import Field, Shards
from training.data.shard_writer import ShardWriter, part, variable
from trainyard.common.errors import DataError

pytestmark = pytest.mark.long

FIELDS = {
    "tokens": Field(dtype="uint16", shape=(3,)),
    "weight": Field(dtype="float32"),
    "text": Field(dtype="uint8", shape=None),
}
TOKENS = {"tokens": FIELDS["tokens"]}


def make(count: int, seed: int = 0) -> dict[str, np.ndarray]:
    """Return ``count`` samples of FIELDS that are all different."""
    random = np.random.default_rng(seed)
    widths = random.integers(0, 9, count)
    return {
        "tokens": random.integers(0, 2**16, (count, 3)).astype(np.uint16),
        "weight": random.random(count).astype(np.float32),
        "text": random.integers(0, 256, widths.sum()).astype(np.uint8),
        "text_offsets": np.concatenate(([0], np.cumsum(widths))),
    }


def rows(samples) -> list[tuple]:
    """Return a hashable value for each sample."""
    offsets = samples["text_offsets"]
    texts = [samples["text"][a:b].tobytes() for a, b in zip(offsets, offsets[1:], strict=False)]
    return list(zip(map(bytes, samples["tokens"]), samples["weight"].tolist(), texts, strict=True))


def join(parts, fields):
    """Join the samples of all parts."""
    if len(parts) == 1:
        return parts[0]
    out = {name: np.concatenate([samples[name] for samples in parts]) for name in fields}
    for name in variable(fields):
        widths = np.concatenate([np.diff(samples[f"{name}_offsets"]) for samples in parts])
        out[f"{name}_offsets"] = np.concatenate(([0], np.cumsum(widths)))
    return out


@settings(max_examples=25)  # every shard is an fsync
@given(
    pieces=st.lists(st.integers(0, 30), min_size=1, max_size=6),
    shard_bytes=st.integers(1, 600),
    size=st.integers(1, 40),
)
def test_what_is_written_is_read_back_in_shards_of_even_size(pieces, shard_bytes, size):
    samples = [make(count, seed) for seed, count in enumerate(pieces)]
    together = join(samples, FIELDS)
    with TemporaryDirectory() as name:
        writer = ShardWriter(Path(name), "unit", FIELDS, shard_bytes)
        for piece in samples:
            writer.add(piece)
        shards = writer.close()
        assert sum(shards.samples) == writer.samples == sum(pieces)
        largest = 10 + 16 + 8  # bytes of a sample: its row and its text
        table = np.array([shards.bytes, shards.values["text"].bytes])
        content = np.maximum(0, table.sum(axis=0) - 128 - 192)  # the two files' headers
        assert all(content <= shard_bytes + largest + 64)
        if len(shards) > 1:
            assert all(content >= shard_bytes / 2 - largest - 64)
        in_order = [np.load(Path(name) / file) for file in shards.file]
        written = np.concatenate([shard["tokens"] for shard in in_order] or [together["tokens"]])
        assert (written == together["tokens"]).all()
        texts = [
            values[start:stop].tobytes()
            for file, shard in zip(shards.file, in_order, strict=True)
            for values in [np.load(Path(name) / f"{file.removesuffix('.npy')}.text.npy")]
            for start, stop in shard["text"]
        ]
        assert texts == [text for _, _, text in rows(together)]
    if not sum(pieces):
        return
    with TemporaryDirectory() as name:
        write_dataset(Path(name), together, FIELDS, shard_bytes=shard_bytes)
        dataset = Dataset(Path(name))
        dataset.check()
        everything = join(list(dataset.batches(size)), FIELDS)
        assert sorted(rows(everything)) == sorted(rows(together))
        order = np.random.default_rng(size).integers(0, len(dataset), 20)
        assert rows(dataset.read(order)) == [rows(everything)[index] for index in order]


@pytest.mark.parametrize("twice", [False, True], ids=["", "in two manifests"])
def test_the_lines_of_numpy_in_the_docs_read_what_a_dataset_reads(tmp_path, monkeypatch, twice):
    document = (CHECKOUT / "docs/shards.md").read_text(encoding="utf-8")
    [code] = re.findall(r"```python\n(.*?)```", document, re.DOTALL)
    fields = {"tokens": FIELDS["tokens"]}
    for host in ("algo-1", "algo-2"):
        samples = {"tokens": make(40, seed=len(host) + int(host[-1]))["tokens"]}
        write_dataset(tmp_path / "train", samples, fields, host=host, shard_bytes=60)
    if twice:  # as a run leaves it that was done again with other instances on a shared folder
        manifest = tmp_path / "train/manifest-algo-2.json"
        manifest.with_name("manifest-algo-3.json").write_bytes(manifest.read_bytes())
    monkeypatch.chdir(tmp_path)
    found: dict = {}
    exec(code, found)
    dataset = Dataset(tmp_path / "train")
    assert len(dataset.manifests.files) > 4 and found["files"] == dataset.manifests.files.tolist()
    assert (found["tokens"] == dataset.read(range(len(dataset)))["tokens"]).all()


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"tokens": np.zeros((2, 4), np.uint16)}, "tokens: samples of shape"),
        ({"tokens": np.zeros((2, 3), np.int64)}, "int64 does not go into uint16"),
        ({"weight": np.zeros(3, np.float32)}, "different numbers of samples"),
        ({"text": np.zeros(1, np.uint8)}, "the offsets do not fit the values"),
    ],
)
def test_samples_that_are_not_of_the_declared_fields_are_refused(tmp_path, change, expected):
    writer = ShardWriter(tmp_path, "unit", FIELDS, 1000)
    with pytest.raises(ValueError, match=expected):
        writer.add(part(make(2), FIELDS, 0, 2) | change)


@pytest.mark.parametrize("shape", [(), (2,), None], ids=["scalar", "array", "variable"])
@pytest.mark.parametrize(("given", "declared"), [
    ("int64", "int16"), ("int32", "int8"), ("int64", "int32"), ("uint64", "int64"),
    ("uint32", "uint16"), ("uint16", "uint8"), ("uint8", "int8"), ("float64", "float32"),
    ("float32", "float16"), ("int64", "float16"),
])  # fmt: skip
def test_a_value_out_of_range_is_named_with_its_shard_and_column(tmp_path, shape, given, declared):
    """The largest and the smallest number of the type are accepted, the next ones are not."""
    fields = {"id": Field(dtype="uint8"), "width": Field(dtype=declared, shape=shape)}
    info = (np.finfo if declared.startswith("f") else np.iinfo)(declared)
    least = max(int(info.min), int(np.iinfo(given).min) if given[0] in "iu" else int(info.min))
    fitting = np.array([least, int(info.max), 0, 1], given)
    beyond = np.array([np.array(2 * int(info.max), given), 0, 1, 0], given)

    def write(values: np.ndarray) -> Shards:
        writer = ShardWriter(tmp_path, "unit", fields, 10_000)
        flat = np.ascontiguousarray(values.reshape(-1, 2) if shape == (2,) else values)
        offsets = {} if shape is not None else {"width_offsets": np.arange(len(flat) + 1)}
        writer.add({"id": np.zeros(len(flat), np.uint8), "width": flat, **offsets})
        return writer.close()

    [file] = write(fitting).file
    kept = np.load(tmp_path / (file if shape is not None else "unit-00000.width.npy"))
    kept = (kept["width"] if shape is not None else kept).ravel()
    assert (kept == fitting.astype(declared)).all()
    named = f"unit-00000.npy: column 'width' holds {beyond[0].item()!r}, and {declared}"
    with pytest.raises(DataError, match=re.escape(named)):
        write(beyond)


@pytest.mark.parametrize(("given", "declared"), [
    ("float64", "int64"), ("float32", "uint8"), ("int64", "uint64"), ("int8", "uint8"),
    ("int64", "bool"), ("float32", "bool"),
])  # fmt: skip
def test_what_is_of_another_kind_is_refused_whatever_its_value(tmp_path, given, declared):
    writer = ShardWriter(tmp_path, "unit", {"x": Field(dtype=declared)}, 100)
    with pytest.raises(ValueError, match=f"x: {given} does not go into {declared}"):
        writer.add({"x": np.ones(2, given)})


def test_an_error_of_the_disk_reaches_the_writer(tmp_path):
    writer = ShardWriter(tmp_path / "folder", "unit", FIELDS, 100)
    (tmp_path / "folder").rmdir()
    with pytest.raises(FileNotFoundError):
        writer.add(make(100))
        writer.close()


def test_an_instance_without_records_adds_an_empty_manifest(tmp_path: Path):
    write_dataset(tmp_path, make(5), FIELDS)
    write_dataset(tmp_path, make(0), FIELDS, host="algo-2")
    assert len(Dataset(tmp_path)) == 5


def test_shards_that_no_manifest_names_are_not_read(tmp_path: Path):
    """A job that was killed before its manifest leaves such shards."""
    write_dataset(tmp_path, make(5), FIELDS)
    np.save(tmp_path / "algo-2-00000.npy", np.zeros(3))
    (tmp_path / ".algo-1-00002.npy.x.tmp").write_bytes(b"\1")
    assert len(Dataset(tmp_path)) == 5


def test_no_manifest_is_no_dataset(tmp_path: Path):
    np.save(tmp_path / "algo-2-00000.npy", np.zeros(3))
    with pytest.raises(DataError, match="holds no manifest"):
        Dataset(tmp_path)


def _edit(folder: Path, **fields) -> None:
    path = folder / "manifest-algo-1.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | fields))


@pytest.mark.parametrize(
    ("damage", "expected"),
    [
        (lambda f: (f / "algo-1-00001.npy").unlink(), "algo-1-00001.npy: .* missing"),
        (lambda f: (f / "algo-1-00001.npy").write_bytes(b"\1"), "has 1 bytes, its manifest says"),
        (lambda f: (f / "algo-1-00001.text.npy").unlink(), "algo-1-00001.text.npy: .* missing"),
        (lambda f: (f / "manifest-algo-1.json").write_bytes(b"{"), "manifest-algo-1.json: file"),
        (lambda f: _edit(f, format=1), "manifest-algo-1.json: format"),
        (lambda f: _edit(f, surprise=1), "surprise"),
        (lambda f: write_dataset(f, {"tokens": make(5)["tokens"]}, TOKENS, host="algo-2"),
         "disagree about what a sample"),
        (lambda f: write_dataset(f, make(5), FIELDS, host="algo-2", workload={"kind": "other"}),
         "disagree about what a sample"),
        (lambda f: write_dataset(f, make(5), FIELDS, host="algo-2", split="test"),
         "disagree about what a sample"),
    ],
)  # fmt: skip
def test_damage_is_named(tmp_path: Path, damage, expected: str):
    manifest = write_dataset(tmp_path, make(50), FIELDS)
    assert len(manifest.shards) == 4
    damage(tmp_path)
    with pytest.raises(DataError, match=expected):
        Dataset(tmp_path).check()


def test_a_manifest_reads_back(tmp_path: Path):
    written = write_dataset(tmp_path, make(5), FIELDS)
    [(name, manifest)] = read_manifests(tmp_path).items()
    assert name == "manifest-algo-1.json"
    assert manifest.model_dump(exclude={"shards"}) == written.model_dump(exclude={"shards"})
    assert manifest.samples == written.samples == 5
    assert _rows(manifest.shards) == sorted(_rows(written.shards))  # in the order of their hashes


def _rows(shards: Shards) -> list[tuple]:
    tables = [shards, *shards.values.values()]
    columns = [column for table in tables for column in (table.sha256, table.bytes)]
    return list(zip(*columns, shards.file, shards.samples, shards.source, strict=True))
