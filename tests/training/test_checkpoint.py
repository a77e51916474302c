"""Checkpoints: whole or not there, and only of the same training."""

import logging
from pathlib import Path

import pytest
import torch

from training.checkpoint import Checkpoints, identity
from training.config import TrainConfig


def state(step: int) -> dict:
    return {"model": {"w": torch.full((4,), float(step))}, "optimizer": {}}


@pytest.fixture
def saved(tmp_path: Path) -> Checkpoints:
    """Steps 1, 2 and 3."""
    checkpoints = Checkpoints(tmp_path, "run", keep=3)
    for step in (1, 2, 3):
        checkpoints.save(step, state(step))
    return checkpoints


def folder(tmp_path: Path, step: int) -> Path:
    return tmp_path / "run" / f"step-{step:08d}"


def test_the_newest_reads_back(saved: Checkpoints):
    step, found = saved.newest()
    assert step == 3
    assert torch.equal(found["model"]["w"], state(3)["model"]["w"])


def test_nothing_to_resume(tmp_path: Path):
    assert Checkpoints(tmp_path, "run", keep=1).newest() is None


@pytest.mark.parametrize(
    "tear",
    [
        lambda f: (f / "state.pt").write_bytes((f / "state.pt").read_bytes()[:-1]),
        lambda f: (f / "state.pt").write_bytes(b"\0" + (f / "state.pt").read_bytes()[1:]),
        lambda f: (f / "state.pt").unlink(),
        lambda f: (f / "complete.json").unlink(),
        lambda f: (f / "complete.json").write_bytes(b""),
        lambda f: (f / "complete.json").write_bytes(b'{"step": 3'),
        lambda f: (f / "complete.json").write_bytes(b"{}"),
        lambda f: (f / "complete.json").write_bytes(b"[]"),
        lambda f: (f / "complete.json").write_bytes(b"\xff"),
    ],
    ids=["cut off", "byte flipped", "no state", "no marker", "empty marker", "half a marker",
         "marker without hash", "marker of another kind", "marker no UTF-8"],
)  # fmt: skip
def test_a_torn_checkpoint_is_skipped_for_an_older_whole_one(tmp_path, saved, tear, caplog):
    tear(folder(tmp_path, 3))
    with caplog.at_level(logging.WARNING):
        assert saved.newest()[0] == 2
    assert "torn" in caplog.text or not (folder(tmp_path, 3) / "complete.json").exists()
    saved.save(3, state(3))
    assert saved.newest()[0] == 3


def test_all_torn_is_a_fresh_start(tmp_path: Path, saved: Checkpoints):
    for step in (1, 2, 3):
        (folder(tmp_path, step) / "state.pt").write_bytes(b"torn")
    assert saved.newest() is None


def test_the_last_k_are_kept(tmp_path: Path):
    checkpoints = Checkpoints(tmp_path, "run", keep=2)
    for step in (5, 10, 15, 20):
        checkpoints.save(step, state(step))
    assert sorted(p.name for p in (tmp_path / "run").iterdir()) == [
        "step-00000015",
        "step-00000020",
    ]


def test_another_training_is_left_alone(tmp_path: Path, saved: Checkpoints):
    other = Checkpoints(tmp_path, "other", keep=1)
    assert other.newest() is None
    other.save(9, state(9))
    assert saved.newest()[0] == 3


def test_pickled_code_in_a_checkpoint_does_not_run(tmp_path: Path, saved: Checkpoints):
    class Evil:
        def __reduce__(self):
            return Path.touch, (tmp_path / "ran",)

    saved.save(4, {"model": Evil()})
    with pytest.raises(Exception, match="[Ww]eights.only"):
        saved.newest()
    assert not (tmp_path / "ran").exists()


def config(**fields) -> TrainConfig:
    given = {"max_steps": 10, "global_batch": 8, "micro_batch": 8, "learning_rate": 0.01} | fields
    return TrainConfig.model_validate(given)


def test_identity_is_that_of_the_result():
    name = identity(config(), "w", "{}", "f")
    same = [{"log_interval": 3}, {"keep_checkpoints": 9}, {"strategy": "single"}]
    assert {identity(config(**fields), "w", "{}", "f") for fields in same} == {name}
    other = [{"max_steps": 11}, {"seed": 1}, {"learning_rate": 0.02}, {"precision": "float32"}]
    names = [identity(config(**fields), "w", "{}", "f") for fields in other]
    names += [
        identity(config(), *parts)
        for parts in (("v", "{}", "f"), ("w", "{ }", "f"), ("w", "{}", "g"))
    ]
    assert len({name, *names}) == 8
