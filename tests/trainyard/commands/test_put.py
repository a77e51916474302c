"""``trainyard run --put`` puts local files where a pipeline looks for AWS's public data."""

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from trainyard.commands.put import parsed
from trainyard.common.errors import EmulatorError

LIST = """
import boto3
for page in boto3.client("s3").get_paginator("list_objects_v2").paginate(Bucket="public"):
    print(*[item["Key"] for item in page["Contents"]])
boto3.client("s3").get_object(Bucket="elsewhere", Key="data/a.csv")
"""


@pytest.fixture
def start(started: Callable) -> Callable:
    return partial(started, "run")


def test_files_and_folders_are_put_and_what_is_not_there_is_named(start: Callable, tmp_path: Path):
    (tmp_path / "one.csv").write_text("1")
    (tmp_path / "folder/in").mkdir(parents=True)
    (tmp_path / "folder/in/two.csv").write_text("2")
    puts = ("--put", "s3://public/data/a.csv=one.csv", "--put", "s3://public/all=folder")
    process = start(*puts, "--", sys.executable, "-c", LIST)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 1
    assert out == "all/in/two.csv data/a.csv\n"
    assert "s3://elsewhere/data/a.csv" in err and "--put s3://elsewhere/data/a.csv=FILE" in err


@pytest.mark.parametrize(
    "text",
    ["a.csv", "s3://b/k", "http://b/k=pyproject.toml", "s3://=pyproject.toml", "s3://b/k=no"],
)
def test_what_makes_no_sense_is_refused(text: str):
    with pytest.raises(EmulatorError, match="--put"):
        parsed(text)


def test_a_key_that_ends_with_a_slash_keeps_the_files_name(tmp_path: Path):
    file = tmp_path / "a.csv"
    file.touch()
    assert [key for _, key in parsed(f"s3://b/x/={file}").files()] == ["x/a.csv"]
    assert [key for _, key in parsed(f"s3://b/x={file}").files()] == ["x"]
