"""Two machines, each with its own rank's file: what one lacks comes from the other, or is missing.

A rank is a thread here, and the job's store is in memory.
"""

import logging
import os
import re
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from torch.distributed import HashStore

from training.checkpoint import checkpoints as checkpoint
from training.checkpoint.block_hashes import DamagedFile
from training.checkpoint.checkpoints import Checkpoints
from training.checkpoint.find_files import AT_ONCE, RemoteFile, Server
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
            checkpoint, "_create_exchange", lambda ranks, _: StoreExchange(store, ranks.rank, 2, 30)
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
    "a part": (lambda mine: shard(mine).unlink(), 1, "is missing"),
    "a part's end": (lambda mine: os.truncate(shard(mine), 7), 1, r"has 7 bytes, expected \d+"),
    "a byte": (
        lambda mine: corrupt(shard(mine)),
        1,
        "was changed since it was written: the hash of bytes 0 to 16384 does not match",
    ),
    "the marker": (lambda mine: (mine / "complete.json").unlink(), 2, None),
    "a part of the marker": (lambda mine: (mine / "complete.json").write_text("{"), 2, None),
    "the newest": (shutil.rmtree, 1, "is missing"),
    "all": (lambda mine: shutil.rmtree(mine.parent), None, "is missing"),
}


def shard(folder: Path) -> Path:
    return folder / f"{SHARDS[1]}.safetensors"


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
    torn = [line.getMessage() for line in caplog.records if "is damaged" in line.getMessage()]
    if said is None:
        assert not torn
    else:
        assert torn[0].startswith(f"checkpoint {folders[0]}/run/step-00000002 is damaged: ")
        assert re.search(rf"{SHARDS[1]}\.safetensors {said}", torn[0])
        assert len(torn) == (2 if step is None else 1)


def test_a_file_that_only_the_other_machine_has_comes_from_there(tmp_path, saved):
    """One machine lost the markers, the other one its rank's files."""
    shutil.copytree(saved, tmp_path, dirs_exist_ok=True)
    for path in (tmp_path / "1/run/step-00000002").iterdir():
        if path.name.startswith(SHARDS[1]):
            path.rename(tmp_path / "0/run/step-00000002" / path.name)
    shutil.rmtree(tmp_path / "1")
    assert on_both([tmp_path / "0", tmp_path / "1"]) == [2, 2]


CONTENT = os.urandom(AT_ONCE + 1000)


@pytest.fixture
def server(tmp_path: Path, monkeypatch):
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    monkeypatch.setenv("RANK", "0")
    (tmp_path / "shard.safetensors").write_bytes(CONTENT)
    (tmp_path / "secret").write_bytes(CONTENT)
    before = threading.active_count()
    server = Server(tmp_path, ["shard.safetensors"], "w" * 32)
    yield server
    server.close()
    assert threading.active_count() == before  # not even those that answered


def read(server: Server, name: str, begin: int, count: int, said: str = "w" * 32) -> bytes:
    into = bytearray(count)
    RemoteFile(name, [server.address], said).read(begin, memoryview(into))
    return bytes(into)


def test_ranges_of_a_file_come_as_they_are(server):
    into = bytearray(100)
    remote = RemoteFile("shard.safetensors", [("127.0.0.1", 1), server.address], "w" * 32)
    for begin in (5, 0, AT_ONCE):  # on one connection, which the server ends when it is closed
        remote.read(begin, memoryview(into))
        assert into == CONTENT[begin:][:100]
    assert read(server, "shard.safetensors", 7, AT_ONCE + 500) == CONTENT[7:][: AT_ONCE + 500]
    server.close()
    with pytest.raises(
        DamagedFile, match="shard.safetensors is not on this machine, and 127.0.0.1:"
    ):
        remote.read(0, memoryview(into))


@pytest.mark.parametrize(
    ("name", "begin", "said"),
    [
        ("shard.safetensors", 0, "v" * 32),
        ("secret", 0, "w" * 32),
        ("../secret", 0, "w" * 32),
        ("shard.safetensors", len(CONTENT) - 10, "w" * 32),
    ],
)
def test_nobody_else_gets_anything_else(server, name, begin, said):
    with pytest.raises(DamagedFile, match="does not send it"):
        read(server, name, begin, 100, said)
