"""The GPU's benchmark runs without one, on a tiny model; its figures mean nothing there."""

import json
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from benchmarks import gpu_mfu

pytestmark = pytest.mark.long


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_it_says_so():
    done = CliRunner().invoke(gpu_mfu.app, [])
    assert done.exit_code == 0 and "no CUDA device" in done.output


def test_both_loops_train_the_same_model(tmp_path: Path):
    arguments = ["--smoke", "--rounds", "1", "--json", str(tmp_path / "mfu.json")]
    done = CliRunner().invoke(gpu_mfu.app, arguments, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    found = json.loads((tmp_path / "mfu.json").read_text())["models"]["smoke"]
    losses = found["last_loss"]
    assert losses["ours"] == pytest.approx(losses["by hand"], rel=2e-3)
    if not torch.cuda.is_available():
        assert found["mfu"] == {"ours": None, "by hand": None}  # its peak is not known


def test_flops_of_a_token_are_those_of_palm():
    """6 a weight, the tied embedding once, and 12 × layers × dim × t for attention."""
    size = gpu_mfu.SMOKE["smoke"]
    workload = gpu_mfu._workload(size)
    model = workload.model()
    block = 4 * 16 * 16 + 3 * 16 * 48 + 2 * 16  # attention; SwiGLU; two norms
    weights = size.vocabulary * 16 + block + 16
    assert sum(parameter.numel() for parameter in model.parameters()) == weights
    assert workload.flops(model) == 6 * weights + 12 * 1 * 16 * 16
