"""The fixtures, in a project of somebody else's that has nothing of ours."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import CHECKOUT
from tests.trainyard.emulator.harness import pipeline, process_step

pytestmark = pytest.mark.long

TESTS = """
import json, os, types, boto3, pytest
from trainyard.common.errors import EmulatorError

STEPS = json.dumps({definition})
before = dict(os.environ)

def start(name):
    sm = boto3.client("sagemaker")
    sm.create_pipeline(PipelineName=name, PipelineDefinition=STEPS, ClientRequestToken="t" * 32,
                       RoleArn="arn:aws:iam::123456789012:role/pipeline")
    return sm.start_pipeline_execution(PipelineName=name)

def test_runs(sagemaker_endpoint):
    answer = start("p")
    arn = answer["PipelineExecutionArn"]
    sdk = types.SimpleNamespace(arn=arn)
    resource = types.SimpleNamespace(pipeline_execution_arn=arn)
    for execution in (answer, arn, sdk, resource):
        ended = sagemaker_endpoint.wait(execution)
        assert ended["PipelineExecutionStatus"] == "Succeeded", ended
    for wrong in (None, dict(), sagemaker_endpoint):
        with pytest.raises(EmulatorError, match="is not an execution; give its ARN"):
            sagemaker_endpoint.wait(wrong)

def test_the_environment_is_as_before():
    assert {{**os.environ, "PYTEST_CURRENT_TEST": ""}} == {{**before, "PYTEST_CURRENT_TEST": ""}}
    assert boto3.DEFAULT_SESSION is None

def test_it_is_still_the_same_server(sagemaker_endpoint):
    [found] = boto3.client("sagemaker").list_pipelines()["PipelineSummaries"]
    assert found["PipelineName"] == "p"
    print("server", sagemaker_endpoint.url)
"""


def test_somebody_elses_tests_run_their_pipeline(run_python: Callable, tmp_path: Path):
    (tmp_path / "test_theirs.py").write_text(
        TESTS.format(definition=pipeline([process_step("Say", "echo hello")]))
    )
    done = run_python(
        *("-m", "pytest", "-q", "-s", "-p", "trainyard.pytest_plugin", "-p", "no:cacheprovider"),
        cwd=tmp_path,
        env={"PYTHONPATH": str(CHECKOUT), "AWS_PROFILE": "theirs"},
    )
    assert done.returncode == 0 and "3 passed" in done.stdout, done.stdout + done.stderr
    assert "server http://127.0.0.1:" in done.stdout
    assert "AWS_ENDPOINT_URL" not in os.environ
