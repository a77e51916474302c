"""Two machines, each with its own rank's file: what one lacks comes from the other, or is missing.

A rank is a thread here, and the job's store is in memory.
"""

import logging
import re
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from torch.distributed import HashStore

from training.checkpoint import checkpoints as checkpoint
from training.checkpoint.checkpoints import Checkpoints
from training.checkpoint.rendezvous import StoreExchange
from training.strategies.ranks import Ranks


def state(step: int) -> dict[str, torch.Tensor]:
    """Return tensors so large that each of two ranks writes one of them."""
    return {"a": torch.full((5000,), step * 1.0), "b": torch.full((5000,), step * 2.0)}


def run(rank: int, folder: Path, steps: tuple[int, ...]) -> int | None:
    """Save these steps, or resume and compare each tensor; return the step."""
    with Checkpoints(folder, "run", 3, Ranks(rank, 0, 2, torch.device("cpu"))) as checkpoints:
        for step in steps:
            checkpoints.save(step, state(step))
        if steps:
            return None
        found = state(0)
        step = checkpoints.resume(lambda: found)
        assert all(torch.equal(found[n], t) for n, t in state(step or 0).items())
        return step


def on_both(folders: list[Path], steps: tuple[int, ...] = ()) -> list[int | None]:
    store = HashStore()
    with pytest.MonkeyPatch.context() as patch, ThreadPoolExecutor(2) as pool:
        patch.setenv("MASTER_ADDR", "127.0.0.1")
        patch.setenv("RANK", "0")
        patch.setattr(
            checkpoint, "_meeting", lambda ranks, _: StoreExchange(store, ranks.rank, 2, 30)
        )
        return [*pool.map(run, range(2), folders, [steps] * 2)]


@pytest.fixture(scope="module")
def saved(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("saved")
    on_both([folder / "0", folder / "1"], (1, 2))
    return folder


SHARDS = [f"shard-{number:05d}-model-00001-of-00001" for number in (1, 2)]
CASES = {
    "nothing": (lambda mine: None, 2, None),
    "a part": (
        lambda mine: (mine / f"{SHARDS[1]}.safetensors").unlink(),
        1,
        rf"{SHARDS[1]}\.safetensors is missing",
    ),
    "its hashes": (
        lambda mine: (mine / f"{SHARDS[1]}.sha256").unlink(),
        1,
        rf"{SHARDS[1]}\.sha256 is missing",
    ),
    "a part's end": (
        lambda mine: (mine / f"{SHARDS[1]}.safetensors").write_bytes(b"1234567"),
        1,
        rf"{SHARDS[1]}\.safetensors has 7 bytes, \d+ were written",
    ),
    "a byte": (
        lambda mine: corrupt(mine / f"{SHARDS[1]}.safetensors"),
        1,
        rf"{SHARDS[1]}\.safetensors is not as it was written: bytes 0 to 16384 have another hash",
    ),
    "the marker": (lambda mine: (mine / "complete.json").unlink(), 2, None),
    "a part of the marker": (lambda mine: (mine / "complete.json").write_text("{"), 2, None),
    "the newest": (
        shutil.rmtree,
        1,
        rf"{SHARDS[1]}\.safetensors is missing",
    ),
    "all": (
        lambda mine: shutil.rmtree(mine.parent),
        None,
        rf"{SHARDS[1]}\.safetensors is missing",
    ),
}


def corrupt(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[9000] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize(("lose", "step", "said"), CASES.values(), ids=CASES.keys())
def test_what_the_second_machine_lost_is_named_or_not_missed(
    tmp_path, saved, lose, step, said, caplog
):
    folders = [tmp_path / name for name in ("0", "1")]
    shutil.copytree(saved, tmp_path, dirs_exist_ok=True)
    lose(folders[1] / "run/step-00000002")
    with caplog.at_level(logging.WARNING):
        assert on_both(folders) == [step, step]
    torn = [line.getMessage() for line in caplog.records if "is torn" in line.getMessage()]
    if said is None:
        assert not torn
    else:
        assert torn[0].startswith(f"checkpoint {folders[0]}/run/step-00000002 is torn: ")
        assert re.search(said, torn[0]) and len(torn) == (2 if step is None else 1)


def test_a_file_that_only_the_other_machine_has_comes_from_there(tmp_path, saved):
    """One machine lost the markers, the other one its rank's files."""
    shutil.copytree(saved, tmp_path, dirs_exist_ok=True)
    for path in (tmp_path / "1/run/step-00000002").iterdir():
        if path.name.startswith(SHARDS[1]):
            path.rename(tmp_path / "0/run/step-00000002" / path.name)
    shutil.rmtree(tmp_path / "1")
    assert on_both([tmp_path / "0", tmp_path / "1"]) == [2, 2]
