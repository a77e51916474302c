"""Download the wheels of a job's requirements, for the Python of its image, and upload them.

Requirements that are locked with hashes are downloaded as they are. Others are first resolved by
pip, for this machine's markers. torch, and what only torch needs, are left out, because the image
has its own.
"""

import hashlib
import json
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from botocore.exceptions import ClientError
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from pipelines.compile.compilation import Requirements, Wheelhouse
from pipelines.compile.package_lock import parse_lock, select_for_python
from pipelines.delivery.pipeline_objects import upload_changed_files
from trainyard.aws_clients import read_error_code
from trainyard.common.errors import DefinitionError

IMAGE_OWN = "torch"
"""Package that every image has, built for its machines; its wheel is several gigabytes."""
PLATFORMS = (
    *(f"manylinux_2_{minor}_x86_64" for minor in range(34, 16, -1)),
    "manylinux2014_x86_64",
)
"""Platform tags of AWS's images, the newest first. Wheels for any older glibc work, too, but pip
derives older tags from manylinux2014 alone.
"""


def is_uploaded(s3: Any, house: Wheelhouse) -> bool:
    """Return whether the wheelhouse, a folder of wheels in S3, has its manifest (written last)."""
    try:
        s3.head_object(Bucket=house.bucket, Key=house.manifest)
    except ClientError as error:
        if read_error_code(error) in ("404", "NoSuchKey", "NoSuchBucket"):
            return False
        raise
    return True


def refuse_missing_wheels(s3: Any, houses: Sequence[Wheelhouse]) -> None:
    """Check that all wheels that a pipeline's jobs install are uploaded.

    Raises:
        DefinitionError: a wheelhouse was not uploaded.
    """
    for house in houses:
        if not is_uploaded(s3, house):
            raise DefinitionError(
                f"packages.wheelhouse: there are no wheels at {house.uri} yet: first run "
                "python -m pipelines.package with the same recipe, where pip can reach an index"
            )


def upload_wheels(s3: Any, house: Wheelhouse, kms_key: str | None) -> tuple[int, int]:
    """Download and upload the wheels; return their number and their size in bytes.

    Raises:
        DefinitionError: pip finds no wheel for a requirement; contains pip's message.
    """
    with TemporaryDirectory() as folder:
        wheels = Path(folder)
        for requirements in house.lists:
            for python in house.python:
                _download_wheels(requirements, python, wheels)
        files = {path.name: path.read_bytes() for path in sorted(wheels.iterdir())}
    upload_changed_files(s3, house.bucket, house.key, files, kms_key=kms_key)
    hashes = {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}
    manifest = json.dumps({"python": house.python, "wheels": hashes}, indent=1).encode()
    # The manifest comes last: a wheelhouse with a manifest is complete.
    folder, _, name = house.manifest.rpartition("/")
    upload_changed_files(s3, house.bucket, folder, {name: manifest}, kms_key=kms_key)
    return len(files), sum(map(len, files.values()))


def _download_wheels(requirements: Requirements, python: str, wheels: Path) -> None:
    """Download the wheels of a requirements file for one Python version to ``wheels``."""
    with TemporaryDirectory() as folder:
        for name, content in requirements.files.items():
            path = Path(folder, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        lines = _read_locked_lines(requirements, python)
        if lines is None:
            lines = _resolve_lines(requirements.name, python, Path(folder))
        lock_path = Path(folder, "pinned-by-trainyard.txt")
        lock_path.write_text("".join(lines), encoding="utf-8")
        if lines:
            hash_options = ["--require-hashes", "--no-deps", "-r", str(lock_path)]
            hash_options += ["--dest", str(wheels)]
            _run_pip("download", python, *hash_options, file_name=requirements.name)


def _read_locked_lines(requirements: Requirements, python: str) -> list[str] | None:
    """Return the file's locked lines for ``python``, without torch; None if it has no hashes."""
    text = requirements.files[requirements.name].decode()
    if "--hash" not in text:
        return None
    entries = select_for_python(parse_lock(text, requirements.name), f"{python}.0")
    return [
        _format_requirement(e.name, e.version, e.hashes) for e in entries if e.name != IMAGE_OWN
    ]


def _format_requirement(name: str, version: str, hashes: Sequence[str]) -> str:
    return f"{name}=={version} {' '.join(f'--hash={digest}' for digest in hashes)}\n"


def _resolve_lines(name: str, python: str, folder: Path) -> list[str]:
    """Resolve the file ``name`` with pip; return the lines that it would install, without torch."""
    report = folder / "report-by-trainyard.json"
    options = [
        "--dry-run",
        "--ignore-installed",
        f"--target={folder / 'none'}",
        f"--report={report}",
    ]
    _run_pip("install", python, *options, "-r", name, file_name=name, cwd=folder)
    packages: dict[str, Any] = {
        canonicalize_name(item["metadata"]["name"]): item
        for item in json.loads(report.read_text(encoding="utf-8"))["install"]
    }
    roots = [package for package, item in packages.items() if item["requested"]]
    needed_names = set(_exclude_torch(roots, packages))
    return [
        _format_requirement(package, item["metadata"]["version"], [_find_reported_hash(item, name)])
        for package, item in packages.items()
        if package in needed_names
    ]


def _find_reported_hash(item: Mapping[str, Any], name: str) -> str:
    """Return the hash that pip reports for a file that it chose, or raise DefinitionError."""
    hashes = item["download_info"].get("archive_info", {}).get("hashes", {})
    if "sha256" not in hashes:
        raise DefinitionError(
            f"packages.wheelhouse: {name}: {item['metadata']['name']} comes from "
            f"{item['download_info']['url']}, which has no SHA-256; name a release of an index"
        )
    return f"sha256:{hashes['sha256']}"


def _exclude_torch(roots: Sequence[str], packages: Mapping[str, Any]) -> Iterator[str]:
    """Yield the packages that ``roots`` need, except torch and what only torch needs."""
    visited_names, queue = {IMAGE_OWN}, list(roots)
    while queue:
        name = queue.pop()
        if name in visited_names or name not in packages:
            continue
        visited_names.add(name)
        yield name
        needs = packages[name]["metadata"].get("requires_dist", ())
        queue += [canonicalize_name(Requirement(text).name) for text in needs]


def _run_pip(verb: str, python: str, *words: str, file_name: str, cwd: Path | None = None) -> None:
    """Run pip for the image's Python and platform, with wheels only, so that nothing is built.

    Raises:
        DefinitionError: pip failed; contains its error lines.
    """
    target = [f"--python-version={python}", "--implementation=cp", "--only-binary=:all:"]
    target += [f"--platform={platform}" for platform in PLATFORMS]
    options = ["--quiet", "--disable-pip-version-check", "--no-input"]
    command = [sys.executable, "-m", "pip", verb, *options, *target, *words]
    process = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    if process.returncode:
        error_lines = " ".join(
            line for line in process.stderr.splitlines() if line.startswith("ERROR")
        )
        raise DefinitionError(
            f"packages.wheelhouse: {file_name}: pip finds no wheels for Python {python}: "
            f"{(error_lines or process.stderr).strip():.1000}"
        )
