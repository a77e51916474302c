"""Several instances, each with a part of the raw data, write the dataset that one writes."""

import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from steps.shard import job, raw_objects, ray_cluster, survey_pass
from steps.shard.shard_plan import SPLITS
from tests.conftest import CHECKOUT
from tests.steps.shard import plain_counts
from tests.steps.shard.conftest import (
    ARGUMENTS,
    RECORDS,
    container,
    instances,
    lines,
    local_ray,
    names,
    parts_of,
    run_all,
)
from tests.steps.shard.corpora import BAD, CASES, texts
from tests.training.trainings import read_manifests
from training.data.dataset import Dataset
from trainyard.common.errors import TrainyardError

pytestmark = pytest.mark.long

RECORDED = json.loads(Path(__file__).with_name("recorded_fingerprints.json").read_text())
"""Case → split → fingerprint, as one instance wrote them when every instance read all raw data."""


def together(folder: Path, roots: Sequence[Path]) -> Path:
    """What the instances uploaded, in one folder, as S3 has it; no file comes twice."""
    for root in roots:
        for path in sorted((root / "processing/output").rglob("*")):
            place = folder / path.relative_to(root / "processing/output")
            if path.is_file() and "progress" not in path.parts:
                assert not place.exists(), place
                place.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(path, place)
    return folder


def fingerprints(output: Path) -> dict[str, str]:
    found = {}
    for split in SPLITS:
        data = Dataset(output / split)
        data.check_files()
        found[split] = data.fingerprint
    return found


def raw(output: Path) -> dict[str, tuple[int, int, int]]:
    """Name → (records, duplicates, quarantined), the same in all manifests."""
    told = Dataset(output / "train").manifests.raw
    columns = told["records"], told["duplicates"], told["quarantined"]
    return dict(zip(told["name"], zip(*columns, strict=True), strict=True))


def bad(output: Path) -> list[tuple[str, int]]:
    paths = (output / "quarantine").glob("*.jsonl")
    found = [json.loads(line) for path in paths for line in path.read_text().splitlines()]
    return sorted((one["source"], one["line"]) for one in found)


@pytest.mark.parametrize(
    ("name", "count"),
    [
        # In make test two instances, one and seven of one corpus. The messy one has 2,000 files.
        (name, count)
        if (count == 2 and name != "messy") or (name, count) in (("texts", 1), ("texts", 7))
        else pytest.param(name, count, marks=pytest.mark.sweep)
        for name in CASES
        for count in (1, 2, 4, 7, 16)
    ],
)
def test_any_number_of_instances_gives_the_recorded_dataset(tmp_path, name, count, monkeypatch):
    case = CASES[name]
    monkeypatch.setattr(survey_pass, "ROWS", 31)
    roots = instances(tmp_path, case.files, count, base=case.arguments)
    output = together(tmp_path / "all", roots)
    assert fingerprints(output) == RECORDED[name]
    assert len(bad(output)) == len(set(bad(output)))
    summaries = {(output / f"quarantine/summary-{host}.json").read_bytes() for host in names(count)}
    assert len({json.dumps(json.loads(one), sort_keys=True) for one in summaries}) == 1
    if "image" in name:
        broken = {f"{folder}/x/broken.png" for folder in ("first", "second")}
        assert {source for source, _ in bad(output)} >= broken
        assert len(raw(output)) == 4
        return
    assert raw(output) == plain_counts.counts(case.files, "stay" not in name)
    assert set(bad(output)) == plain_counts.bad_lines(case.files)


def run_shared_folder(
    folder: Path, files: Mapping[str, bytes], count: int, *arguments: str
) -> Path:
    """Run instances that see all files and write into one folder; the folder."""
    source = container(folder / "raw", files, "", []) / "processing/input/raw"
    places = ["--input", str(source), "--output", str(folder / "out")]
    roots = [container(folder / host, {}, host, names(count)) for host in names(count)]
    run_all(roots, *arguments, *places, base=CASES["images"].arguments)
    return folder / "out"


def test_files_taken_together_on_a_shared_folder_are_read_by_one_instance_each(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(raw_objects, "TOGETHER", 5)
    output = run_shared_folder(tmp_path, CASES["images"].files, 3)
    assert fingerprints(output) == RECORDED["images"]
    assert not (output / "scratch").exists()
    assert len(bad(output)) == len(set(bad(output))) > 0
    objects = sum(name.endswith("files)") for name in raw(output))
    assert objects == len([n for n in raw(output) if " … " in n]) > 8


def test_an_instance_without_a_file_packs_its_part(tmp_path):
    roots = instances(tmp_path, {"a.jsonl": lines(RECORDS)}, 3)
    output = together(tmp_path / "all", roots)
    packed = [len(one.sources) for one in read_manifests(output / "train").values()]
    assert len(packed) == 3 and sum(map(bool, packed)) == min(3, sum(packed)) > 1
    assert raw(output) == {"a.jsonl": (200, 0, 0)}


@pytest.fixture
def roots(tmp_path) -> list[Path]:
    """Two instances' folders, with some files each."""
    halves = parts_of(texts(), 2)
    return [
        container(tmp_path / host, part, host, names(2))
        for host, part in zip(names(2), halves, strict=True)
    ]


def read_refusal(roots: Sequence[Path], *arguments: str) -> str:
    with pytest.raises(TrainyardError) as caught:
        run_all(roots, *arguments)
    assert not [path for root in roots for path in root.rglob("manifest-*.json")]
    return str(caught.value)


BROKEN = "processing/input/raw/web/broken.jsonl.gz"


def test_what_is_wrong_on_one_instance_or_on_all_ends_the_job_with_its_words(roots):
    assert "2 of 499 records are bad, more than shard.max_bad_share" in read_refusal(roots)
    words = ["--inputs", "books", "code", "web", "news"]
    assert "raw/news: holds no file" in read_refusal(roots, *BAD, *words)
    (roots[1] / BROKEN).write_bytes(b"no gzip")
    assert read_refusal(roots, *BAD).startswith("web/broken.jsonl.gz: ")
    for root in roots:
        (root / BROKEN.removesuffix(".gz")).write_bytes(lines(RECORDS[:3]))
    message = read_refusal(roots, *BAD)
    assert "broken.jsonl: algo-1 and algo-2 both have this file" in message
    assert "ShardedByS3Key" in message


def test_a_disk_that_cannot_hold_the_share_is_refused_before_anything_is_read(roots, monkeypatch):
    monkeypatch.setattr("steps.shard.ray_program.COPIES", 10**9)
    message = read_refusal(roots, *BAD)
    assert "algo-1: its output has room for" in message and "raise shard.volume_gb" in message
    assert not [path for root in roots for path in root.rglob("*.arrow")]


def test_many_waves_give_the_same_dataset(tmp_path, monkeypatch):
    monkeypatch.setattr("steps.shard.ray_program.WAVE_BYTES", 1000)
    output = together(tmp_path / "all", instances(tmp_path, texts(), 3, *BAD))
    assert fingerprints(output) == RECORDED["texts"]


def test_the_head_is_the_first_instance_and_its_port_differs_by_job(tmp_path, monkeypatch):
    monkeypatch.setattr(ray_cluster, "resolve_address", lambda name: "10.0.0.1")
    found = []
    for number, job_name in enumerate(["one", "one", "two"]):
        root = container(tmp_path / f"{number}", {}, f"algo-{number % 2 + 1}", names(2))
        about = json.dumps({"ProcessingJobArn": job_name})
        (root / "config/processingjobconfig.json").write_text(about)
        found.append(ray_cluster.read_instances(root))
    assert found[0].port == found[1].port != found[2].port
    assert found[0].head == "algo-1" and found[1].address == "10.0.0.1"
    for unknown in (None, "127.0.1.1"):
        monkeypatch.setattr(ray_cluster, "resolve_address", lambda name, known=unknown: known)
        alone = ray_cluster.read_instances(tmp_path / "0")
        assert alone.head == alone.address == "127.0.0.1"


def test_a_small_shared_memory_has_the_objects_on_the_disk(monkeypatch, tmp_path):
    assert ray_cluster.choose_object_store()[1] == ray_cluster.SHARED
    usage = type(shutil.disk_usage("/"))(64 * 2**20, 0, 64 * 2**20)  # docker's default
    monkeypatch.setattr(ray_cluster.shutil, "disk_usage", lambda path: usage)
    size, place = ray_cluster.choose_object_store()
    assert place is None and size >= ray_cluster.LEAST_STORE


def test_several_instances_without_ray_are_refused_by_name(roots, monkeypatch):
    monkeypatch.setattr(job, "find_spec", lambda name: None)
    with pytest.raises(TrainyardError, match="ray: is not installed, and several instances need"):
        job.write_shards(job.parse_arguments([*ARGUMENTS, "--root", str(roots[0])]))


def test_one_instance_imports_nothing_of_ray(tmp_path, run_python):
    root = container(tmp_path / "algo-1", texts(), "algo-1", ["algo-1"])
    code = "import sys; from steps.shard import job; job.main(sys.argv[1:]); print(*sys.modules)"
    done = run_python("-c", code, *ARGUMENTS, *BAD, "--root", str(root))
    assert done.returncode == 0, done.stderr
    assert "pyarrow" in done.stdout.split() and "ray" not in done.stdout.split()


def start_instances(roots: Sequence[Path], *arguments: str) -> list[subprocess.Popen]:
    """Start the job's instances as processes, as SageMaker does; each logs into its folder."""
    words = [sys.executable, "-m", "steps.shard.job", *CASES["texts"].arguments, *arguments]
    about = json.dumps({"ProcessingJobArn": f"{roots[0]} {time.monotonic_ns()}"})
    running = []
    for root in roots:
        (root / "config/processingjobconfig.json").write_text(about)
        with (root / "log").open("wb") as log:
            running.append(
                subprocess.Popen(
                    [*words, "--root", str(root)], cwd=CHECKOUT, stdout=log, stderr=log
                )
            )
    return running


def wait_for_end(running: Sequence[subprocess.Popen], seconds: float = 120) -> list[int]:
    try:
        return [one.wait(seconds) for one in running]
    finally:
        for one in running:
            one.kill()


def family(process: subprocess.Popen) -> list[psutil.Process]:
    with suppress(psutil.Error):
        return psutil.Process(process.pid).children(recursive=True)
    return []


def test_a_cluster_of_processes_gives_the_dataset_and_leaves_nothing(roots):
    running = start_instances(roots)
    listening, everyone = set(), {}
    while any(one.poll() is None for one in running):
        for one in (one for process in running for one in family(process)):
            everyone[one.pid] = one
            with suppress(psutil.Error):
                places = one.net_connections("inet")
                listening |= {c.laddr.ip for c in places if c.status == psutil.CONN_LISTEN}
        time.sleep(0.2)
    assert wait_for_end(running) == [0, 0], "".join((root / "log").read_text() for root in roots)
    assert fingerprints(together(roots[0].parent / "all", roots)) == RECORDED["texts"]
    assert {one.removeprefix("::ffff:") for one in listening} == {"127.0.0.1"}
    assert len(everyone) > 4 and not psutil.wait_procs(everyone.values(), timeout=20)[1]
    assert not [*(roots[0] / "processing/output").glob("scratch")]


def test_a_cluster_of_ones_own_shards_a_folder_that_its_nodes_share(tmp_path, run_python):
    """It needs nothing of this checkout: the code goes there with the job."""
    known = local_ray()
    root = container(tmp_path, texts(), "", [])
    places = ["--input", root / "processing/input/raw", "--output", root / "out"]
    address = ["--address", known["RAY_ADDRESS"]]
    words = [*CASES["texts"].arguments, *address]
    done = run_python("-m", "steps.shard.job", *words, *map(str, places), env=known)
    assert done.returncode == 0, done.stdout + done.stderr
    assert fingerprints(tmp_path / "out") == RECORDED["texts"]
    done = run_python("-m", "steps.shard.job", *words, env=known)
    assert "error: --address: needs --input and --output, folders that every node" in done.stdout


@pytest.mark.parametrize(
    ("there", "patience", "said"),
    [
        (0, "3", "algo-2: did not join algo-1 within 3 s"),
        (1, "1", "the job's first instance did not answer for 1 s"),
    ],
)
def test_an_instance_that_does_not_come_is_named(roots, there, patience, said):
    assert wait_for_end(start_instances([roots[there]], "--patience", patience)) == [1]
    assert said in (roots[there] / "output/message").read_text()


@pytest.mark.sweep
@pytest.mark.parametrize(("victim", "said"), [(0, "is gone, or Ray has ended"), (1, "is lost")])
def test_the_loss_of_an_instance_is_named_by_the_other(roots, victim, said):
    running = start_instances(roots)
    while "raw objects on" not in (roots[0] / "log").read_text():
        assert running[0].poll() is None
        time.sleep(0.1)
    running[victim].kill()
    assert sorted(wait_for_end(running, 200)) == [-9, 1]
    assert said in (roots[1 - victim] / "output/message").read_text()
    assert wait_for_end(start_instances(roots)) == [0, 0]
    assert fingerprints(together(roots[0].parent / "all", roots)) == RECORDED["texts"]


@pytest.mark.sweep
@pytest.mark.parametrize("number", range(30))
def test_an_instance_killed_at_any_time_ends_the_job_and_a_retry_gives_the_same(roots, number):
    """The first one, the other one, or a process that Ray started there."""
    source = random.Random(number)
    victim, inside = source.randrange(2), source.random() < 0.5
    # One that is killed before it joins is waited for: half an hour, if nothing else is said.
    running = start_instances(roots, "--patience", "60")
    time.sleep(source.uniform(0, 25))
    chosen = family(running[victim]) if inside else []
    with suppress(psutil.Error):
        (source.choice(chosen) if chosen else psutil.Process(running[victim].pid)).kill()
    codes = wait_for_end(running, 300)
    if codes != [0, 0]:
        for root, code, process in zip(roots, codes, running, strict=True):
            assert code or process is not running[victim]
            assert code in (0, 1, -9) and (code != 1 or (root / "output/message").read_text())
        assert wait_for_end(start_instances(roots)) == [0, 0]
    assert fingerprints(together(roots[0].parent / "all", roots)) == RECORDED["texts"]


FILLED_DISK = """
import random, sys, time
from contextlib import suppress
from pathlib import Path

from tests.steps.shard.conftest import container, names, parts_of
from tests.steps.shard.corpora import CASES
from tests.steps.shard import test_instances
from tests.steps.shard.test_instances import RECORDED, fingerprints, together, wait_for_end

base, moment = Path(sys.argv[1]), sys.argv[2]
files = CASES["texts"].files
roots = [
    container(base / host, part, host, names(2))
    for host, part in zip(names(2), parts_of(files, 2), strict=True)
]
running = test_instances.start_instances(roots, "--patience", "60")
while moment not in (roots[0] / "log").read_text() and running[0].poll() is None:
    time.sleep(0.02)
with suppress(OSError), (roots[1] / "filler").open("wb", buffering=0) as filler:
    while True:
        filler.write(bytes(2**20))
codes = wait_for_end(running, 200)
logs = "".join((root / "log").read_text() for root in roots)
assert codes in ([0, 0], [1, 1]), (codes, logs)
assert codes == [0, 0] or "No space left" in logs or "is lost" in logs, logs
(roots[1] / "filler").unlink()
if codes != [0, 0]:
    assert wait_for_end(test_instances.start_instances(roots), 200) == [0, 0]
assert fingerprints(together(base / "all", roots)) == RECORDED["texts"]
print("ended with", codes)
"""


@pytest.mark.sweep
@pytest.mark.parametrize("moment", ["raw objects on", "surveying", "gathering", "units on"])
@pytest.mark.parametrize("shared_mb", [64, 1000])
def test_a_disk_that_fills_ends_the_job_and_a_retry_gives_the_same(moment, shared_mb):
    """With 64 MB of shared memory, as docker gives it, the object store lies on that disk."""
    if subprocess.run(["unshare", "-rm", "true"], check=False, capture_output=True).returncode:
        pytest.skip("no user namespaces here")
    with tempfile.TemporaryDirectory(dir="/var/tmp") as name:  # /dev/shm is hidden in there
        folder = Path(name)
        (folder / "algo-2").mkdir()
        (folder / "program.py").write_text(FILLED_DISK)
        mounts = (
            f"mount -t tmpfs -o size={shared_mb}m tmpfs /dev/shm && "
            f"mount -t tmpfs -o size=400m tmpfs {folder}/algo-2 && "
            f"exec {sys.executable} {folder}/program.py {folder} '{moment}'"
        )
        done = subprocess.run(
            ["unshare", "-rm", "sh", "-c", mounts],
            check=False, capture_output=True, text=True, cwd=CHECKOUT,
            env={**os.environ, "PYTHONPATH": str(CHECKOUT)},
        )  # fmt: skip
    assert done.stdout.startswith("ended with"), done.stdout + done.stderr


STOPPED_RAYLET = """
import signal, tempfile
from pathlib import Path

import psutil

from steps.shard.ray_cluster import Instances, Node

with tempfile.TemporaryDirectory() as folder:
    home = Path(folder)
    instances = Instances("algo-1", ["algo-1"], port=19377, job="stopped")
    node = Node(instances, [], home, home / "spill", 1, home / "message")
    node.start(head=True)
    children = psutil.Process().children(recursive=True)
    [raylet] = [child for child in children if child.name() == "raylet"]
    agents = raylet.children()
    raylet.send_signal(signal.SIGSTOP)
    node.stop()
    assert agents and not psutil.wait_procs(agents, timeout=3)[1]
"""


def test_a_raylet_that_cannot_end_its_agents_leaves_none(run_python):
    """As on a machine that is so busy that Ray kills it before it has come to that."""
    done = run_python("-c", STOPPED_RAYLET)
    assert done.returncode == 0, done.stdout + done.stderr
