"""The folders of data that a script is given, and their names by every byte in them."""

from collections.abc import Mapping
from pathlib import Path

from steps.evaluate.document import Channel
from trainyard.common.errors import DataError
from trainyard.common.hashes import file_sha256, json_sha256

TRAIN = "train"
"""The channel on which nothing is tested: it is there to look for leaks."""


def described(name: str, folder: Path) -> Channel:
    """How many files and bytes the channel has, and the hash of all.

    Raises:
        DataError: it is empty.
    """
    files = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*")}
    files = {name: path for name, path in files.items() if path.is_file()}
    if not files:
        raise DataError(f"channel {name}: {folder} holds no file; is evaluate.channels right?")
    contents = {name: [files[name].stat().st_size, file_sha256(files[name])] for name in files}
    return {
        "files": len(contents),
        "bytes": sum(size for size, _ in contents.values()),
        "sha256": json_sha256(contents),
    }


def test_fingerprint(channels: Mapping[str, Channel]) -> str:
    """One hash for all channels that are tested on."""
    tested = {name: told["sha256"] for name, told in channels.items() if name != TRAIN}
    return json_sha256(tested)
