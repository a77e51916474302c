"""The pool of workers: dying workers, full disks, orphans, spare cores."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from steps.shard import pool, raw_objects
from steps.shard.pool import ProgressLogger
from steps.shard.raw_objects import RawObject
from tests.conftest import CHECKOUT
from tests.steps.shard.conftest import ARGUMENTS, RECORDS, container, lines

pytestmark = pytest.mark.long

DEADLY = ["--workload", "tests.steps.shard.deadly"]
FILES = {f"{name}.jsonl": lines(RECORDS[:50]) for name in "abcd"}


def deed(name: str) -> bytes:
    """Texts enough for several units, and the deed in each of them."""
    return lines([*({"key": "k", "text": f"{name} {n}"} for n in range(50)), *RECORDS])


def test_a_worker_that_dies_is_reported_with_its_object(failure, tmp_path):
    message = failure(FILES | {"big.jsonl": deed("die")}, *DEADLY, "--processes", "2")
    said = r"00000\d-of-00000\d \(0.0 MB\): a worker process died while working on it \(SIGKILL\)"
    assert re.match(said, message)
    assert "out of memory" in message
    assert not list(tmp_path.rglob("manifest-*.json"))


@pytest.mark.parametrize("processes", ["1", "2"])
def test_a_full_disk_is_named_and_what_is_finished_stays(failure, shard, caplog, processes):
    message = failure(FILES | {"z.jsonl": lines([{"key": "k", "text": "full"}])}, *DEADLY,
                      "--processes", processes)  # fmt: skip
    assert "No space left on device; raise shard.volume_gb" in message


def test_a_defect_keeps_its_traceback_and_damaged_objects_are_collected(shard, failure):
    """An exception of the workload is not an error of ours."""
    with pytest.raises(RuntimeError, match="a defect of the workload"):
        shard(FILES | {"z.jsonl": deed("wrong")}, *DEADLY, "--processes", "2")
    damaged = {f"{name}.jsonl.gz": b"no gzip" for name in "xyz"}
    message = failure(damaged, "--processes", "2")
    assert [message.count(f"{name}.jsonl.gz: ") for name in "xyz"] == [1, 1, 1]
    assert message.index("x.jsonl.gz") < message.index("y.jsonl.gz") < message.index("z.jsonl.gz")


def start(root: Path, *arguments: str) -> subprocess.Popen:
    command = [sys.executable, "-m", "steps.shard.job", *ARGUMENTS, *arguments, "--root", str(root)]
    return subprocess.Popen(
        command, cwd=CHECKOUT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        start_new_session=True,
        # A shell starts what runs in the background with SIGINT ignored, and that is inherited.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(
    "how", [signal.SIGKILL, *(pytest.param(how, marks=pytest.mark.sweep) for how in (2, 15))]
)
def test_workers_die_with_the_job(tmp_path, how):
    root = container(tmp_path / "root", {"a.jsonl": deed("sleep")}, "algo-1", ["algo-1"])
    with start(root, *DEADLY, "--processes", "2") as job:
        sleeping = (line for line in job.stdout if line == "sleeping\n")
        assert next(sleeping) and next(sleeping)
        workers = psutil.Process(job.pid).children()
        assert len(workers) >= 2  # and Python's resource tracker
        os.kill(job.pid, how)
        _, alive = psutil.wait_procs(workers, timeout=60)
        assert not alive
        job.communicate(timeout=60)


ORPHANED = """
import multiprocessing, sys, time
from trainyard.common.process import die_with_parent
def work(platform):
    sys.platform = platform
    die_with_parent()
    print("sleeping", flush=True)
    time.sleep(600)
if __name__ == "__main__":
    one = multiprocessing.get_context("spawn").Process(target=work, args=("darwin",))
    one.start()
    print(one.pid, flush=True)
    time.sleep(600)
"""


@pytest.mark.slow
def test_without_the_kernels_help_a_thread_watches_the_parent(tmp_path):
    (tmp_path / "parent.py").write_text(ORPHANED)
    command, path = [sys.executable, str(tmp_path / "parent.py")], {"PYTHONPATH": str(CHECKOUT)}
    with subprocess.Popen(
        command, env=os.environ | path, stdout=subprocess.PIPE, text=True
    ) as parent:
        worker = psutil.Process(int(parent.stdout.readline()))
        assert parent.stdout.readline() == "sleeping\n"
        parent.kill()
        worker.wait(60)


@pytest.mark.parametrize(
    ("objects", "processes", "expected"), [(1, 6, (1, 6)), (2, 6, (2, 3)), (4, 6, (4, 1))]
)
def test_spare_cores_go_to_the_tokenizer(shard, monkeypatch, objects, processes, expected):
    monkeypatch.delenv("RAYON_NUM_THREADS")
    monkeypatch.setenv("TOKENIZERS_PARALLELISM", "false")
    pool.set_threads(3)  # where nobody set them
    assert os.environ["RAYON_NUM_THREADS"] == "3"
    assert os.environ["TOKENIZERS_PARALLELISM"] == "false"
    started = []
    monkeypatch.setattr(pool, "set_threads", lambda threads: started.append((1, threads)))

    def record_pool_size(self, tasks, pace, count, threads):
        started.append((count, threads))
        return pool._run_one_by_one(tasks, self._plan, id)

    monkeypatch.setattr(pool.Pool, "_run_in_pool", record_pool_size)
    shard(dict(list(FILES.items())[:objects]), "--processes", str(processes))
    assert started == [expected, (1, processes)]  # of the objects, of the only unit


def test_the_log_says_how_far_the_work_is(monkeypatch, caplog):
    monkeypatch.setattr("steps.shard.pool.INTERVAL", 0)
    objects = [RawObject(f"{n}", Path(f"{n}"), 10**6 * (n + 1), 0, "0" * 16) for n in range(3)]
    pace = ProgressLogger("objects", objects)
    with caplog.at_level("INFO"):
        pace.count_bytes(2_500_000)
        pace.count_done(objects[0])
    first, second = caplog.messages
    assert first.startswith("0 of 3 objects, 0.0 of 6.0 MB; 2.5 MB of records, ")
    assert re.fullmatch(
        r"1 of 3 objects, 1\.0 of 6\.0 MB; 2\.5 MB of records, [\d,.]+ MB/s", second
    )
    caplog.clear()
    monkeypatch.setattr("steps.shard.pool.INTERVAL", 1000)
    pace.log_if_due()
    assert not caplog.messages


def test_largest_objects_come_first(tmp_path):
    for name, size in (("a", 1), ("b", 3), ("c", 2), ("d", 3)):
        (tmp_path / name).write_bytes(bytes(size))
    assert [one.name for one in raw_objects.find_raw_objects(tmp_path, "")] == ["b", "d", "c", "a"]
