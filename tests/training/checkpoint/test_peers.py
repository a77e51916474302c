"""Bytes of files that another machine has."""

import os
import threading
from pathlib import Path

import pytest

from training.checkpoint.find_files import AT_ONCE, RemoteFile, Server
from training.checkpoint.tensor_table import Torn

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
    with pytest.raises(Torn, match="shard.safetensors is not on this machine, and 127.0.0.1:"):
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
    with pytest.raises(Torn, match="does not send it"):
        read(server, name, begin, 100, said)
