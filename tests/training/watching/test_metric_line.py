"""The metric line, read back with the expressions that the definition carries."""

import re

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.training.trainings import history
from training.watching import step_progress
from training.watching.clock import PARTS
from training.watching.metric_line import METRICS, NAMES, format_metric_line
from training.watching.rules import RULES

numbers = st.floats(allow_nan=False, allow_infinity=False) | st.integers(0, 10**9)


@given(st.dictionaries(st.sampled_from(sorted(NAMES.values())), numbers))
def test_every_expression_reads_its_own_number_and_no_other(metrics):
    line = format_metric_line(metrics)
    for name, pattern in METRICS:
        match = re.search(pattern, line)
        key = NAMES[name]
        assert (match is not None) == (key in metrics)
        if match:
            assert float(match[1]) == pytest.approx(metrics[key], rel=1e-5, abs=1e-300)


def test_all_that_a_training_prints_is_defined_and_the_service_takes_so_many(
    root, train, capsys, monkeypatch
):
    monkeypatch.setattr(step_progress, "find_device_peak", lambda device: 1e6)  # as on a GPU
    lines = history(train(root))
    others = {"straggler_ratio", "straggler_rank"}  # of several ranks
    others |= {"loss_scale", "skipped_steps"}  # of float16
    others |= {f"watch.{rule}" for rule in RULES}  # which have nothing to say
    assert {key for line in lines for key in line} == set(NAMES.values()) - others
    assert len(METRICS) <= 40
    printed = capsys.readouterr().out
    for name, pattern in METRICS:
        read = [float(match[1]) for match in re.finditer(pattern, printed, re.MULTILINE)]
        key = NAMES[name]
        assert read == pytest.approx([line[key] for line in lines if key in line], rel=1e-5)
    for line in lines:
        if "loss" in line:  # the toy: six times 16 × 32 weights
            assert line["mfu"] == pytest.approx(line["units_per_second"] * 6 * 16 * 32 / 1e6)


def test_the_parts_of_a_step_add_up_to_no_more_than_the_step(root, train):
    accounted = []
    for line in history(train(root, log_interval=3, checkpoint_interval=1)):
        if "loss" in line:
            parts = [line[f"{part}_seconds"] for part in PARTS]
            accounted.append(sum(parts) / line["step_seconds"])
            assert (line["checkpoint_seconds"] > 0) == (line["step"] > 1)
            assert line["units_per_second_per_rank"] == line["units_per_second"]
            assert 50 < line["memory_mb"] < 10_000
    assert 0.5 < max(accounted) <= 1


def test_utilisation():
    """PaLM, appendix B and table 3: 540e9 parameters, 48 heads × 256 × 118 layers × 2048 tokens;
    238.3e3 tokens a second on 6144 chips of 275e12; 46.2 %.
    """
    flops = 6 * 540.35e9 + 12 * 118 * 48 * 256 * 2048
    found = step_progress.compute_utilisation(238.3e3, flops, 6144, 275e12)
    assert found == pytest.approx(0.462, abs=0.002)


def test_the_peak_of_a_device():
    teraflops = {
        **{"NVIDIA A100-SXM4-40GB": 312, "NVIDIA A10G": 70, "NVIDIA L4": 121, "NVIDIA L40S": 362},
        **{"NVIDIA H100 80GB HBM3": 989, "NVIDIA H100 PCIe": 756, "NVIDIA H200": 989},
        **{"Tesla T4": 65, "Tesla V100-SXM2-16GB": 125},
    }
    assert {name: step_progress.find_peak_by_name(name) for name in teraflops} == {
        name: peak * 1e12 for name, peak in teraflops.items()
    }
    for name in ("NVIDIA A10", "NVIDIA L40", "GeForce RTX 4090", "T400"):
        assert step_progress.find_peak_by_name(name) is None
    assert step_progress.find_device_peak(torch.device("cpu")) is None


def test_the_line_that_is_documented():
    line = format_metric_line({"step": 123_456_789, "loss": 2.3456, "learning_rate": 3e-5})
    assert line == "step=123456789 loss=2.3456 learning_rate=3e-05"


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_what_is_not_finite_is_no_metric(value):
    line = format_metric_line({"loss": value})
    assert not any(re.search(pattern, line) for _, pattern in METRICS)
