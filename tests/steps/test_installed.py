"""What a requirements file still lacks, without pip."""

from importlib.metadata import version
from pathlib import Path

import pytest

from steps.installed import installed

NUMPY = version("numpy")


@pytest.mark.parametrize(
    ("lines", "found"),
    [
        ("# only a comment\n\n", True),
        ("numpy\npydantic>=2.7,<3  # both are here\n", True),
        (f"numpy=={NUMPY}", True),
        ("numpy>=999", False),
        ("no-such-package-of-ours", False),
        ("numpy\nno-such-package-of-ours", False),
        ("numpy[extra]", False),  # what an extra brings is pip's to know
        ("numpy @ https://example.com/numpy.whl", False),
        ("numpy; python_version < '3'", False),
        ("-r other.txt", False),
        ("--no-deps", False),
    ],
)
def test_pip_is_spared_only_when_everything_is_there(tmp_path: Path, lines: str, found: bool):
    file = tmp_path / "requirements.txt"
    file.write_text(lines)
    assert installed(file) is found
