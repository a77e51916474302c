"""Trainyard works with the lowest versions that it declares, and installs beside its neighbours."""

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from scripts.install import make_uv_variables
from tests.conftest import CHECKOUT, clean_environment

UV = Path(sys.executable).with_name("uv")
BASE = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["project"]
EXTRAS = ("report", "tuning")
TESTERS = ("hypothesis", "pytest", "pytest-timeout", "pytest-xdist")
QUICK = [
    f"tests/trainyard/{place}"
    for place in """common emulator/cloudwatch emulator/sagemaker/pipelines/test_definition_form.py
    emulator/events emulator/test_lambda_.py emulator/sagemaker/test_model_registry.py
    emulator/test_s3.py emulator/s3/test_s3_operations.py emulator/s3/test_versions.py
    emulator/sagemaker/test_search_api.py emulator/sagemaker/tuning/test_tuning_request.py
    commands/test_emulator.py commands/test_permissions.py commands/test_plan.py foresight
    test_main.py validate/rules/test_rules.py""".split()
]
"""Tests of everything that the base dependencies and the extras of EXTRAS are for."""
BOUND_S = 60  # of clock: a resolution of ten minutes is a fault that people meet
# A current s3fs: one of 2020 asks for no aiobotocore, so it resolves beside any boto3.
S3FS = "s3fs>=2026"
TABLES = (S3FS, "awswrangler", "mlflow")
NEIGHBOURS = {
    "sdk-v2": (*TABLES, "sagemaker<3"),
    "sdk-v3": (*TABLES, "sagemaker>=3"),
    "aioboto3": ("aioboto3>=15",),
    "airflow": ("apache-airflow-providers-amazon>=9",),
    "dvc-s3": ("dvc-s3>=3",),
}

pytestmark = pytest.mark.sweep


def uv(*words: str | Path, said: str = "", within: float | None = None) -> str:
    """Run ``uv pip`` with pip's configuration and choice among indexes; return what it prints."""
    done = subprocess.run(
        [UV, "pip", *words],
        env={"UV_INDEX_STRATEGY": "unsafe-best-match", **make_uv_variables(), **os.environ},
        input=said,
        text=True,
        capture_output=True,
        timeout=within,
        check=False,
    )
    assert not done.returncode, done.stderr[-2000:]
    return done.stdout


@pytest.mark.timeout(1800)
def test_the_lowest_declared_versions_pass_the_quick_tests(tmp_path: Path):
    python = tmp_path / "lowest/bin/python"
    made = [UV, "venv", "--quiet", f"--python={sys.executable}", tmp_path / "lowest"]
    subprocess.run(made, check=True)
    declared = BASE["optional-dependencies"]
    wanted = [*BASE["dependencies"], *(line for extra in EXTRAS for line in declared[extra])]
    wanted += [line for line in declared["test"] + declared["run"] if name(line) in TESTERS]
    lowest = ("--resolution=lowest-direct", "--requirement=-")
    uv("install", f"--python={python}", *lowest, said="\n".join(wanted))
    installed = uv("freeze", f"--python={python}")
    for line in ("boto3", "botocore", "moto"):
        [declared_floor] = [floor(each) for each in wanted if name(each) == line]
        assert re.search(rf"^{line}=={re.escape(declared_floor)}(\.0)?$", installed, re.MULTILINE)

    command = [
        python, "-m", "pytest", "-n", "2", "--dist=loadfile", "-m",
        "not slow and not long and not sweep",
    ]  # fmt: skip
    done = subprocess.run(
        [*command, "-p", "no:cacheprovider", *QUICK],
        cwd=CHECKOUT,
        env=clean_environment(),
        text=True,
        capture_output=True,
        check=False,
    )
    assert not done.returncode, done.stdout[-8000:]


@pytest.mark.parametrize("neighbours", NEIGHBOURS.values(), ids=NEIGHBOURS)
def test_resolves_beside_other_packages_within_a_minute(neighbours: tuple[str, ...]):
    wanted = "\n".join([*BASE["dependencies"], *neighbours])
    resolved = uv("compile", "--quiet", "--python-version=3.11", "-", said=wanted, within=BOUND_S)
    for neighbour in neighbours:
        assert re.search(rf"^{name(neighbour)}==", resolved, re.MULTILINE)


def name(requirement: str) -> str:
    return re.split(r"[^\w-]", requirement.lower(), maxsplit=1)[0]


def floor(requirement: str) -> str:
    return re.split(r"[<>=,;\s]+", requirement)[1]
