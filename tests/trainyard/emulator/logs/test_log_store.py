"""Log files: appended events are read back, forwards and backwards, also after a kill."""

import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainyard.emulator.logs.log_store import LogStore, read_backward, read_forward
from trainyard.emulator.request_scope import ApiError

MESSAGES = st.lists(st.text(max_size=30), max_size=30)


@given(batches=st.lists(MESSAGES, max_size=4))
def test_events_come_back_in_order_both_ways_and_from_another_store(tmp_path_factory, batches):
    root = tmp_path_factory.mktemp("logs")
    store = LogStore(root)
    for batch in batches:
        store.append("/aws/sagemaker/TrainingJobs", "job/algo-1", batch)
    wanted = [m.encode("utf-8", "replace").decode() for batch in batches for m in batch]
    if batches:
        path = LogStore(root).find_stream("/aws/sagemaker/TrainingJobs", "job/algo-1").path
        forward, backward = list(read_forward(path, 0)), list(read_backward(path))
        assert [e.message for e in forward] == wanted
        assert backward == forward[::-1]
        assert [a.stop for a in forward[:-1]] == [b.start for b in forward[1:]]


def test_a_line_torn_by_a_kill_is_not_read_and_does_not_spoil_the_next(tmp_path: Path):
    store = LogStore(tmp_path)
    store.append("group", "stream", ["one", "two"])
    path = store.find_stream("group", "stream").path
    path.write_bytes(path.read_bytes() + b'{"t": 1, "m": "tor')
    assert [e.message for e in read_forward(path, 0)] == ["one", "two"]
    assert [e.message for e in read_backward(path)] == ["two", "one"]
    LogStore(tmp_path).append("group", "stream", ["three"])
    assert [e.message for e in read_forward(path, 0)] == ["one", "two", "three"]


def test_threads_do_not_mix_lines(tmp_path: Path):
    store = LogStore(tmp_path)
    threads = [
        threading.Thread(
            target=lambda n=n: [store.append("g", "s", [f"{n}-{i}"] * 3) for i in range(40)]
        )
        for n in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    messages = [e.message for e in read_forward(store.find_stream("g", "s").path, 0)]
    assert len(messages) == 480
    assert all(len(set(messages[i : i + 3])) == 1 for i in range(0, 480, 3))


@pytest.mark.parametrize("name", ["..", ".", "a/../../b", "/etc/passwd", "ü #%"])
def test_no_name_leaves_the_directory(tmp_path: Path, name: str):
    root = tmp_path / "logs"
    LogStore(root).append(name, name, ["message"])
    assert [p for p in tmp_path.rglob("*") if p.is_file()] == list(root.glob("*/*"))
    assert [name for name, _ in LogStore(root).list_groups()] == [name]
    assert [s.name for s in LogStore(root).list_streams(name)] == [name]


def test_says_what_is_missing(tmp_path: Path):
    store = LogStore(tmp_path)
    with pytest.raises(ApiError, match="log group does not exist"):
        store.find_stream("group", "stream")
    store.create_group("group")
    with pytest.raises(ApiError, match="log stream does not exist"):
        store.find_stream("group", "stream")
    with pytest.raises(ApiError, match="log group name must have"):
        store.append("g" * 300, "stream", ["message"])
