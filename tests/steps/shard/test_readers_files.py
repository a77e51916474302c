"""Folders of files and tar archives: each file, or each sample, is a record."""

import json
from pathlib import Path

import pytest

from steps.shard import raw_objects
from steps.shard.manifests import Quarantine
from steps.shard.readers import read_records
from steps.shard.readers.batch import merge_batches
from tests.steps.shard.readings import convert_batch, limits, read_all, reasons, tar, write
from training.workloads import Column
from trainyard.common.errors import DataError

FILES = {"path": Column("text"), "bytes": Column("bytes"), "label": Column("category")}
SAMPLES = {"__key__": Column("text"), "jpg;png": Column("bytes"), "cls": Column("number")}


def folder_of(root: Path, files: dict[str, bytes]) -> Path:
    for name, content in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(content)
    return root


def rows_of(one: raw_objects.RawObject, columns: dict[str, Column] = FILES):
    return convert_batch(merge_batches(list(read_records(one.path, columns, one.files))))


def test_a_folder_of_images_becomes_records_with_their_first_folder_as_label(tmp_path: Path):
    files = {"cats/a.JPG": b"1", "cats/deep/b.png": b"2", "dogs/c.webp": b"3", "dogs/_d.jpg": b"4"}
    found = {one.name: one for one in raw_objects.find_raw_objects(folder_of(tmp_path, files), "")}
    assert set(found) == {"cats/a.JPG … cats/deep/b.png (2 files)", "dogs/c.webp"}
    assert [one.folder for one in found.values()] == ["cats", "dogs"]
    rows = [row for one in found.values() for row in rows_of(one)[0]]
    expected = [(name, files[name], name.split("/")[0]) for name in list(files)[:3]]
    assert rows == expected


def test_many_files_are_few_raw_objects_and_a_change_of_one_is_seen(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(raw_objects, "TOGETHER", 3)
    monkeypatch.setattr(raw_objects, "TOGETHER_BYTES", 100)
    sizes = {"a/1.jpg": 1, "a/2.jpg": 1, "a/3.jpg": 1, "a/4.jpg": 60, "a/5.jpg": 60, "b/6.jpg": 300}
    folder_of(tmp_path, {name: bytes(size) for name, size in sizes.items()})
    before = raw_objects.find_raw_objects(tmp_path, "")
    assert sorted(one.files for one in before) == [
        ("a/1.jpg", "a/2.jpg", "a/3.jpg"),
        ("a/4.jpg",),
        ("a/5.jpg",),
        ("b/6.jpg",),
    ]
    (tmp_path / "a/2.jpg").write_bytes(b"x")
    after = raw_objects.find_raw_objects(tmp_path, "")
    changed = set(before) ^ set(after)
    assert {one.files[0] for one in changed} == {"a/1.jpg"}


def test_what_is_bad_is_named_by_its_file(tmp_path: Path):
    folder_of(tmp_path, {"c/a.jpg": b"", "c/b.jpg": b"good", "c/d.jpg": b"odd"})
    columns = FILES | {"bytes": Column("bytes", refuse=lambda v: "is odd" if len(v) % 2 else None)}
    [one] = raw_objects.find_raw_objects(tmp_path, "")
    rows, lines, bad = rows_of(one, columns)
    assert (rows, lines) == ([("c/b.jpg", b"good", "c")], [2])
    quarantine = Quarantine(tmp_path, "unit", one.files, 1.0)
    quarantine.add(bad, 3)
    quarantine.close()
    told = [json.loads(line) for line in (tmp_path / "unit.jsonl").read_text().splitlines()]
    assert [(one["source"], one["line"]) for one in told] == [("c/a.jpg", 1), ("c/d.jpg", 1)]
    assert quarantine.reasons == [
        "c/a.jpg: has 0 bytes, expected 1 to 67108864",
        "c/d.jpg: column 'bytes' is odd",
    ]


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"text": Column("text")}, "a.jpg: has no column 'text'.*'path', 'bytes', 'label'"),
        ({"bytes": Column("text")}, "column 'bytes' is declared as text"),
        ({"label": Column("bytes")}, "column 'label' is declared as bytes"),
    ],
)
def test_columns_that_a_file_cannot_have_are_named(tmp_path: Path, columns: dict, message: str):
    """One in no folder has no label."""
    [one] = raw_objects.find_raw_objects(folder_of(tmp_path, {"a.jpg": b"1"}), "")
    assert reasons(rows_of(one)[2]) == {1: "column 'label' is required and has no value"}
    with pytest.raises(DataError, match=message):
        rows_of(one, columns)


def test_batches_of_files_are_small(tmp_path: Path):
    names = [f"c/{n}.jpg" for n in range(9)]
    [one] = raw_objects.find_raw_objects(
        folder_of(tmp_path, {name: bytes(30) for name in names}), ""
    )
    with limits(chunk=100):
        batches = list(read_records(one.path, FILES, one.files))
    assert [len(batch.records) for batch in batches] == [3, 3, 3]


def test_members_of_one_name_are_a_sample(tmp_path: Path):
    members = {
        "n/0001.jpg": b"one", "n/0001.CLS": "3\n", "__meta__/x.json": "{}",
        "n/0002.png": b"two", "n/0002.a.json": "{}", "n/0002.cls": "4",
        "n/0003.cls": "5", "readme": "no end",
    }  # fmt: skip
    rows, lines, bad = read_all(write(tmp_path, "a.tar", tar(members)), SAMPLES)
    assert (rows, lines) == ([("n/0001", b"one", 3.0), ("n/0002", b"two", 4.0)], [1, 2])
    assert [(one.line, one.excerpt, one.reason) for one in bad] == [
        (3, "n/0003", "column 'jpg;png' is required and has no value; the sample has cls")
    ]


def test_a_bad_member_costs_its_sample_only(tmp_path: Path):
    members = {"1.jpg": bytes(101), "1.cls": "1", "2.jpg": b"2", "2.cls": "x", "3.jpg": b"3"}
    path = write(tmp_path, "a.tar", tar(members | {"3.cls": "3"}))
    with limits(record=100):
        rows, lines, bad = read_all(path, SAMPLES)
    assert (rows, lines) == ([("3", b"3", 3.0)], [3])
    assert reasons(bad) == {
        1: "member '1.jpg' is longer than 100 bytes; the sample has jpg, cls",
        2: "column 'cls' is 'x', expected a number; the sample has jpg, cls",
    }


def test_an_archive_cut_off_anywhere_is_an_error(tmp_path: Path):
    """The cuts include places between two members, and in the empty blocks at the end."""
    whole = tar({"1.jpg": bytes(700), "1.cls": "1", "2.jpg": b"2", "2.cls": "2"})
    for size in (0, 511, 512, 1024, 1536, 2048, 2560, 3072, len(whole) - 10240 + 512):
        path = write(tmp_path, "a.tar", whole[:size])
        with pytest.raises(DataError, match=r"a.tar: cannot be read as tar to its end"):
            read_all(path, SAMPLES)
    assert len(read_all(write(tmp_path, "a.tar", whole), SAMPLES)[0]) == 2
    damaged = whole[:2560] + b"x" + whole[2561:]  # the third member's header
    with pytest.raises(DataError, match="is neither a member nor the end"):
        read_all(write(tmp_path, "a.tar", damaged), SAMPLES)
