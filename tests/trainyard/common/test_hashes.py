"""Hashes that stand in files of years ago: their values must not move."""

from pathlib import Path

import pytest

from trainyard.common.hashes import hash_existing_file, hash_file, hash_json

EMPTY = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"


def test_a_file_is_hashed_block_by_block_and_says_so(tmp_path: Path):
    path, seen = tmp_path / "file", []
    path.write_bytes(b"abc" * 700_000)
    digest = "4e98d1c077705da58a1539b85fd0e829e6ccc59fa5fa76ce292fb2fb5f173e51"
    assert hash_file(path, seen.append) == digest
    assert seen == [2**20, 2**20, 2_100_000 - 2**21]


def test_no_file_is_told_apart_from_an_empty_one(tmp_path: Path):
    (tmp_path / "empty").write_bytes(b"")
    assert hash_existing_file(tmp_path / "empty") == hash_file(tmp_path / "empty") == EMPTY
    for none in (tmp_path / "missing", tmp_path, tmp_path / "empty/below"):
        assert hash_existing_file(none) is None
    with pytest.raises(FileNotFoundError):
        hash_file(tmp_path / "missing")


def test_the_order_of_keys_does_not_count_and_all_else_does():
    told = hash_json({"a": [1, 2.5, None], "ü": {"b": True, "c": "x"}})
    assert told == hash_json({"ü": {"c": "x", "b": True}, "a": [1, 2.5, None]})
    assert told == "e09387e09f9ef93dace9459426c8bdac91ce64b3dabcc2c8468873c619aadf19"
    assert hash_json([1, 2]) != hash_json([2, 1])
