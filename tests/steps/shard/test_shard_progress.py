"""Killed and run again: what is finished and whole is taken over, all else is done again."""

import argparse
import json
import os
import shutil
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from steps.shard import job, raw_objects, shard_progress, survey
from steps.shard.shard_plan import SPLITS
from steps.shard.survey import Survey
from tests.steps.shard.conftest import ARGUMENTS, RECORDS, container, five_objects, lines

pytestmark = pytest.mark.long

HOST = "manifest-algo-1.json"


def contents(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def times(folder: Path) -> dict[str, int]:
    return {str(path): path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()}


def again(root: Path, *arguments: str) -> None:
    job.main([*ARGUMENTS, *arguments, "--root", str(root)])


@pytest.fixture
def done(tmp_path: Path) -> Path:
    """A finished job's folders."""
    root = container(tmp_path / "done", five_objects(), "algo-1", ["algo-1"])
    again(root)
    return root


def test_a_complete_output_is_left_as_it_is(done):
    before = times(done / "processing/output")
    again(done)
    assert times(done / "processing/output") == before


def _remove_manifest(output: Path) -> None:
    (output / "validation" / HOST).unlink()


def _change_manifest(output: Path) -> None:
    path = output / "test" / HOST
    path.write_bytes(path.read_bytes().replace(b'"format": 4', b'"format": 5'))


def _remove_shard(output: Path) -> None:
    next(output.glob("train/*-00001.npy")).unlink()


def _cut_shard(output: Path) -> None:
    path = next(output.glob("train/*-00001.npy"))
    path.write_bytes(path.read_bytes()[:-1])


def _garble_shard(output: Path) -> None:
    path = next(output.glob("test/*.npy"))
    path.write_bytes(path.read_bytes()[:-1] + b"\xff")


def _remove_record(output: Path) -> None:
    next(output.glob("progress/algo-1/*.json")).unlink()


def _remove_survey(output: Path) -> None:
    (output / "progress/algo-1/survey.json").unlink()


def _remove_unit(output: Path) -> None:
    stem = next(output.glob("train/*.npy")).name[:16]
    (output / f"progress/algo-1/{stem}.json").unlink()


def _remove_all_but_shards(output: Path) -> None:
    shutil.rmtree(output / "progress")
    for split in SPLITS:
        (output / split / HOST).unlink()


def _leave_temporary_files(output: Path) -> None:
    unit = next(output.glob("train/*.npy")).name[:16]
    (output / f"progress/algo-1/{unit}.json").unlink()
    (output / "scratch/algo-1").mkdir(parents=True)
    for name in (f"train/.{unit}-00000.npy.abc.tmp", f"progress/algo-1/.{unit}.json.abc.tmp",
                 f"train/{unit}-99999.npy", f"train/.{HOST}.abc.tmp",
                 "scratch/algo-1/.0123456789abcdef-00000.arrow.abc.tmp"):  # fmt: skip
        (output / name).write_bytes(b"half")


@pytest.mark.parametrize(
    "damage",
    [_remove_manifest, _change_manifest, _remove_shard, _cut_shard, _garble_shard, _remove_record,
     _remove_survey, _remove_unit, _remove_all_but_shards, _leave_temporary_files],
)  # fmt: skip
def test_whatever_is_missing_or_damaged_is_done_again(done, damage):
    output = done / "processing/output"
    before = contents(output)
    damage(output)
    assert contents(output) != before
    again(done)
    assert contents(output) == before


def test_only_what_is_missing_is_done_again(done, caplog):
    output = done / "processing/output"
    _garble_shard(output)
    before = times(output)
    with caplog.at_level("INFO"):
        again(done)
    after = times(output)
    shards = {name for name in before if name.endswith(".npy")}
    changed = {Path(name).name[:16] for name in shards if before[name] != after[name]}
    units = {Path(name).name[:16] for name in shards}
    assert len(changed) == 1 < len(units)
    assert f"{len(units) - 1} units are done already" in caplog.text


def test_what_was_read_is_not_read_again(done, monkeypatch, caplog):
    """Killed while it packs: the sorted runs are there, and each is looked at with its hash."""
    output = done / "processing/output"
    before = contents(output)
    monkeypatch.setattr("steps.shard.job._clear", lambda plan: None)
    shutil.rmtree(output)
    again(done)
    monkeypatch.undo()
    runs = sorted((output / "scratch/algo-1").glob("*.arrow"))
    assert len(runs) == 5
    runs[0].write_bytes(runs[0].read_bytes()[:-1])
    runs[1].write_bytes(runs[1].read_bytes()[:-9] + b"\xff" + runs[1].read_bytes()[-8:])
    _remove_unit(output)
    with caplog.at_level("INFO"):
        again(done)
    assert "5 raw objects are done already" in caplog.text
    assert "2 raw objects, " in caplog.text and "1 units, " in caplog.text
    assert contents(output) == before


@pytest.mark.parametrize(
    "change",
    [
        ["--shard_mb", "0.002"],
        ["--validation_share", "0.1"],
        ["--key", "text"],
        ["--unique"],
        ["--workload_config", json.dumps({"context_length": 16})],
    ],
    ids=lambda change: change[0],
)
def test_other_settings_take_over_nothing(done, tmp_path, change):
    again(done, *change)
    fresh = container(tmp_path / "fresh", five_objects(), "algo-1", ["algo-1"])
    again(fresh, *change)
    expected = contents(fresh / "processing/output")
    found = contents(done / "processing/output")
    for split in SPLITS:
        assert found[f"{split}/{HOST}"] == expected[f"{split}/{HOST}"]


def test_changed_added_and_removed_objects_are_noticed(done, tmp_path):
    folder = done / "processing/input/raw"
    (folder / "a.jsonl").write_bytes(lines(RECORDS[:39] + RECORDS[:1]))
    (folder / "d.parquet").unlink()
    (folder / "new.jsonl").write_bytes(lines([{"key": "new", "text": "new"}]))
    again(done)
    files = {name: body for name, body in five_objects().items() if name != "d.parquet"}
    files |= {name: (folder / name).read_bytes() for name in ("a.jsonl", "new.jsonl")}
    fresh = container(tmp_path / "fresh", files, "algo-1", ["algo-1"])
    again(fresh)
    for split in SPLITS:
        path = f"processing/output/{split}/{HOST}"
        assert (done / path).read_bytes() == (fresh / path).read_bytes()


def test_an_object_of_the_same_size_is_known_by_its_time(done):
    path = done / "processing/input/raw/a.jsonl"
    before = contents(done / "processing/output")
    path.write_bytes(path.read_bytes().replace(b"text number 7 ", b"text number 8 "))
    again(done)
    assert contents(done / "processing/output") != before


def test_other_code_takes_over_nothing(done, monkeypatch, caplog):
    monkeypatch.setattr("steps.shard.shard_plan.Plan.code", "0" * 64)
    with caplog.at_level("INFO"):
        again(done)
    assert "done already" not in caplog.text


def test_old_manifests_are_gone_while_shards_change(done, monkeypatch):
    """A kill between the first new shard and the last one must not leave the old manifests."""
    monkeypatch.setattr("steps.shard.job.Pool.work_off", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        again(done, "--shard_mb", "0.002")
    assert not list(done.rglob("manifest-*.json"))


def options(root: Path) -> argparse.Namespace:
    return job.parse([*ARGUMENTS, "--root", str(root)])


def test_every_single_changed_byte_of_a_shard_is_found(done):
    plan = job._plan(options(done), "algo-1")
    objects = raw_objects.find(done / "processing/input/raw", plan.settings)
    found = shard_progress.read(Survey, "survey", survey.identity(objects, plan), plan.progress)
    units = found.units(plan)
    path = min((done / "processing/output").glob("*/*-*.npy"), key=lambda p: p.stat().st_size)
    content = path.read_bytes()
    assert len(shard_progress.already_packed(units, plan, 1)) == len(units)
    own = [one for one in units if path.name.startswith(one.stem)]
    for place in range(len(content)):
        with path.open("r+b") as file:
            file.seek(place)
            file.write(bytes([content[place] ^ (1 << place % 8)]))
        assert not shard_progress.already_packed(own, plan, 1), f"byte {place}"
        path.write_bytes(content)
    assert len(shard_progress.already_packed(units, plan, 1)) == len(units)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=100)
@given(data=st.data())
def test_a_changed_record_counts_for_nothing_or_says_the_same(done, data):
    plan = job._plan(options(done), "algo-1")
    one = raw_objects.find(done / "processing/input/raw", plan.settings)[0]
    path = done / f"processing/output/progress/algo-1/{one.unit}.json"
    content = path.read_bytes()

    def read():
        identity = shard_progress.identity(one, plan)
        return shard_progress.read(shard_progress.Read, one.unit, identity, plan.progress)

    whole = read()
    assert whole
    place = data.draw(st.integers(0, len(content) - 1))
    change = data.draw(st.integers(1, 255))
    path.write_bytes(content[:place] + bytes([content[place] ^ change]) + content[place + 1 :])
    assert read() in (None, whole)
    path.write_bytes(content[:place])
    assert read() is None
    path.write_bytes(content)


def test_files_of_other_instances_are_left_alone(done):
    output = done / "processing/output"
    others = {f"{folder}/.{'0' * 16}-00000.npy.abc.tmp" for folder in SPLITS}
    others |= {f"progress/algo-2/{'0' * 16}.json", "train/.manifest-algo-2.json.abc.tmp"}
    others |= {f"scratch/algo-2/{'0' * 16}-00000.arrow"}
    for name in others:
        (output / name).parent.mkdir(parents=True, exist_ok=True)
        (output / name).write_bytes(b"theirs")
    _remove_record(output)
    again(done)
    assert all((output / name).read_bytes() == b"theirs" for name in others)
    assert os.listdir(output / "train")
