"""Checkpoints are complete or absent, and only those of the same training are resumed."""

import hashlib
import json
import logging
import os
import re
import shutil
from pathlib import Path

import psutil
import pytest
import torch
from safetensors.torch import load_file

from training.checkpoint.checkpoints import Checkpoints
from training.strategies.ranks import Ranks
from trainyard.common.errors import TrainingError

pytestmark = pytest.mark.long

ALONE = Ranks(0, 0, 1, torch.device("cpu"))


def state(step: float) -> dict[str, torch.Tensor]:
    return {
        "model.w": torch.full((4,), float(step)),
        "model.b": torch.tensor(-float(step), dtype=torch.float64),
        "optimizer.w.exp_avg": torch.arange(6.0).reshape(2, 3) * step,
    }


def checkpoints(folder: Path, name: str = "run", keep: int = 3) -> Checkpoints:
    return Checkpoints(folder, name, keep, ALONE)


def save(target: Checkpoints, step: int, loss: float | None = None) -> None:
    target.save(step, state(step), loss)
    target.finish()


def resumed(target: Checkpoints) -> int | None:
    """Resume; return the step after checking every tensor."""
    found = state(0)
    step = target.resume(lambda: found)
    expected = state(step or 0)
    assert all(torch.equal(found[name], expected[name]) for name in expected)
    return step


@pytest.fixture(scope="module")
def three(tmp_path_factory) -> Path:
    """Create checkpoints of steps 1, 2 and 3, which no test changes."""
    folder = tmp_path_factory.mktemp("three")
    with checkpoints(folder) as target:
        for step in (1, 2, 3):
            save(target, step)
    return folder


@pytest.fixture
def saved(tmp_path: Path, three: Path) -> Checkpoints:
    """Copy the checkpoints of steps 1, 2 and 3."""
    shutil.copytree(three / "run", tmp_path / "run")
    return checkpoints(tmp_path)


def folder(tmp_path: Path, step: int) -> Path:
    return tmp_path / "run" / f"step-{step:08d}"


def part(folder: Path) -> Path:
    [found] = folder.glob("*.safetensors")
    return found


def test_the_newest_reads_back(saved: Checkpoints):
    assert resumed(saved) == 3


def test_a_state_that_grows_is_refused_since_its_ranks_would_not_agree(tmp_path: Path):
    with checkpoints(tmp_path) as target:
        save(target, 1)
        grown = state(2) | {"model.b": torch.zeros(2, dtype=torch.float64)}
        with pytest.raises(TrainingError, match=r"^model\.b: has another type or shape than at"):
            target.save(2, grown)
    assert resumed(checkpoints(tmp_path)) == 1


def test_nothing_to_resume(tmp_path: Path):
    called = []
    assert checkpoints(tmp_path).resume(lambda: called.append(1)) is None
    assert not called


def test_what_changes_after_the_call_is_not_saved(tmp_path: Path):
    target, tensors = checkpoints(tmp_path), state(1)
    target.save(1, tensors)
    for tensor in tensors.values():
        tensor.fill_(99)
    target.finish()
    assert resumed(target) == 1


def edit(marker: Path, **fields) -> None:
    marker.write_text(json.dumps(json.loads(marker.read_text()) | fields))


def replace(path: Path, make) -> None:
    path.unlink()
    make(path)


def flip(path: Path, at: int = -1) -> None:
    content = bytearray(path.read_bytes())
    content[at] ^= 1
    path.write_bytes(content)


def swap(folder: Path, pattern: str) -> None:
    """Put the previous step's files under this step's name, as a wrong copy from S3 would."""
    for path in (folder.parent / "step-00000002").glob(pattern):
        shutil.copy(path, folder)


def hashes(folder: Path) -> Path:
    return part(folder).with_suffix(".sha256")


def move_a_piece(marker: Path) -> None:
    """Make the table say that a tensor's part begins elsewhere."""
    said = json.loads(marker.read_text())
    said["table"]["layouts"][0]["pieces"][0][0] += 1
    marker.write_text(json.dumps(said))


SHARD = "shard-00001-model-00001-of-00001"
TEARS = {
    "cut off": (lambda f: os.truncate(part(f), 7), rf"{SHARD}\.safetensors has 7 bytes, \d+ were"),
    "byte flipped": (lambda f: flip(part(f)), "bytes 0 to .* have another hash"),
    "no part": (lambda f: part(f).unlink(), rf"{SHARD}\.safetensors is missing"),
    "no hashes": (lambda f: hashes(f).unlink(), rf"{SHARD}\.sha256 is missing"),
    "hashes cut off": (lambda f: os.truncate(hashes(f), 31), r"\.sha256 has 31 bytes, 32 were"),
    "hashes flipped": (lambda f: flip(hashes(f)), rf"{SHARD}\.sha256 is not as it was written"),
    "files of another step": (lambda f: swap(f, "shard-*"), r"\.sha256 is not as it was written"),
    "part of another step": (lambda f: swap(f, "*.safetensors"), "have another hash"),
    "all of another step": (lambda f: swap(f, "*"), "complete.json is of step 2"),
    "no marker": (lambda f: (f / "complete.json").unlink(), "has no complete.json: it was not"),
    "empty marker": (lambda f: (f / "complete.json").write_bytes(b""), "complete.json is damaged"),
    "half a marker": (lambda f: (f / "complete.json").write_bytes(b'{"step": 3'), "is damaged"),
    "marker without files": (
        lambda f: (f / "complete.json").write_bytes(b'{"format": 2}'),
        "complete.json is damaged: step: Field required",
    ),
    "marker of another kind": (lambda f: (f / "complete.json").write_bytes(b"[]"), "is damaged"),
    "marker no UTF-8": (lambda f: (f / "complete.json").write_bytes(b"\xff"), "is damaged"),
    "marker of files in a list": (
        lambda f: edit(f / "complete.json", files=["a.safetensors"]),
        "complete.json is damaged: files: ",
    ),
    "marker with words for a loss": (
        lambda f: edit(f / "complete.json", validation_loss="low"),
        "complete.json is damaged: validation_loss: ",
    ),
    "marker with another table": (
        lambda f: move_a_piece(f / "complete.json"),
        "complete.json is not as it was written: what it says of the files has another hash",
    ),
    "marker of a form to come": (
        lambda f: edit(f / "complete.json", format=99),
        "complete.json is of form 99",
    ),
    "marker is a folder": (
        lambda f: replace(f / "complete.json", Path.mkdir),
        "has no complete.json: it was not finished",
    ),
    "part is a folder": (
        lambda f: replace(part(f), Path.mkdir),
        rf"{SHARD}\.safetensors is not a file",
    ),
    "marker of another step": (
        lambda f: edit(f / "complete.json", step=4),
        "complete.json is of step 4",
    ),
    "marker that points elsewhere": (
        lambda f: edit(f / "complete.json", files={"../x.safetensors": {"bytes": 0, "sha256": ""}}),
        "complete.json names a file that is not a shard",
    ),
}
"""Damage to the newest checkpoint, and the log message that reports it."""


@pytest.mark.parametrize(("tear", "said"), TEARS.values(), ids=TEARS.keys())
def test_a_torn_checkpoint_is_skipped_for_an_older_whole_one(tmp_path, saved, tear, said, caplog):
    tear(folder(tmp_path, 3))
    with caplog.at_level(logging.WARNING):
        assert resumed(saved) == 2
    assert re.search(f"checkpoint {folder(tmp_path, 3)} is torn: .*{said}", caplog.text)
    save(saved, 3)
    assert resumed(saved) == 3


def test_all_torn_is_a_fresh_start(tmp_path: Path, saved: Checkpoints):
    for step in (1, 2, 3):
        part(folder(tmp_path, step)).write_bytes(b"torn")
    assert resumed(saved) is None


def test_files_of_an_earlier_attempt_are_not_read(tmp_path: Path, saved: Checkpoints):
    """SageMaker may bring back from S3 files that were deleted here before they were copied."""
    stray = folder(tmp_path, 3) / "shard-00002-model-00001-of-00001.safetensors"
    stray.write_bytes(part(folder(tmp_path, 2)).read_bytes())
    assert resumed(saved) == 3
    assert not stray.exists()


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_the_last_k_are_kept(tmp_path: Path):
    target = checkpoints(tmp_path, keep=2)
    for step in (5, 10, 15, 20):
        save(target, step)
    assert names(tmp_path / "run") == ["step-00000015", "step-00000020"]


def test_the_best_one_is_kept_too(tmp_path: Path):
    target = checkpoints(tmp_path, keep=1)
    for step, loss in enumerate((3.0, 1.0, None, 2.0), 1):
        save(target, step, loss)
    assert names(tmp_path / "run") == ["step-00000002", "step-00000004"]
    save(target, 5, 0.5)
    assert names(tmp_path / "run") == ["step-00000005"]


def test_a_damaged_marker_costs_no_whole_checkpoint(tmp_path: Path):
    target = checkpoints(tmp_path, keep=2)
    for step in (1, 2, 3):
        save(target, step)
    (folder(tmp_path, 3) / "complete.json").write_bytes(b"{")
    save(target, 4)
    assert names(tmp_path / "run") == [f"step-0000000{step}" for step in (2, 3, 4)]


def test_another_training_is_left_alone(tmp_path: Path, saved: Checkpoints):
    other = checkpoints(tmp_path, "other", keep=1)
    assert resumed(other) is None
    save(other, 9)
    assert resumed(saved) == 3


def test_nothing_is_left_of_the_process_that_writes(tmp_path: Path):
    """Neither the process nor the memory that it writes from survives: the export needs that."""
    me = psutil.Process()
    before = {child.pid for child in me.children()}, me.num_fds()
    with Checkpoints(tmp_path, "training", 2, ALONE) as checkpoints:
        checkpoints.save(1, state(1))
        checkpoints.finish()
        assert len(me.children()) == len(before[0]) + 1
    assert ({child.pid for child in me.children()}, me.num_fds()) == before


def test_a_checkpoint_holds_no_pickle(tmp_path: Path, saved: Checkpoints):
    path = part(folder(tmp_path, 3))
    hashes = path.with_suffix(".sha256")
    assert names(folder(tmp_path, 3)) == ["complete.json", path.name, hashes.name]
    assert hashes.read_bytes() == hashlib.sha256(path.read_bytes()).digest()  # of one block
    assert load_file(path).keys() == state(0).keys()


def test_a_save_that_fails_is_told_at_the_next(tmp_path: Path, saved: Checkpoints):
    (tmp_path / "run").rename(tmp_path / "aside")
    (tmp_path / "run").write_text("a file where the folder should be")
    saved.save(4, state(4))
    with pytest.raises(TrainingError, match="a checkpoint could not be written.*goes on from it"):
        saved.finish()
    (tmp_path / "run").unlink()
    (tmp_path / "aside").rename(tmp_path / "run")
    save(saved, 4)
    assert resumed(saved) == 4


STRAYS = ("step-xyz", "step-12.tmp", "step-", "step-3", "step-00000004 copy", "step-٤", "other")


@pytest.mark.parametrize("kind", ["a file", "a folder", "a folder with a marker", "a link"])
def test_what_else_lies_beside_the_checkpoints_stops_nobody(tmp_path, saved, kind):
    strays = [tmp_path / "run" / name for name in STRAYS]
    for stray in strays:
        if kind == "a file":
            stray.write_text("stray")
        elif kind == "a link":
            stray.symlink_to(tmp_path / "nowhere")
        else:
            stray.mkdir()
        if kind == "a folder with a marker":
            shutil.copy(folder(tmp_path, 3) / "complete.json", stray)
    assert resumed(saved) == 3
    save(saved, 4)
    assert resumed(saved) == 4
    for stray in strays:
        assert stray.is_symlink() or stray.exists()  # not ours to delete


@pytest.mark.parametrize("name", ["step-00000004", "step-00000004/complete.json"])
@pytest.mark.parametrize("make", [Path.touch, Path.mkdir])
def test_a_stray_where_the_next_checkpoint_goes_makes_place(tmp_path, saved, name, make):
    stray = tmp_path / "run" / name
    stray.parent.mkdir(exist_ok=True)
    make(stray)
    assert resumed(saved) == 3
    save(saved, 4)
    assert resumed(saved) == 4
