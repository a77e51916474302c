"""A clean clone, and CodeBuild's way of running its buildspecs against an emulator."""

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import boto3
import pytest
import yaml

from tests.conftest import CHECKOUT, clean_environment
from tests.infra.codebuild import JOB_ROLE, ROLE, Build, clone, head, script


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return clone(tmp_path_factory.mktemp("source") / "src")


@pytest.fixture(scope="module")
def codebuild(source: Path, emulator, tmp_path_factory) -> Callable:
    """Run a buildspec of the clone as CodeBuild would."""

    def run(path: str, **variables: str) -> Build:
        buildspec = yaml.safe_load((source / path).read_text(encoding="utf-8"))
        trace = tmp_path_factory.mktemp("build") / "trace"
        trace.touch()
        environment = {
            **clean_environment(),
            **emulator.env,
            **{k: str(v) for k, v in buildspec["env"].get("variables", {}).items()},
            "AWS_REGION": "us-east-1",
            "CODEBUILD_BUILD_ID": "trainyard:1",
            "CODEBUILD_SRC_DIR": str(source),
            "CODEBUILD_RESOLVED_SOURCE_VERSION": head(source),
            "SAGEMAKER_PIPELINE_ROLE_ARN": ROLE,
            "SAGEMAKER_JOB_ROLE_ARN": JOB_ROLE,
            "ARTIFACT_BUCKET": "ci-artifacts",
            "RECIPE": "recipes/laptop.yaml",
            "HOME": str(trace.parent),
            # `make test` in here must not run this very test again: one quick folder stands for
            # all. The variables of the pytest around us are not the build's.
            "PYTEST_ADDOPTS": "tests/trainyard/common --maxprocesses=1 -p no:cacheprovider",
            "MYPY_CACHE_DIR": str(CHECKOUT / ".mypy_cache"),  # types are not read anew
            "TRACE": str(trace),
            "EXPORTED": str(trace.with_name("exported")),
            **variables,
        }
        for name in [n for n in environment if n.startswith(("PYTEST_XDIST", "PYTEST_CURRENT"))]:
            del environment[name]
        done = subprocess.run(
            ["bash", "-c", script(buildspec)], cwd=source, env=environment, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=280, check=False,
        )  # fmt: skip
        handed_on = trace.with_name("exported")
        exported = handed_on.read_text().splitlines() if handed_on.exists() else []
        return Build(done.returncode, trace.read_text().splitlines(), exported, done.stdout)

    return run


@pytest.fixture(scope="module")
def sagemaker(emulator) -> Any:
    env, place = emulator.env, {"region_name": "us-east-1", "endpoint_url": emulator.url}
    keys = (env["AWS_ACCESS_KEY_ID"], env["AWS_SECRET_ACCESS_KEY"])
    return boto3.Session(*keys).client("sagemaker", **place)
