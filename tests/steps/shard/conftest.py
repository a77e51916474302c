"""Running the shard job in the test's own process, in a container's folders; the tasks of several
instances are run by Ray, which starts once for all tests of the process.
"""

import atexit
import functools
import gzip
import io
import json
import os
import random
import socket
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import csv, parquet

from steps.shard import job
from steps.shard.ray_cluster import LOOPBACK, PORTS, Instances, open_node
from trainyard.common.errors import TrainyardError

SETTINGS = {"context_length": 8, "layers": 1, "heads": 1, "dim": 8}
ARGUMENTS = [
    "--workload", "language_model", "--workload_config", json.dumps(SETTINGS),
    "--key", "key", "--validation_share", "0.2", "--test_share", "0.2",
    "--shard_mb", "0.001", "--processes", "1",
]  # fmt: skip
RECORDS = [{"key": f"file-{n}.py", "text": f"text number {n} of them\n"} for n in range(200)]


def lines(records) -> bytes:
    return "".join(json.dumps(record) + "\n" for record in records).encode()


def as_csv(records) -> bytes:
    sink = io.BytesIO()
    csv.write_csv(pa.Table.from_pylist(records), sink)
    return sink.getvalue()


def as_parquet(records) -> bytes:
    sink = io.BytesIO()
    parquet.write_table(pa.Table.from_pylist(records), sink)
    return sink.getvalue()


def five_objects() -> dict[str, bytes]:
    """The RECORDS in five raw objects of several kinds."""
    parts = [RECORDS[start : start + 40] for start in range(0, 200, 40)]
    return {
        "a.jsonl": lines(parts[0]),
        "b/b.jsonl.gz": gzip.compress(lines(parts[1]), mtime=0),
        "b/c.csv": as_csv(parts[2]),
        "d.parquet": as_parquet(parts[3]),
        "e.jsonl.zst": pa.compress(lines(parts[4]), codec="zstd", asbytes=True),
    }


def container(root: Path, files: Mapping[str, bytes], host: str, hosts: list[str]) -> Path:
    """A processing container's folders with these raw objects; nothing is written twice."""
    (root / "config").mkdir(parents=True, exist_ok=True)
    (root / "processing/input/raw").mkdir(parents=True, exist_ok=True)
    cluster = {"current_host": host, "hosts": hosts}
    (root / "config/resourceconfig.json").write_text(json.dumps(cluster))
    for name, content in files.items():
        path = root / "processing/input/raw" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists() or path.read_bytes() != content:
            path.write_bytes(content)
    return root


def names(count: int) -> list[str]:
    return sorted(f"algo-{number + 1}" for number in range(count))


def parts_of(files: Mapping[str, bytes], count: int) -> list[dict[str, bytes]]:
    """What each of some instances gets of S3 under ShardedByS3Key."""
    return [{name: files[name] for name in sorted(files)[n::count]} for n in range(count)]


@functools.cache
def local_ray() -> dict[str, str]:
    """Start Ray for this process's tests, as a job does; each test's instances share it. Returns
    the variables by which others reach it.
    """
    home = tempfile.mkdtemp(prefix="tests-ray-")
    job_name = f"tests {os.getpid()} {time.monotonic_ns()}"
    group = Instances("algo-1", ["algo-1"], LOOPBACK, free_port(), job_name)
    before = dict(os.environ)
    with ExitStack() as failing:  # else the guard of a cluster that does not start ends the tests
        place = (Path(home), 2, Path(home, "output/message"))
        node = failing.enter_context(open_node(group, [], *place))
        from steps.shard import ray_program

        ray_program.start_head(node)
        stack = failing.pop_all()
    token = {name: os.environ[name] for name in ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN")}
    os.environ.clear()
    os.environ.update(before)
    atexit.register(stack.close)
    atexit.register(ray_program.ray.shutdown)  # runs first
    return token | {"RAY_ADDRESS": node.head_address}


def free_port() -> int:
    """A free port of this machine that no outgoing connection is given."""
    while True:
        port = random.SystemRandom().choice(PORTS)
        with suppress(OSError), socket.create_server((LOOPBACK, port)):
            return port


def run_all(roots: Sequence[Path], *arguments: str, base: Sequence[str] = ARGUMENTS) -> None:
    """Run all instances of a job, in these containers' folders; raise the error."""
    if len(roots) == 1:
        job.write_shards(job.parse_arguments([*base, *arguments, "--root", str(roots[0])]))
        return
    local_ray()
    from steps.shard import ray_program
    from steps.shard.ray_tasks import Instance

    words = [(*base, *arguments, "--root", str(root)) for root in roots]
    places = [Instance(root.name, own) for root, own in zip(roots, words, strict=True)]
    try:
        ray_program.Program(places, job.parse_arguments([*words[0]]), placed=False).run()
    except (ray_program.RayError, TrainyardError) as error:
        raise ray_program.translate_error(error) from None


def instances(
    folder: Path, files: Mapping[str, bytes], count: int, *arguments: str,
    base: Sequence[str] = ARGUMENTS,
) -> list[Path]:  # fmt: skip
    """Run some instances, each of which gets its part of the files; their containers."""
    roots = [
        container(folder / host, part, host, names(count))
        for host, part in zip(names(count), parts_of(files, count), strict=True)
    ]
    run_all(roots, *arguments, base=base)
    return roots


@pytest.fixture
def shard(tmp_path: Path) -> Callable[..., Path]:
    """Run the only instance of the job over files given as name → content; its container's root."""

    def run(files: dict[str, bytes], *arguments: str) -> Path:
        root = container(tmp_path / "algo-1-of-1", files, "algo-1", ["algo-1"])
        job.main([*ARGUMENTS, *arguments, "--root", str(root)])
        return root

    return run


@pytest.fixture
def failure(shard, capsys) -> Callable[..., str]:
    """The one message with which the job ends over these files."""

    def run(files: dict[str, bytes], *arguments: str, **options) -> str:
        with pytest.raises(SystemExit) as end:
            shard(files, *arguments, **options)
        assert end.value.code == 1
        printed = capsys.readouterr().out
        assert printed.rstrip().splitlines()[-1].startswith("error: ")
        return printed.rpartition("error: ")[2].strip()

    return run


@pytest.fixture(autouse=True)
def _threads_as_before(monkeypatch):
    """The job sets the threads of its own process, which here is the tests'."""
    monkeypatch.setenv("RAYON_NUM_THREADS", "1")
    monkeypatch.setenv("TOKENIZERS_PARALLELISM", "false")
    count = pa.cpu_count()
    yield
    pa.set_cpu_count(count)
