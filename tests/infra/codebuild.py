"""Imitate CodeBuild: a buildspec's phases as one script, in a clean clone of this commit."""

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import boto3

from tests.conftest import CHECKOUT

PHASES = ("install", "pre_build", "build", "post_build")
ROLE, JOB_ROLE = (f"arn:aws:iam::123456789012:role/ci-{name}" for name in ("pipeline", "job"))


class Build(NamedTuple):
    """Result of a build."""

    status: int
    ran: list[str]
    """Phase and exit status of each command, in order."""

    exported: list[str]
    """``NAME=value`` of each of exported-variables."""

    output: str


def script(buildspec: Mapping[str, Any]) -> str:
    """Return all phases as one bash script: CodeBuild runs version 0.2 in one shell, stops a phase
    at the first command that fails, and after a failed build runs only post_build.

    Each command's phase and status go to ``$TRACE``, exported-variables to ``$EXPORTED``.
    """
    assert (buildspec["version"], buildspec["env"]["shell"]) == (0.2, "bash")
    assert set(buildspec["phases"]) <= set(PHASES)
    lines = ["failed=0"]
    for phase in PHASES:
        runs = "true" if phase == "post_build" else "[ $failed -eq 0 ]"
        commands = buildspec["phases"].get(phase, {}).get("commands", ())
        lines += [f"if {runs}; then", "while true; do :"]
        for command in commands:
            lines += [command.rstrip("\n"), "status=$?", f"echo '{phase}' $status >> \"$TRACE\""]
            lines += ["if [ $status -ne 0 ]; then failed=$status; break; fi"]
        lines += ["break; done", "fi"]
        if phase in ("install", "pre_build"):
            lines.append("[ $failed -eq 0 ] || exit $failed")
    names = buildspec["env"].get("exported-variables", ())
    lines += [f'echo "{name}=${name}" >> "$EXPORTED"' for name in names]
    return "\n".join([*lines, "exit $failed"])


def clone(into: Path) -> Path:
    """HEAD in a clean clone, with what CodeBuild's cache (``cache: paths``) brings back.

    The markers are newer than the locks, so ``make .venv/run`` and ``.venv/installed`` run as
    written and have nothing to install: that would take minutes.
    """
    subprocess.run(["git", "clone", "--quiet", str(CHECKOUT), str(into)], check=True)
    venv = into / ".venv"
    venv.mkdir()
    for part in ("bin", "lib", "lib64", "pyvenv.cfg"):
        if (Path(sys.prefix) / part).exists():
            (venv / part).symlink_to(Path(sys.prefix) / part)
    for marker in ("run", "installed"):  # the later one depends on the other
        (venv / marker).touch()
    return into


def head(checkout: Path) -> str:
    command = ["git", "-C", str(checkout), "rev-parse", "HEAD"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def read_record(sagemaker: Any, definition: str) -> dict[str, Any]:
    """The record that a definition names, from the emulator's S3."""
    steps = {step["Name"]: step["Arguments"] for step in json.loads(definition)["Steps"]}
    inputs = {i["InputName"]: i["S3Input"]["S3Uri"] for i in steps["Gate"]["ProcessingInputs"]}
    bucket, _, folder = inputs["provenance"].removeprefix("s3://").partition("/")
    keys = sagemaker._request_signer._credentials  # boto3 has no other way to them
    session = boto3.Session(keys.access_key, keys.secret_key, region_name="us-east-1")
    s3 = session.client("s3", endpoint_url=sagemaker.meta.endpoint_url)
    got = s3.get_object(Bucket=bucket, Key=f"{folder}provenance.json")
    return json.loads(got["Body"].read())
