"""``trainyard run --put`` puts local files where a pipeline looks for AWS's public data."""

from pathlib import Path

import pytest

from trainyard.commands.run import parse_put
from trainyard.common.errors import EmulatorError


@pytest.mark.parametrize(
    "text",
    ["a.csv", "s3://b/k", "http://b/k=pyproject.toml", "s3://=pyproject.toml", "s3://b/k=no"],
)
def test_what_makes_no_sense_is_refused(text: str):
    with pytest.raises(EmulatorError, match="--put"):
        parse_put(text)


def test_a_key_that_ends_with_a_slash_keeps_the_files_name(tmp_path: Path):
    file = tmp_path / "a.csv"
    file.touch()
    assert [key for _, key in parse_put(f"s3://b/x/={file}").files()] == ["x/a.csv"]
    assert [key for _, key in parse_put(f"s3://b/x={file}").files()] == ["x"]
