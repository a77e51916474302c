"""Killed and run again: what is finished and whole is taken over, all else is done again."""

import argparse
import json
import os
import shutil
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from steps.shard import job, progress, raw
from steps.shard.plan import SPLITS
from tests.steps.shard.conftest import ARGUMENTS, RECORDS, container, five_objects, lines

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
    path.write_bytes(path.read_bytes().replace(b'"format": 3', b'"format": 4'))


def _remove_shard(output: Path) -> None:
    next(output.glob("train/*-00001.npy")).unlink()


def _cut_shard(output: Path) -> None:
    path = next(output.glob("train/*-00001.npy"))
    path.write_bytes(path.read_bytes()[:-1])


def _garble_shard(output: Path) -> None:
    path = next(output.glob("test/*.npy"))
    path.write_bytes(path.read_bytes()[:-1] + b"\xff")


def _remove_record(output: Path) -> None:
    next(output.glob("progress/*.json")).unlink()


def _remove_all_but_shards(output: Path) -> None:
    shutil.rmtree(output / "progress")
    for split in SPLITS:
        (output / split / HOST).unlink()


def _leave_temporary_files(output: Path) -> None:
    unit = next(output.glob("progress/*.json")).stem
    next(output.glob("progress/*.json")).unlink()
    for name in (f"train/.{unit}-00000.npy.abc.tmp", f"progress/.{unit}.json.abc.tmp",
                 f"quarantine/.{unit}.jsonl.abc.tmp", f"train/{unit}-99999.npy",
                 f"train/.{HOST}.abc.tmp"):  # fmt: skip
        (output / name).write_bytes(b"half")


@pytest.mark.parametrize(
    "damage",
    [_remove_manifest, _change_manifest, _remove_shard, _cut_shard, _garble_shard, _remove_record,
     _remove_all_but_shards, _leave_temporary_files],
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
    assert "4 raw objects are done already" in caplog.text
    after = times(output)
    changed = {Path(name).name for name in before if before[name] != after[name]}
    units = {name[:16] for name in changed if not name.startswith(("manifest", "summary"))}
    assert len(units) == 1


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
    monkeypatch.setattr("steps.shard.plan.Plan.code", "0" * 64)
    with caplog.at_level("INFO"):
        again(done)
    assert "done already" not in caplog.text


def test_old_manifests_are_gone_while_shards_change(done, monkeypatch):
    """A kill between the first new shard and the last one must not leave the old manifests."""
    monkeypatch.setattr("steps.shard.job.shard_all", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        again(done, "--shard_mb", "0.002")
    assert not list(done.rglob("manifest-*.json"))


def options(root: Path) -> argparse.Namespace:
    return job.parse([*ARGUMENTS, "--root", str(root)])


def test_every_single_changed_byte_of_a_shard_is_found(done):
    plan = job._plan(options(done))
    objects = raw.find(done / "processing/input/raw", plan.settings)
    path = min((done / "processing/output").glob("*/*-*.npy"), key=lambda p: p.stat().st_size)
    content = path.read_bytes()
    assert len(progress.taken_over(objects, plan, 1)) == 5
    for place in range(len(content)):
        with path.open("r+b") as file:
            file.seek(place)
            file.write(bytes([content[place] ^ (1 << place % 8)]))
        found = progress.taken_over([one for one in objects if path.name.startswith(one.unit)],
                                    plan, 1)  # fmt: skip
        assert not found, f"byte {place}"
        path.write_bytes(content)
    assert len(progress.taken_over(objects, plan, 1)) == 5


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=100)
@given(data=st.data())
def test_a_changed_record_counts_for_nothing_or_says_the_same(done, data):
    plan = job._plan(options(done))
    one = raw.find(done / "processing/input/raw", plan.settings)[0]
    path = done / f"processing/output/progress/{one.unit}.json"
    content = path.read_bytes()
    whole = progress.read(one, plan)
    assert whole
    place = data.draw(st.integers(0, len(content) - 1))
    change = data.draw(st.integers(1, 255))
    path.write_bytes(content[:place] + bytes([content[place] ^ change]) + content[place + 1 :])
    assert progress.read(one, plan) in (None, whole)
    path.write_bytes(content[:place])
    assert progress.read(one, plan) is None
    path.write_bytes(content)


def test_files_of_other_instances_are_left_alone(done):
    output = done / "processing/output"
    others = {f"{folder}/.{'0' * 16}-00000.npy.abc.tmp" for folder in SPLITS}
    others |= {f"progress/{'0' * 16}.json", "train/.manifest-algo-2.json.abc.tmp"}
    for name in others:
        (output / name).write_bytes(b"theirs")
    _remove_record(output)
    again(done)
    assert all((output / name).read_bytes() == b"theirs" for name in others)
    assert os.listdir(output / "train")
