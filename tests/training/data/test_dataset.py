"""Shards: what is written is read back, streamed and hashed; what is damaged is named."""

import re
import shutil
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.conftest import CHECKOUT
from tests.training.trainings import read_manifests, write_dataset
from training.data.dataset import Dataset, Share, gather_rows
from training.data.manifest import Field, Shards
from training.data.shard_writer import ShardWriter, hash_samples, list_variable_fields
from trainyard.common.errors import DataError

pytestmark = pytest.mark.long

FIELDS = {
    "tokens": Field(dtype="uint16", shape=(3,)),
    "weight": Field(dtype="float32"),
    "text": Field(dtype="uint8", shape=None),
}
TOKENS = {"tokens": FIELDS["tokens"]}
NUMBER = {"number": Field(dtype="int64")}


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
    for name in list_variable_fields(fields):
        widths = np.concatenate([np.diff(samples[f"{name}_offsets"]) for samples in parts])
        out[f"{name}_offsets"] = np.concatenate(([0], np.cumsum(widths)))
    return out


@given(
    pieces=st.lists(st.integers(0, 20), min_size=1, max_size=4),  # every shard is an fsync
    shard_bytes=st.integers(1, 400),
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
        tokens, texts = [], []
        for file in shards.file:
            shard = np.load(Path(name) / file)
            values = np.load(Path(name) / f"{file.removesuffix('.npy')}.text.npy")
            tokens += shard["tokens"].tolist()
            texts += [values[start:stop].tobytes() for start, stop in shard["text"]]
        assert tokens == together["tokens"].tolist()
        assert texts == [text for _, _, text in rows(together)]
    if not sum(pieces):
        return
    with TemporaryDirectory() as name:
        write_dataset(Path(name), together, FIELDS, shard_bytes=shard_bytes)
        dataset = Dataset(Path(name))
        dataset.check_files()
        everything = join(list(dataset.iter_batches(size)), FIELDS)
        assert sorted(rows(everything)) == sorted(rows(together))
        order = np.random.default_rng(size).integers(0, len(dataset), 20)
        assert rows(dataset.read(order)) == [rows(everything)[index] for index in order]


def test_the_lines_of_numpy_in_the_docs_read_what_a_dataset_reads(tmp_path, monkeypatch):
    document = (CHECKOUT / "docs/shards.md").read_text(encoding="utf-8")
    [code] = re.findall(r"```python\n(.*?)```", document, re.DOTALL)
    for seed, host in enumerate(("algo-1", "algo-2")):
        samples = {"tokens": make(40, seed)["tokens"]}
        write_dataset(tmp_path / "train", samples, TOKENS, host=host, shard_bytes=60)
    # As a run leaves it that was done again with other instances on a shared folder.
    shutil.copy(tmp_path / "train/manifest-algo-2.json", tmp_path / "train/manifest-algo-3.json")
    monkeypatch.chdir(tmp_path)
    found: dict = {}
    exec(code, found)
    dataset = Dataset(tmp_path / "train")
    assert len(dataset.manifests.files) > 4 and found["files"] == dataset.manifests.files.tolist()
    assert (found["tokens"] == dataset.read(range(len(dataset)))["tokens"]).all()


@pytest.mark.parametrize(("change", "expected"), [
    ({"tokens": np.zeros((2, 4), np.uint16)}, "tokens: samples of shape"),
    ({"tokens": np.zeros((2, 3), np.float32)}, "float32 cannot be converted to uint16"),
    ({"tokens": np.zeros((2, 3), np.int8)}, "int8 cannot be converted to uint16"),
    ({"weight": np.zeros(3, np.float32)}, "different numbers of samples"),
    ({"text": np.zeros(1, np.uint8)}, "the offsets do not fit the values"),
    ({"text": np.zeros((12, 1), np.uint8)}, "the offsets do not fit the values"),
    ({"text_offsets": np.array([1, 7, 12])}, "the offsets do not fit the values"),
])  # fmt: skip
def test_samples_that_are_not_of_the_declared_fields_are_refused(tmp_path, change, expected):
    samples = make(2)
    assert len(samples["text"]) == 12
    with pytest.raises(ValueError, match=expected):
        ShardWriter(tmp_path, "unit", FIELDS, 1000).add(samples | change)


@pytest.mark.parametrize(("given", "declared", "shape"), [
    ("int64", "int16", ()), ("uint64", "int64", (2,)), ("uint8", "int8", None),
    ("uint32", "uint16", (2,)), ("float64", "float32", ()), ("float32", "float16", None),
    ("int64", "float16", (2,)),
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


def test_an_error_of_the_disk_reaches_the_writer(tmp_path):
    writer = ShardWriter(tmp_path / "folder", "unit", FIELDS, 100)
    (tmp_path / "folder").rmdir()
    with pytest.raises(FileNotFoundError):
        writer.add(make(100))
        writer.close()


def test_an_empty_manifest_and_shards_that_no_manifest_names_add_nothing(tmp_path: Path):
    """An instance without records writes the one; a job killed before its manifest the other."""
    np.save(tmp_path / "algo-3-00000.npy", np.zeros(3))
    with pytest.raises(DataError, match="holds no manifest"):
        Dataset(tmp_path)
    write_dataset(tmp_path, make(0), FIELDS, host="algo-2")
    with pytest.raises(DataError, match="0 samples; the raw data contains too little"):
        Dataset(tmp_path)
    write_dataset(tmp_path, make(5), FIELDS)
    assert len(Dataset(tmp_path)) == 5


@pytest.mark.parametrize(("damage", "expected"), [
    (lambda f: (f / "algo-1-00001.text.npy").unlink(), "algo-1-00001.text.npy: .* missing"),
    (lambda f: (f / "algo-1-00001.npy").write_bytes(b"\1"), "has 1 bytes, its manifest says"),
    (lambda f: (f / "manifest-algo-1.json").write_bytes(b"{"), "manifest-algo-1.json: file"),
])  # fmt: skip
def test_damage_is_named_before_a_shard_is_read(tmp_path: Path, damage, expected: str):
    manifest = write_dataset(tmp_path, make(50), FIELDS)
    assert len(manifest.shards) == 4
    damage(tmp_path)
    with pytest.raises(DataError, match=expected):
        Dataset(tmp_path).check_files()


def test_a_manifest_reads_back_in_the_order_of_the_shards_hashes(tmp_path: Path):
    def table(shards: Shards) -> list[tuple]:
        tables = [shards, *shards.values.values()]
        columns = [column for each in tables for column in (each.sha256, each.bytes)]
        return list(zip(*columns, shards.file, shards.samples, shards.source, strict=True))

    written = write_dataset(tmp_path, make(50), FIELDS)
    [(name, manifest)] = read_manifests(tmp_path).items()
    assert name == "manifest-algo-1.json"
    assert manifest.model_dump(exclude={"shards"}) == written.model_dump(exclude={"shards"})
    assert manifest.samples == written.samples == 50
    assert table(manifest.shards) == sorted(table(written.shards))


ROW = np.dtype([("number", "<i8"), ("letters", "u1", (3,))])  # 11 bytes: nothing is aligned
pieces = st.tuples(st.integers(0, 5), st.integers(0, 99), st.integers(1, 30))  # table, row, rows


@given(st.lists(pieces, max_size=30))
def test_rows_come_in_the_order_of_their_addresses(chosen):
    tables = []
    for number in range(6):
        tables.append(np.zeros(130, ROW))
        tables[-1]["number"] = 100 * number + np.arange(130)
        tables[-1]["letters"] = tables[-1]["number"][:, None] % 251
    runs = [tables[number][row : row + count] for number, row, count in chosen]
    addresses = [run.ctypes.data + np.arange(len(run)) * ROW.itemsize for run in runs]
    found = gather_rows(np.concatenate([*addresses, np.empty(0, np.int64)]), ROW)
    assert found.dtype == ROW
    expected = np.concatenate([*runs, np.empty(0, ROW)])
    assert found.tobytes() == expected.tobytes()
    for run in runs:
        run["number"] = -1  # what was gathered is a copy
    assert found.tobytes() == expected.tobytes()


@settings(max_examples=10)  # every shard is an fsync
@given(counts=st.lists(st.integers(1, 90), min_size=1, max_size=3), size=st.integers(1, 60))
def test_raw_objects_come_by_name_and_their_samples_as_they_were_packed(counts, size):
    random = np.random.default_rng(0)  # shards lie in the order of their hashes, so shuffled
    packed = {f"b{n}": random.integers(0, 2**60, count) for n, count in enumerate(counts)}
    with TemporaryDirectory() as name:
        for host in reversed(packed):
            write_dataset(Path(name), {"number": packed[host]}, NUMBER, host=host, shard_bytes=160)
        dataset = Dataset(Path(name))
        passages = list(dataset.stream(size))
    assert {len(passage.sources) for passage in passages[:-1]} <= {size}
    numbers = np.concatenate([passage.samples["number"] for passage in passages])
    assert numbers.tolist() == np.concatenate([packed[host] for host in sorted(packed)]).tolist()
    names = [dataset.get_source_name(row) for p in passages for row in p.sources.tolist()]
    assert names == [f"{host}.jsonl" for host in sorted(packed) for _ in packed[host]]


@settings(max_examples=10)  # every shard is an fsync
@given(samples=st.integers(1, 90), size=st.integers(1, 40), count=st.integers(1, 5))
def test_the_passages_of_shares_are_those_of_the_whole(samples, size, count):
    def summarize_passages(passages):
        return [
            (p.samples["number"].tolist(), p.sources.tolist(), p.start, p.before, p.is_past_share)
            for p in passages
        ]

    with TemporaryDirectory() as name:
        for host, numbers in (("a", np.arange(7)), ("b", np.arange(samples))):
            write_dataset(Path(name), {"number": numbers}, NUMBER, host=host, shard_bytes=160)
        dataset = Dataset(Path(name))
        whole = summarize_passages(dataset.stream(size))
        shares = [Share(index, count) for index in range(count)]
        parts = [summarize_passages(dataset.stream(size, share)) for share in shares]
        further = summarize_passages(dataset.stream(size, shares[0], past_share=True))
    assert [passage for part in parts for passage in part] == whole
    assert max(map(len, parts)) - min(map(len, parts)) <= 1
    assert [passage[:4] for passage in further] == [passage[:4] for passage in whole]
    assert [passage[4] for passage in further] == [n >= len(parts[0]) for n in range(len(whole))]


def test_a_stream_keeps_the_order_beyond_the_hundred_thousandth_shard(tmp_path: Path):
    """Their numbers have one digit more."""
    write_dataset(tmp_path, {"number": np.arange(30)}, NUMBER, shard_bytes=80)
    [manifest] = tmp_path.glob("manifest-*.json")
    text = manifest.read_text()
    for number, new in ((0, "99998"), (1, "99999"), (2, "100000")):
        text = text.replace(f"-0000{number}.npy", f"-{new}.npy")
        (tmp_path / f"algo-1-0000{number}.npy").rename(tmp_path / f"algo-1-{new}.npy")
    manifest.write_text(text)
    found = [n for passage in Dataset(tmp_path).stream(7) for n in passage.samples["number"]]
    assert found == list(range(30))


def test_what_a_stream_has_read_is_unmapped(tmp_path: Path):
    write_dataset(tmp_path, {"number": np.arange(3000)}, NUMBER, shard_bytes=2400)
    maps = Path("/proc/self/maps")
    mapped = [maps.read_text().count(f"{tmp_path}/") for _ in Dataset(tmp_path).stream(100)]
    assert len(mapped) == 30 and max(mapped) <= 3


floats = st.floats(width=32)
example = st.tuples(
    st.integers(0, 255), st.tuples(floats, floats, floats), st.tuples(*[st.integers(-9, 9)] * 2)
)
HASHED = {
    "flag": Field(dtype="uint8"),
    "numbers": Field(dtype="float32", shape=(3,)),
    "code": Field(dtype="int64", shape=(2,)),
}


def make_columns(rows: list[tuple]) -> dict[str, np.ndarray]:
    return {
        name: np.array([r[place] for r in rows], field.dtype).reshape(len(rows), *field.shape)
        for place, (name, field) in enumerate(HASHED.items())
    }


@given(st.lists(example, min_size=1, max_size=20), st.integers(0, 20))
def test_equal_bytes_and_only_those_have_equal_ids_wherever_they_stand(rows, cut):
    samples = make_columns(rows)
    found = hash_samples(samples, HASHED)
    content = [b"".join(samples[name][n].tobytes() for name in HASHED) for n in range(len(rows))]
    for one, name in zip(content, found.tolist(), strict=True):
        assert [c == one for c in content] == [n == name for n in found.tolist()]
    if part := rows[cut:]:
        assert hash_samples(make_columns(part), HASHED).tolist() == found[cut:].tolist()


def test_an_id_is_the_same_on_every_machine_and_in_every_release_and_many_are_different():
    """Otherwise scores of different releases could not be compared."""
    samples = make_columns([(1, (0.5, -2.0, float("nan")), (3, -4))])
    assert hash_samples(samples, HASHED).tolist() == [-3388558823952236829]
    many = {"number": np.arange(100_000, dtype=np.int64)}
    assert len(np.unique(hash_samples(many, NUMBER))) == 100_000
