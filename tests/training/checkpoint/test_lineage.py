"""Changed code restarts a training, and a model records what it was trained with."""

import json
import shutil
import sys
from pathlib import Path

import pytest

from tests.training.trainings import TOYS, history, losses
from training.checkpoint.marker import Lineage
from training.identity import Parts

pytestmark = pytest.mark.long


@pytest.fixture
def own_loss_file(root, tmp_path: Path, monkeypatch) -> Path:
    """Return the file with the loss of a workload that a user may edit between two trainings."""
    monkeypatch.setattr(sys, "path", [p for p in sys.path if p != str(TOYS)])
    shutil.copytree(TOYS / "toys", tmp_path / "source/toys")
    monkeypatch.syspath_prepend(str(tmp_path / "source"))
    forget()
    yield tmp_path / "source/toys/ragged/workload.py"
    forget()


def forget() -> None:
    """Drop the imported modules, as a new process would."""
    for name in [name for name in sys.modules if name.partition(".")[0] == "toys"]:
        del sys.modules[name]


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))
    shutil.rmtree(path.parent / "__pycache__", ignore_errors=True)
    forget()


def read_training_settings(root: Path) -> dict:
    return json.loads((root / "model/config.json").read_text())["training"]


def weights(root: Path) -> bytes:
    return (root / "model/model.safetensors").read_bytes()


def test_a_changed_loss_starts_anew_in_a_folder_of_its_own_and_says_so(
    root, train, own_loss_file, caplog
):
    caplog.set_level("INFO", logger="training")
    train(root)
    before, first, curve = read_training_settings(root), weights(root), losses(root)
    edit(own_loss_file, "return total *", "return 2 * total *")
    caplog.clear()
    train(root)
    assert weights(root) != first and losses(root)[1] == pytest.approx(2 * curve[1], rel=1e-5)
    assert [line["step"] for line in history(root) if "loss" in line] == [*range(1, 11)]
    other = read_training_settings(root)["identity"]
    assert other != before["identity"]
    assert [(s["since"], s["identity"]) for s in read_training_settings(root)["stretches"]] == [
        (0, other)
    ]
    said = "contains checkpoints of another training: code (~ toys/ragged/workload.py)"
    assert said in caplog.text and before["identity"] in caplog.text

    # Checkpoints of other code under this one's name.
    shutil.rmtree(root / "checkpoints" / other)
    shutil.copytree(root / "checkpoints" / before["identity"], root / "checkpoints" / other)
    train(root)
    assert f"{other}/step-00000010 is not resumed: it is another training's: code (~" in caplog.text
    assert losses(root).keys() == {*range(1, 11)}
    assert [s["identity"] for s in read_training_settings(root)["stretches"]] == [other]

    edit(own_loss_file, "return 2 * total *", "return total *")
    caplog.clear()
    train(root)
    assert "resumed from the checkpoint of step 10" in caplog.text
    assert read_training_settings(root) == before and weights(root) == first


def test_a_checkpoint_that_does_not_say_what_made_it_is_not_resumed(root, train, caplog):
    caplog.set_level("WARNING", logger="training")
    train(root, max_steps=5)
    for marker in root.glob("checkpoints/*/step-*/complete.json"):
        said = json.loads(marker.read_text())
        marker.write_text(json.dumps(said | {"lineage": None}))
    train(root, max_steps=5)
    assert "its marker does not say what it was trained with" in caplog.text
    assert losses(root).keys() == {*range(1, 6)}


def lineage(strategy: str, seed: int = 0) -> Lineage:
    known = Parts(workload="w", workload_config={}, settings={"seed": seed}, code={})
    return Lineage.begin(known, strategy, 2)


def test_what_was_undone_by_a_resume_is_no_part_of_the_history():
    """A stretch that began after the resumed checkpoint left no trace in the history."""
    first, second = lineage("ddp"), lineage("fsdp")
    both = second.resume_at(20, first.resume_at(0, first))
    assert [(s.since, s.strategy) for s in both.stretches] == [(0, "ddp"), (20, "fsdp")]
    assert [s.since for s in first.resume_at(10, both).stretches] == [0]
    assert [s.strategy for s in first.resume_at(30, both).stretches] == ["ddp", "fsdp", "ddp"]
