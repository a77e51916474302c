"""Packages that older commits registered: state folders of the emulator, as these commits left
them.

``recorded/<commit>.tar.xz`` holds one small model each, without its checkpoints, raw data and logs.
"""

import tarfile
from pathlib import Path

import boto3
import pytest

from pipelines.approve import approve
from pipelines.registry.package_evidence import Evidence
from pipelines.registry.verification import before_approval
from trainyard.common.safe_unpack import unpack
from trainyard.emulator.server import serve
from trainyard.runs.execution import Execution
from trainyard.runs.run_summary import model_package

pytestmark = pytest.mark.long

ARN = "arn:aws:sagemaker:us-east-1:123456789012:model-package/trainyard-laptop/1"


@pytest.fixture
def older(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """An emulator on the state that the parameter, a commit, has left."""
    with tarfile.open(Path(__file__).parent / f"recorded/{request.param}.tar.xz") as state:
        unpack(state, tmp_path / "aws")
    with serve(tmp_path / "aws") as endpoint:
        monkeypatch.setattr(boto3, "DEFAULT_SESSION", None)  # it remembers another's credentials
        for name, value in endpoint.env.items():
            monkeypatch.setenv(name, value)
        yield


@pytest.mark.parametrize("older", ["5696435"], indirect=True)
@pytest.mark.usefixtures("older")
def test_a_package_of_before_the_two_houses_verifies_and_is_approved():
    found = list(before_approval(Evidence(ARN), deep=True))
    assert len(found) == 22 and not [finding for finding in found if finding.status != "ok"]
    approved = approve(ARN, reason="it was made small with --set")
    assert approved.champion == ARN and "22 checks match" in approved.note


@pytest.mark.parametrize("older", ["5696435"], indirect=True)
@pytest.mark.usefixtures("older")
def test_a_state_folder_of_before_tells_its_executions():
    execution = Execution(Evidence(ARN).metadata["execution"])
    steps = execution.steps()
    assert execution.describe()["PipelineExecutionStatus"] == "Succeeded"
    assert [step.name for step in steps] == [
        *("Shard", "Train", "Evaluate", "Gate", "Verdict", "Register")
    ]
    assert model_package(steps) == ARN
