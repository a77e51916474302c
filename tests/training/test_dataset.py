"""Shards: what is written is read back; what is damaged is named."""

import json
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from errors import DataError
from training.data.dataset import Dataset
from training.data.manifest import Manifest, fingerprint, read_manifests
from training.data.writer import ShardWriter

INFO = {"kind": "test"}


def write(
    folder: Path, host: str, pieces, *, per_shard: int = 4, dtype="uint16", width=3, info=INFO
):
    writer = ShardWriter(folder, host, width=width, dtype=dtype, samples_per_shard=per_shard)
    for piece in pieces:
        writer.add(piece)
    return writer.close(quarantined=0, workload=info)


def rows(dataset: Dataset) -> list[tuple[int, ...]]:
    return [tuple(row) for row in dataset.read(np.arange(len(dataset))).tolist()]


pieces = st.lists(
    st.integers(0, 6).flatmap(
        lambda n: arrays(np.uint32, (n, 3), elements=st.integers(0, 2**16 - 1))
    ),
    max_size=3,
)


@settings(max_examples=25, deadline=None)  # every shard is an fsync
@given(
    per_host=st.lists(pieces, min_size=1, max_size=2),
    per_shard=st.integers(3, 7),
    dtype=st.sampled_from(["uint16", "uint32"]),
)
def test_every_sample_is_read_back_once_from_the_union_of_the_manifests(per_host, per_shard, dtype):
    with TemporaryDirectory() as name:
        folder = Path(name)
        for number, host_pieces in enumerate(per_host):
            write(folder, f"algo-{number}", host_pieces, per_shard=per_shard, dtype=dtype)
        written = sorted(
            tuple(row) for host in per_host for piece in host for row in piece.tolist()
        )
        if not written:
            with pytest.raises(DataError, match="0 samples"):
                Dataset(folder)
            return
        dataset = Dataset(folder)
        assert sorted(rows(dataset)) == written
        in_order = np.concatenate(list(dataset.batches(per_shard + 1)))
        assert [tuple(row) for row in in_order.tolist()] == rows(dataset)
        for _, manifest in read_manifests(folder):
            assert all(shard.samples == per_shard for shard in manifest.shards[:-1])


def test_five_lines_of_numpy_read_a_shard(tmp_path: Path):
    samples = np.arange(12, dtype=np.uint16).reshape(4, 3)
    write(tmp_path, "algo-1", [samples])
    manifest = json.loads((tmp_path / "manifest-algo-1.json").read_bytes())
    raw = np.fromfile(tmp_path / manifest["shards"][0]["file"], "<u2")
    assert (raw.reshape(-1, manifest["width"]) == samples).all()


def test_fingerprint_names_the_content_not_who_wrote_it(tmp_path: Path):
    one, other = np.full((4, 3), 1), np.full((4, 3), 2)
    first = [write(tmp_path / "a", "algo-1", [one]), write(tmp_path / "a", "algo-2", [other])]
    swapped = [write(tmp_path / "b", "algo-1", [other]), write(tmp_path / "b", "algo-9", [one])]
    assert fingerprint(first) == fingerprint(reversed(first)) == fingerprint(swapped)
    assert rows(Dataset(tmp_path / "a")) == rows(Dataset(tmp_path / "b"))
    changed = write(tmp_path / "c", "algo-1", [one + 1])
    relabelled = write(tmp_path / "d", "algo-1", [one], info={"kind": "other"})
    assert len({fingerprint([m]) for m in (first[0], changed, relabelled)}) == 3


def test_an_instance_without_records_adds_an_empty_manifest(tmp_path: Path):
    write(tmp_path, "algo-1", [np.ones((5, 3))])
    write(tmp_path, "algo-2", [])
    assert len(Dataset(tmp_path)) == 5


def test_shards_that_no_manifest_names_are_not_read(tmp_path: Path):
    """What a job leaves that was killed before its manifest."""
    write(tmp_path, "algo-1", [np.ones((5, 3))])
    (tmp_path / "algo-2-00000.bin").write_bytes(b"\1\0" * 12)
    (tmp_path / ".algo-1-00002.bin.tmp").write_bytes(b"\1")
    assert len(Dataset(tmp_path)) == 5


def test_no_manifest_is_no_dataset(tmp_path: Path):
    (tmp_path / "algo-1-00000.bin").write_bytes(b"\1\0" * 12)
    with pytest.raises(DataError, match="holds no manifest"):
        Dataset(tmp_path)


@pytest.mark.parametrize(
    ("damage", "expected"),
    [
        (lambda f: (f / "algo-1-00001.bin").unlink(), "algo-1-00001.bin: .* missing"),
        (lambda f: (f / "algo-1-00001.bin").write_bytes(b"\1"), "has 1 bytes, its manifest says 6"),
        (lambda f: (f / "manifest-algo-1.json").write_bytes(b"{"), "manifest-algo-1.json: file"),
        (lambda f: _edit(f, format=2), "manifest-algo-1.json: format"),
        (lambda f: _edit(f, surprise=1), "surprise"),
        (lambda f: _edit(f, shards=[{"file": "../../etc/passwd"}]), r"shards.0.file"),
        (lambda f: write(f, "algo-2", [np.ones((1, 4))], width=4), "disagree about what a sample"),
        (lambda f: write(f, "algo-2", [np.ones((1, 3))], info={}), "disagree about what a sample"),
    ],
)  # fmt: skip
def test_damage_is_named(tmp_path: Path, damage, expected: str):
    write(tmp_path, "algo-1", [np.ones((5, 3))])
    damage(tmp_path)
    with pytest.raises(DataError, match=expected):
        Dataset(tmp_path)


def _edit(folder: Path, **fields) -> None:
    path = folder / "manifest-algo-1.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | fields))


def test_a_manifest_reads_back(tmp_path: Path):
    manifest = write(tmp_path, "algo-1", [np.ones((5, 3))])
    assert read_manifests(tmp_path) == [(tmp_path / "manifest-algo-1.json", manifest)]
    assert isinstance(manifest, Manifest) and manifest.samples == 5
