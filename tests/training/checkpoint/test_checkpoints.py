"""Checkpoints are complete or absent, and only those of the same training are resumed."""

import hashlib
import json
import logging
import os
import re
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest
import torch
from safetensors.torch import load_file

from training.checkpoint.checkpoints import Checkpoints
from training.checkpoint.save import recreate_folder, remove_path
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


def resume_and_check(target: Checkpoints) -> int | None:
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
def copied_checkpoints(tmp_path: Path, three: Path) -> Checkpoints:
    """Copy the checkpoints of steps 1, 2 and 3."""
    shutil.copytree(three / "run", tmp_path / "run")
    return checkpoints(tmp_path)


def folder(tmp_path: Path, step: int) -> Path:
    return tmp_path / "run" / f"step-{step:08d}"


def part(folder: Path) -> Path:
    [found] = folder.glob("*.safetensors")
    return found


def test_a_state_that_grows_is_refused_since_its_ranks_would_not_agree(tmp_path: Path):
    with checkpoints(tmp_path) as target:
        save(target, 1)
        grown = state(2) | {"model.b": torch.zeros(2, dtype=torch.float64)}
        with pytest.raises(TrainingError, match=r"^model\.b: has another type or shape than at"):
            target.save(2, grown)
    assert resume_and_check(checkpoints(tmp_path)) == 1


def test_what_changes_after_the_call_is_not_saved(tmp_path: Path):
    target, tensors = checkpoints(tmp_path), state(1)
    target.save(1, tensors)
    for tensor in tensors.values():
        tensor.fill_(99)
    target.finish()
    assert resume_and_check(target) == 1


def edit(marker: Path, **fields) -> None:
    marker.write_text(json.dumps(json.loads(marker.read_text()) | fields))


def replace(path: Path) -> None:
    """Put a folder where a file was."""
    path.unlink()
    path.mkdir()


def flip(path: Path) -> None:
    content = path.read_bytes()
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))


def swap(folder: Path, pattern: str) -> None:
    """Put the previous step's files under this step's name, as a wrong copy from S3 would."""
    for path in (folder.parent / "step-00000002").glob(pattern):
        shutil.copy(path, folder)


def hashes(folder: Path) -> Path:
    return part(folder).with_suffix(".sha256")


def move_a_piece(marker: Path) -> None:
    """Make the table say that a tensor's part begins elsewhere."""
    table = json.loads(marker.read_text())["table"]
    table["layouts"][0]["pieces"][0][0] += 1
    edit(marker, table=table)


def marker_of(content: bytes) -> Callable[[Path], object]:
    return lambda folder: (folder / "complete.json").write_bytes(content)


def make_completion_edit(**fields) -> Callable[[Path], object]:
    return lambda folder: edit(folder / "complete.json", **fields)


SHARD = "shard-00001-model-00001-of-00001"
ELSEWHERE = {"../x.safetensors": {"bytes": 0, "sha256": ""}}
TEARS = [
    (lambda f: os.truncate(part(f), 7), rf"{SHARD}\.safetensors has 7 bytes, expected \d+"),
    (lambda f: flip(part(f)), "the hash of bytes 0 to .* does not match"),
    (lambda f: part(f).unlink(), rf"{SHARD}\.safetensors is missing"),
    (lambda f: replace(part(f)), rf"{SHARD}\.safetensors is not a file"),
    (lambda f: hashes(f).unlink(), rf"{SHARD}\.sha256 is missing"),
    (lambda f: os.truncate(hashes(f), 31), r"\.sha256 has 31 bytes, expected 32"),
    (lambda f: flip(hashes(f)), rf"{SHARD}\.sha256 was changed since it was written"),
    (lambda f: swap(f, "*.safetensors"), "does not match"),
    (lambda f: swap(f, "*"), "complete.json is of step 2"),
    (lambda f: (f / "complete.json").unlink(), "has no complete.json: it was not finished"),
    (lambda f: replace(f / "complete.json"), "has no complete.json: it was not finished"),
    (marker_of(b""), "complete.json is damaged"),
    (marker_of(b"[]"), "complete.json is damaged"),
    (marker_of(b"\xff"), "complete.json is damaged"),
    (marker_of(b'{"format": 2}'), "complete.json is damaged: step: Field required"),
    (make_completion_edit(files=["a.safetensors"]), "complete.json is damaged: files: "),
    (make_completion_edit(format=99), "complete.json has format 99"),
    (make_completion_edit(files=ELSEWHERE), "complete.json names a file that is not a shard"),
    (
        lambda f: move_a_piece(f / "complete.json"),
        "complete.json was changed since it was written: the hash of its list of files",
    ),
]
"""(damage to the newest checkpoint, the log message that reports it)."""


@pytest.mark.parametrize(("tear", "said"), TEARS)
def test_a_torn_checkpoint_is_skipped_for_an_older_whole_one(
    tmp_path, copied_checkpoints, tear, said, caplog
):
    tear(folder(tmp_path, 3))
    with caplog.at_level(logging.WARNING):
        assert resume_and_check(copied_checkpoints) == 2
    assert re.search(f"checkpoint {folder(tmp_path, 3)} is damaged: .*{said}", caplog.text)


def test_all_torn_is_a_fresh_start(tmp_path: Path, copied_checkpoints: Checkpoints):
    for step in (1, 2, 3):
        part(folder(tmp_path, step)).write_bytes(b"torn")
    assert resume_and_check(copied_checkpoints) is None
    save(copied_checkpoints, 3)
    assert resume_and_check(copied_checkpoints) == 3


def test_files_of_an_earlier_attempt_are_not_read(tmp_path: Path, copied_checkpoints: Checkpoints):
    """SageMaker may bring back from S3 files that were deleted here before they were copied."""
    stray = folder(tmp_path, 3) / "shard-00002-model-00001-of-00001.safetensors"
    stray.write_bytes(part(folder(tmp_path, 2)).read_bytes())
    assert resume_and_check(copied_checkpoints) == 3
    assert not stray.exists()


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_the_best_one_is_kept_too(tmp_path: Path):
    target = checkpoints(tmp_path, keep=1)
    for step, loss in enumerate((3.0, 1.0, None, 2.0), 1):
        save(target, step, loss)
    assert names(tmp_path / "run") == ["step-00000002", "step-00000004"]
    save(target, 5, 0.5)
    assert names(tmp_path / "run") == ["step-00000005"]


def test_the_last_k_are_kept_and_a_damaged_marker_costs_no_whole_checkpoint(tmp_path: Path):
    target = checkpoints(tmp_path, keep=2)
    for step in (1, 2, 3):
        save(target, step)
    assert names(tmp_path / "run") == ["step-00000002", "step-00000003"]
    (folder(tmp_path, 3) / "complete.json").write_bytes(b"{")
    save(target, 4)
    assert names(tmp_path / "run") == [f"step-0000000{step}" for step in (2, 3, 4)]


def test_another_training_is_left_alone(tmp_path: Path, copied_checkpoints: Checkpoints):
    other, called = checkpoints(tmp_path, "other", keep=1), []
    assert other.resume(lambda: called.append(1)) is None
    assert not called
    save(other, 9)
    assert resume_and_check(copied_checkpoints) == 3


def test_nothing_is_left_of_the_process_that_writes(tmp_path: Path):
    """Neither the process nor the memory that it writes from survives: the export needs that."""
    me = psutil.Process()
    before = {child.pid for child in me.children()}, me.num_fds()
    with Checkpoints(tmp_path, "training", 2, ALONE) as checkpoints:
        checkpoints.save(1, state(1))
        checkpoints.finish()
        assert len(me.children()) == len(before[0]) + 1
    assert ({child.pid for child in me.children()}, me.num_fds()) == before


def test_a_checkpoint_holds_no_pickle(tmp_path: Path, copied_checkpoints: Checkpoints):
    path = part(folder(tmp_path, 3))
    hashes = path.with_suffix(".sha256")
    assert names(folder(tmp_path, 3)) == ["complete.json", path.name, hashes.name]
    assert hashes.read_bytes() == hashlib.sha256(path.read_bytes()).digest()  # of one block
    assert load_file(path).keys() == state(0).keys()


def test_a_save_that_fails_is_told_at_the_next(tmp_path: Path, copied_checkpoints: Checkpoints):
    (tmp_path / "run").rename(tmp_path / "aside")
    (tmp_path / "run").write_text("a file where the folder should be")
    copied_checkpoints.save(4, state(4))
    with pytest.raises(TrainingError, match="a checkpoint could not be written.*continues from it"):
        copied_checkpoints.finish()
    (tmp_path / "run").unlink()
    (tmp_path / "aside").rename(tmp_path / "run")
    save(copied_checkpoints, 4)
    assert resume_and_check(copied_checkpoints) == 4


STRAYS = ("step-xyz", "step-12.tmp", "step-", "step-3", "step-00000004 copy", "step-٤", "other")


@pytest.mark.parametrize("make", [
    Path.touch,
    lambda stray: stray.symlink_to("nowhere"),
    lambda stray: shutil.copytree(stray.parent / "step-00000003", stray),
], ids=["a file", "a link", "a folder with a marker"])  # fmt: skip
def test_what_else_lies_beside_the_checkpoints_stops_nobody(tmp_path, copied_checkpoints, make):
    strays = [tmp_path / "run" / name for name in STRAYS]
    for stray in strays:
        make(stray)
    assert resume_and_check(copied_checkpoints) == 3
    save(copied_checkpoints, 4)
    assert resume_and_check(copied_checkpoints) == 4
    for stray in strays:
        assert stray.is_symlink() or stray.exists()  # not ours to delete


@pytest.mark.parametrize(("name", "make"), [
    ("step-00000004", Path.touch), ("step-00000004", Path.mkdir),
    ("step-00000004/complete.json", Path.mkdir),
])  # fmt: skip
def test_a_stray_where_the_next_checkpoint_goes_makes_place(
    tmp_path, copied_checkpoints, name, make
):
    stray = tmp_path / "run" / name
    stray.parent.mkdir(exist_ok=True)
    make(stray)
    assert resume_and_check(copied_checkpoints) == 3
    save(copied_checkpoints, 4)
    assert resume_and_check(copied_checkpoints) == 4


def test_a_folder_that_another_machine_has_just_made_may_stay(tmp_path: Path, monkeypatch):
    target = tmp_path / "step-00000004"
    target.mkdir()
    with monkeypatch.context() as patched:  # it was not there when this machine looked
        patched.setattr(Path, "is_dir", lambda path: False)
        remove_path(target)
    assert target.is_dir()


def test_machines_that_share_a_folder_make_place_in_it(tmp_path: Path):
    with ThreadPoolExecutor(8) as machines:
        [*machines.map(lambda _: recreate_folder(tmp_path / "step"), range(400))]
    assert [*(tmp_path / "step").iterdir()] == []


def test_a_file_or_a_link_in_its_place_goes(tmp_path: Path):
    (tmp_path / "file").write_text("x")
    (tmp_path / "there").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "there")
    for name in ("file", "link"):
        remove_path(tmp_path / name)
    assert [path.name for path in tmp_path.iterdir()] == ["there"]
