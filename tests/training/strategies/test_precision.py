"""``precision: auto`` becomes what all machines multiply in fast, and stays what it became."""

import json
import logging
import os
import shutil
import subprocess
import sys
from itertools import product

import pytest
import torch

from tests.training.trainings import config, losses
from training.strategies import precision
from training.strategies.precision import choose_precision
from training.strategies.ranks import Ranks


class Neighbours:
    """Two ranks of which this is the first; the other answers with what it was given."""

    rank, world, device = 0, 2, torch.device("cpu")

    def __init__(self, checkpoint: tuple[int, str], native: list[str]) -> None:
        self._answer = (checkpoint, native)

    def gather(self, value: object) -> list:
        return [value, self._answer]


def set_native(monkeypatch, native: list[str]) -> None:
    monkeypatch.setattr(precision, "_list_native_precisions", lambda device: native)


UNITS, PLAIN, OLD_GPU = ["bfloat16", "float32"], ["float32"], ["float16", "float32"]


@pytest.mark.parametrize(("ours", "theirs"), [*product((UNITS, PLAIN, OLD_GPU), repeat=2)])
def test_all_ranks_have_what_each_of_them_multiplies_in_fast(monkeypatch, ours, theirs):
    set_native(monkeypatch, ours)
    given = config()
    expected = given.model_copy(update={"precision": ours[0] if ours == theirs else "float32"})
    assert choose_precision(given, Neighbours((0, ""), theirs)) == expected


@pytest.mark.parametrize("kept", ["bfloat16", "float64"])
def test_the_newest_checkpoint_decides_wherever_it_lies(monkeypatch, kept):
    set_native(monkeypatch, UNITS)
    other = Neighbours((20, kept), UNITS)
    assert choose_precision(config(), other, (10, "bfloat16")).precision == kept


def test_float16_gives_way_where_a_strategy_cannot_scale(monkeypatch):
    set_native(monkeypatch, OLD_GPU)
    assert (
        choose_precision(config(strategy="deepspeed"), Neighbours((0, ""), OLD_GPU)).precision
        == "float32"
    )


def test_a_slow_precision_is_named_in_one_line(monkeypatch, caplog):
    set_native(monkeypatch, PLAIN)
    alone = Ranks(0, 0, 1, torch.device("cpu"))
    for asked in ("float32", "float64", "auto"):
        choose_precision(config(precision=asked), alone)
    assert not [r for r in caplog.records if r.levelno >= logging.WARNING]
    choose_precision(config(precision="bfloat16"), alone)
    assert [r.getMessage() for r in caplog.records] == [
        "precision bfloat16 is slow on this processor, which only emulates it: auto would choose "
        "float32"
    ]


@pytest.mark.skipif(sys.platform != "linux", reason="oneDNN's variable")
def test_a_processor_without_such_units_is_known():
    """A processor of AVX2, as oneDNN is told, has none, whatever this one has."""
    code = "from training.strategies.precision import _has_bfloat16_units as fast\n"
    command = [sys.executable, "-c", code + "print(fast())"]
    environment = os.environ | {"ONEDNN_MAX_CPU_ISA": "AVX2"}
    assert subprocess.check_output(command, env=environment, text=True).strip() == "False"


@pytest.mark.parametrize(("first", "then"), [(UNITS, PLAIN), (PLAIN, UNITS)])
def test_a_training_goes_on_elsewhere_in_its_precision(root, train, monkeypatch, first, then):
    set_native(monkeypatch, first)
    train(root, precision="auto", max_steps=10)
    described = json.loads((root / "model/config.json").read_text())
    assert described["train_config"]["precision"] == first[0]
    assert described["training"]["parts"]["settings"]["precision"] == first[0]
    undisturbed = losses(root)
    [folder] = (root / "checkpoints").glob("*/step-00000010")
    shutil.rmtree(folder)  # interrupted before its last checkpoint
    set_native(monkeypatch, then)
    train(root, precision="auto", max_steps=10)
    again = json.loads((root / "model/config.json").read_text())
    assert again["training"]["identity"] == described["training"]["identity"]
    assert losses(root) == undisturbed
    assert len(list((root / "checkpoints").glob("*/history.jsonl"))) == 1


def test_a_training_that_starts_from_a_checkpoint_keeps_its_precision(root, train, monkeypatch):
    set_native(monkeypatch, UNITS)
    train(root, precision="auto", max_steps=5, checkpoint_interval=5)
    [made] = (root / "checkpoints").glob("*/step-00000005")
    (root / "input/data/start").mkdir()
    made.rename(root / "input/data/start" / made.name)
    set_native(monkeypatch, PLAIN)
    start = {"checkpoint": "s3://bucket/checkpoints/x", "may_differ": ["max_steps"]}
    train(root, precision="auto", max_steps=10, start_from=json.dumps(start))
    described = json.loads((root / "model/config.json").read_text())
    assert described["train_config"]["precision"] == "bfloat16"
    assert described["steps"] == 10
