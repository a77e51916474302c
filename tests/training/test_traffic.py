"""What the formulas say that ranks send is what they do: real ones, and any number of fake ones."""

import json
import os
from pathlib import Path

import pytest

from benchmarks.collectives.__main__ import read, run_rank
from benchmarks.collectives.cases import CASES, FLOAT8, MODEL, NOT_FAKED
from benchmarks.collectives.step import expected, in_fake_world
from tests.training import worlds
from training.traffic import Traffic, Unit, replicated, sharded

REAL = ("DDP × 4", "hybrid 2 × 2", "FSDP2 × 2, tensor × 2", "FSDP2 × 2, context × 2")

ELSEWHERE = {FLOAT8}  # tests/training/strategies/test_float8.py, which has torchao


def case(name: str) -> tuple:
    world, settings, micro_batches, differs = CASES[name]
    return world, settings, micro_batches, MODEL | differs


@pytest.mark.parametrize("name", [name for name in CASES if name not in NOT_FAKED | ELSEWHERE])
def test_a_step_sends_what_the_formula_says(name, tmp_path):
    """In a process of its own: torch before 2.13 takes groups and shapes from an earlier world's
    equal mesh."""
    (tmp_path / "case").write_text(name)
    [code] = worlds.finish(worlds.start(tmp_path, 1, target=count_faked))
    assert code == 0, (tmp_path / "rank-0.log").read_text()
    assert read(tmp_path, name).rows == expected(*case(name))[0].rows


def count_faked(given: list[str], environment: dict[str, str], root: Path, rank: int) -> None:
    """Write what rank 0 sends in the case that the folder's file names, as ``run_rank`` does."""
    with (root / "rank-0.log").open("a", buffering=1) as log:
        os.dup2(log.fileno(), 2)
        name = (root / "case").read_text()
        rows = in_fake_world(*case(name)).rows
        (root / f"{name}.json").write_text(json.dumps([*map(list, rows.items())]))


@pytest.mark.slow
def test_real_ranks_send_what_fake_ones_do(tmp_path):
    (tmp_path / "case").write_text("\n".join(REAL))
    codes = worlds.finish(worlds.start(tmp_path, 4, target=run_rank), 100)
    assert codes == [0] * 4, (tmp_path / "rank-0.log").read_text()
    for name in REAL:
        counted = read(tmp_path, name).rows
        assert counted == expected(*case(name))[0].rows, name


def test_fsdp_sends_three_times_the_weights_and_ddp_twice():
    """Rajbhandari et al. 2020, section 7.2: 3 against 2 × (n - 1) / n of the weights' bytes."""
    weights = [(64, 64)] * 8
    units = [Unit(shapes=[shape]) for shape in weights]
    size = 8 * 64 * 64 * 4
    assert sharded(units, shards=8).wire({"shard": 8}) == 3 * size * 7 / 8
    alike = replicated(weights)
    used = 8 * len(weights) // 2 * 7 / 8  # and which were used
    assert alike.wire({"world": 8}) == 2 * size * 7 / 8 + 2 * used


def test_traffic_of_an_axis_alone_adds_up():
    found = Traffic()
    found.add("shard", "all_gather", "bfloat16", 10, times=2)
    found.add("shard", "all_gather", "bfloat16", 5)
    found.add("shard", "all_gather", "bfloat16", 5, times=0)
    assert found.rows == {("shard", "all_gather", "bfloat16"): (3, 25)}
