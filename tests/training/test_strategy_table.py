"""The oldest torch of strategies, schedules and options, and the error for an older one."""

import pytest
import torch

from training.config import TrainConfig
from training.strategy_table import OLDEST_TORCH, STRATEGIES, explain_unfit_torch, parse_release

BASE = {"max_steps": 1, "global_batch": 8, "micro_batch": 1, "learning_rate": 0.1}


@pytest.mark.parametrize(
    ("version", "expected"),
    [("2.10.0+cu128", (2, 10, 0)), ("2.8", (2, 8, 0)), ("2.14.0a0+git1", (2, 14, 0))],
)
def test_a_release_is_compared_by_its_numbers(version, expected):
    assert parse_release(version) == expected


@pytest.mark.parametrize(
    ("settings", "least"),
    [
        ({}, OLDEST_TORCH),
        *(({"strategy": name}, entry.least_torch) for name, entry in STRATEGIES.items()),
        ({"float8": "rowwise"}, "2.10.0"),
        ({"compile": True, "tensor_parallel": 2}, OLDEST_TORCH),
        ({"compile": True, "activation_checkpointing": "full"}, "2.10.0"),
        ({"compile": True, "tensor_parallel": 2, "precision": "float64"}, "2.13.0"),
    ],
    ids=str,
)
def test_a_training_needs_what_its_newest_part_needs(settings, least):
    config = TrainConfig(**BASE | settings)
    major, minor, _ = parse_release(least)
    assert explain_unfit_torch(config, least) is None
    refused = explain_unfit_torch(config, f"{major}.{minor - 1}.1+cu126")
    said = f"needs PyTorch {least} or newer, and the training image has {major}.{minor - 1}.1"
    assert refused and said in refused
    if settings == {"float8": "rowwise"}:  # the field that asks for it is named
        assert refused.startswith("float8 rowwise needs PyTorch 2.10.0")
        assert refused.endswith(": choose a newer image, or change float8")


def test_the_job_says_the_same_as_it_starts(root, train, monkeypatch):
    monkeypatch.setattr(torch, "__version__", "2.5.1+cu124")
    with pytest.raises(SystemExit):
        train(root, workload="ragged")
    failure = (root / "output/failure").read_text()
    assert f"strategy single needs PyTorch {OLDEST_TORCH} or newer, and the training" in failure
