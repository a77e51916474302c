"""What a killed job leaves is taken for nothing; a record that was changed counts for nothing."""

import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from steps.shard import job, shard_progress
from steps.shard.shard_plan import SPLITS
from steps.shard.shard_progress import PackedUnit
from tests.steps.shard.conftest import ARGUMENTS, container, five_objects

pytestmark = pytest.mark.long


def contents(output: Path) -> dict[str, bytes]:
    files = sorted(path for path in output.rglob("*") if path.is_file())
    return {str(path.relative_to(output)): path.read_bytes() for path in files}


def shard(root: Path, *arguments: str) -> dict[str, bytes]:
    job.main([*ARGUMENTS, *arguments, "--root", str(root)])
    return contents(root / "processing/output")


def kill_while_packing(monkeypatch: pytest.MonkeyPatch) -> None:
    work_off = job.Pool.run_tasks

    def work_off_until_units(pool, what, tasks):
        return work_off(pool, what, tasks) if what == "raw objects" else 1 / 0

    monkeypatch.setattr(job.Pool, "run_tasks", work_off_until_units)


@pytest.fixture
def finished_job(tmp_path: Path) -> Path:
    """A finished job's folders."""
    root = container(tmp_path / "done", five_objects(), "algo-1", ["algo-1"])
    shard(root)
    return root


def test_a_killed_job_leaves_no_manifest_and_nothing_that_a_retry_takes_over(
    finished_job, monkeypatch
):
    output = finished_job / "processing/output"
    whole = contents(output)
    with monkeypatch.context() as patch:
        kill_while_packing(patch)
        with pytest.raises(ZeroDivisionError):
            shard(finished_job, "--shard_mb", "0.002")
    assert not list(output.rglob("manifest-*.json"))
    for path in output.rglob("*.json"):
        path.write_text("damaged")
    for path in (output / "scratch/algo-1").iterdir():
        path.write_bytes(path.read_bytes()[:100])
    assert shard(finished_job) == whole


@pytest.mark.parametrize("what", ["raw objects", "units"])
def test_work_whose_record_is_damaged_is_named_and_never_left_out(
    finished_job, monkeypatch, capfd, what
):
    work_off, damaged = job.Pool.run_tasks, []

    def damage_a_record(pool, named, tasks):
        problems = work_off(pool, named, tasks)
        if named == what:
            stem = tasks[0].unit if named == "raw objects" else tasks[0].stem
            [path] = finished_job.glob(f"processing/output/progress/*/{stem}.json")
            path.write_bytes(path.read_bytes()[:-1])
            damaged.append(path)
        return problems

    monkeypatch.setattr(job.Pool, "run_tasks", damage_a_record)
    with pytest.raises(SystemExit):
        shard(finished_job)
    said = "the progress record of a finished task is missing or damaged"
    assert f"{damaged[0]}: {said}" in capfd.readouterr().out
    assert not list(finished_job.rglob("manifest-*.json"))


def test_files_of_other_instances_are_left_alone(finished_job):
    output = finished_job / "processing/output"
    others = {f"{folder}/.{'0' * 16}-00000.npy.abc.tmp" for folder in SPLITS}
    others |= {f"progress/algo-2/{'0' * 16}.json", "train/.manifest-algo-2.json.abc.tmp"}
    others |= {f"scratch/algo-2/{'0' * 16}-00000.arrow"}
    for name in others:
        (output / name).parent.mkdir(parents=True, exist_ok=True)
        (output / name).write_bytes(b"theirs")
    files = shard(finished_job)
    assert all(files[name] == b"theirs" for name in others)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50)
@given(data=st.data())
def test_a_changed_record_counts_for_nothing_or_says_the_same(tmp_path, data):
    record = PackedUnit(splits={})
    shard_progress.write_progress(record, "one", tmp_path)
    content = (tmp_path / "one.json").read_bytes()
    assert json.loads(content.partition(b"\n")[2]) == {"splits": {}}
    place = data.draw(st.integers(0, len(content) - 1))
    flipped = bytes([content[place] ^ data.draw(st.integers(1, 255))])
    changed = content[:place] + flipped + content[place + 1 :]
    assert shard_progress.parse_record(PackedUnit, changed) in (None, record)
    assert shard_progress.parse_record(PackedUnit, content[:place]) is None
