"""The strategies' benchmark for GPUs, where there is none; --smoke is run by hand (16 CPU s)."""

import pytest
import torch
from typer.testing import CliRunner

from benchmarks import gpu_strategies

pytestmark = pytest.mark.long


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_it_says_so():
    done = CliRunner().invoke(gpu_strategies.app, [])
    assert done.exit_code == 0 and "no CUDA device" in done.output


def test_a_curve_that_is_off_is_found():
    single = {"float64": {"1": 2.0, "2": 1.0}, "bfloat16": {"1": 2.0, "2": 1.0}}
    near = {"float64": {"1": 2.0, "2": 1.0 + 1e-14}, "bfloat16": {"1": 2.0, "2": 1.004}}
    assert not gpu_strategies.beyond(near, single)
    assert gpu_strategies.beyond(near | {"float64": {"1": 2.0, "2": 1.0 + 1e-12}}, single)
    assert gpu_strategies.beyond(near | {"bfloat16": {"1": 2.0, "2": 1.006}}, single)


def test_a_machine_with_one_gpu_runs_some_layouts_and_one_with_eight_all():
    worlds = [world for world, _ in gpu_strategies.LAYOUTS.values()]
    assert sum(world == 1 for world in worlds) >= 5 and max(worlds) == 8
    assert set(gpu_strategies.SMOKE) <= gpu_strategies.LAYOUTS.keys()
