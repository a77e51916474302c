"""The benchmark of checkpoints measures what it says; on next to nothing."""

from pathlib import Path

import pytest

from benchmarks.checkpoints import __main__ as benchmark
from benchmarks.checkpoints.__main__ import is_wrong
from benchmarks.checkpoints.session import Act, session

pytestmark = pytest.mark.long


def test_slopes_tell_the_shard_from_the_model():
    sizes = [(model / ranks, model) for model in (1e9, 2e9, 4e9) for ranks in (2, 4, 8)]
    rows = [{"shard": s, "model": m, "cpu": 0.1 + 2 * s / 1e9 + 0.5 * m / 1e9} for s, m in sizes]
    found = benchmark.slopes(rows, "cpu")
    for name, expected in {"constant": 0.1, "shard": 2, "model": 0.5}.items():
        assert found[name] == pytest.approx((expected, 0), abs=1e-9)
    assert not benchmark.slopes([row for row in rows if row["model"] == 4 * row["shard"]], "cpu")


def test_a_wrong_tensor_and_one_byte_in_ten_too_many_are_told():
    row = {"contender": "ours", "load_read": 1090, "metadata": 90, "shard": 1000, "right": True}
    assert not is_wrong({"same": [row], "other": []})
    assert is_wrong({"same": [row], "other": [row | {"right": False}]})
    assert is_wrong({"same": [row | {"load_read": 1200}], "other": [row]})


@pytest.mark.slow
def test_two_ranks_save_and_one_resumes_and_reads_its_shard_once(tmp_path: Path):
    names = ("ours", "DCP async")
    first = [Act(name, tmp_path / name, 4e6, 4e5, saves=1) for name in names]
    saved = benchmark.measured_rows(first, session(tmp_path, 2, first))
    then = [Act(name, tmp_path / name, 4e6, 4e5, loads=True, removes=True) for name in names]
    rows = benchmark.measured_rows(then, session(tmp_path, 1, then))
    assert all(row["right"] and row["shard"] == row["model"] for row in rows)
    assert 1 <= benchmark.read_over_shard(rows[0]) < 1.1
    assert saved[0]["shard"] == saved[0]["model"] / 2 and saved[0]["first_stall"] > 0
    assert not [path for path in tmp_path.iterdir() if path.is_dir()]
