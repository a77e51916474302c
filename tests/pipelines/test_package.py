"""A script whose requirements come from a wheelhouse, run in jobs that reach nothing."""

import json
import re
import shutil
from pathlib import Path

import boto3
import pytest

from pipelines.definition import from_recipe
from pipelines.registry.verification import find_first_mismatch, verify
from tests.conftest import CHECKOUT, call_module
from tests.pipelines.delivery.test_wheel_download import wheel
from tests.somebodys.data import put

pytestmark = [pytest.mark.slow, pytest.mark.sweep]  # it downloads our jobs' wheels from an index
SETTINGS = ["packages={wheelhouse: true, python: ['3.11']}", "aws.network_isolation=true",
            "register.approval=manual"]  # fmt: skip


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    """Somebody's recipe, whose scripts import a package that this machine has not installed."""
    folder = tmp_path / "mine"
    shutil.copytree(CHECKOUT / "tests/somebodys", folder)
    (folder / "requirements.txt").write_text("not_installed_here==1.0\n")
    for name in ("train.py", "evaluate.py"):
        script = folder / name
        text = script.read_text()
        script.write_text(text.replace("import json\n", "import json\nimport not_installed_here\n"))
    return folder / "recipe.yaml"


@pytest.fixture
def s3(emulator, monkeypatch):
    for name, value in emulator.env.items():
        monkeypatch.setenv(name, value)
    client = boto3.client("s3")
    put(client)
    return client


def test_isolated_jobs_install_from_the_wheelhouse(recipe, s3, tmp_path, monkeypatch):
    index = tmp_path / "index"
    index.mkdir()
    wheel(index, "not_installed_here", "1.0")
    monkeypatch.setenv("PIP_FIND_LINKS", f"{index} {CHECKOUT}")
    given = ["--recipe", str(recipe), *(word for one in SETTINGS for word in ("--set", one))]

    refused = call_module("pipelines.upsert", *given)
    assert refused.returncode == 1 and "run python -m pipelines.package" in refused.stderr
    assert boto3.client("sagemaker").list_pipelines()["PipelineSummaries"] == []

    out = tmp_path / "definition.json"
    packaged = call_module("pipelines.package", *given, "--out", str(out))
    assert packaged.returncode == 0, packaged.stderr
    assert out.read_text() == from_recipe(recipe, SETTINGS).body
    assert json.loads(out.read_text())["Steps"]
    assert boto3.client("sagemaker").list_pipelines()["PipelineSummaries"] == []
    assert "already there" in call_module("pipelines.package", *given).stdout

    done = call_module("pipelines.upsert", *given, "--start", "--wait")
    assert done.returncode == 0, done.stdout + done.stderr
    arn = re.search(r"model package (arn:\S+)", done.stdout)[1]
    assert find_first_mismatch(verify(arn)) is None
