"""The slow mount gives what lies under it, late, and is gone afterwards."""

import mmap
import os
import time
from pathlib import Path

import numpy as np
import pytest
import typer

from benchmarks.throttled.__main__ import SHARD_MB, Case, demand_of, measure, write
from benchmarks.throttled.mount import DEVICE, Slow, mounted, refuse
from training.data.dataset import Dataset
from training.data.reads_in_flight import MOST, ReadsInFlight

pytestmark = pytest.mark.long

ABLE = os.path.exists(DEVICE) and os.geteuid() == 0
SLOW = Slow(first_byte=0.05, stream=4e6, total=2e6, kept=True)


def test_what_is_missing_for_a_mount_is_named_with_what_to_do(tmp_path: Path):
    with pytest.raises(typer.BadParameter, match="modprobe fuse"):
        refuse(tmp_path / "fuse", user=0)
    with pytest.raises(typer.BadParameter, match="sudo"):
        refuse(tmp_path, user=1000)
    refuse(tmp_path, user=0)


def test_a_rank_of_a_windowed_order_reads_what_all_ranks_take():
    needs = demand_of(Path("recipes/prod.yaml"))
    assert needs.ranks * needs.share == 1024
    assert needs.sample_bytes == 2 * 2049
    assert needs.windowed * needs.step_seconds == pytest.approx(1024 * 4098)


@pytest.mark.slow
@pytest.mark.skipif(not ABLE, reason="needs root and /dev/fuse")
def test_reads_and_maps_wait_and_nothing_is_left(tmp_path: Path):
    source, at = tmp_path / "source", tmp_path / "at"
    source.mkdir()
    at.mkdir()
    content = os.urandom(1_000_000)
    for name in ("read", "mapped"):
        (source / name).write_bytes(content)
    with pytest.raises(KeyboardInterrupt), mounted(source, at, SLOW) as told:
        assert sorted(os.listdir(at)) == ["mapped", "read"]
        began = time.monotonic()
        assert (at / "read").read_bytes() == content
        with (at / "mapped").open("rb") as file:
            assert mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)[:] == content
        assert time.monotonic() - began >= 2 * len(content) / SLOW.total
        raise KeyboardInterrupt
    assert told["opened"] == 2 and told["jumps"] >= 2 and told["read"] >= 2 * len(content)
    assert not at.is_mount() and not any(at.iterdir())


@pytest.mark.slow
@pytest.mark.skipif(not ABLE, reason="needs root and /dev/fuse")
@pytest.mark.parametrize("loader", ["windowed", "uniform", "DataLoader"])
def test_a_row(tmp_path: Path, loader: str):
    for order in SHARD_MB:
        write(tmp_path / order, order, 8)
    case = Case(system="FSx", loader=loader, ranks=1, times=10)
    row = measure(case, tmp_path, demand_of(Path("recipes/prod.yaml")), 0.2)
    assert 0 <= row["stall"] <= 1 and row["cold_seconds"] > 0 and row["read_per_consumed"] > 0


@pytest.mark.slow
@pytest.mark.skipif(not ABLE, reason="needs root and /dev/fuse")
def test_samples_that_come_late_are_read_by_several_threads(tmp_path: Path):
    source, at = tmp_path / "source", tmp_path / "at"
    at.mkdir()
    write(source, "windowed", 8)
    expected = Dataset(source)
    with mounted(source, at, SLOW) as told:
        reads = ReadsInFlight(Dataset(at))
        for seed in range(3):
            indices = np.random.default_rng(seed).integers(0, len(expected), 20)
            found = reads.read(indices)
            assert np.array_equal(found["tokens"], expected.read(indices)["tokens"])
            assert reads.late and reads.count == MOST  # nobody has said at what rate
        reads.close()
    assert told["read"] < 8_000_000 / 2  # and not what lies around them
