"""Verbs that look show the state of this folder, but only where no AWS is configured."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import boto3
import pytest

from tests.conftest import AWS_NAMES, CHECKOUT, call_module, clean_environment
from tests.trainyard.emulator.harness import ROLE, fail_step, pipeline, until
from tests.trainyard.emulator.standin import make_client
from trainyard.commands.emulator import STATE
from trainyard.emulator.client_environment import ADDRESS
from trainyard.emulator.server import serve_emulator
from trainyard.local_state import serve_local_state
from trainyard.runs.execution import Execution, find_latest_execution

pytestmark = pytest.mark.long

DEFINITION = pipeline([fail_step("Stop", "the data are from May")])


@pytest.fixture(scope="module")
def left(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which trainyard run has run a pipeline that failed."""
    folder = tmp_path_factory.mktemp("left")
    with serve_emulator(folder / STATE) as endpoint:
        sagemaker = make_client(endpoint, "sagemaker")
        sagemaker.create_pipeline(
            PipelineName="checks", PipelineDefinition=json.dumps(DEFINITION),
            RoleArn=ROLE, ClientRequestToken="t" * 32,
        )  # fmt: skip
        started = sagemaker.start_pipeline_execution(PipelineName="checks")
        endpoint.wait(started["PipelineExecutionArn"])
    return folder


@pytest.fixture
def home_folder(left: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Make that folder the current one, configure no AWS, and yield the home folder."""
    monkeypatch.chdir(left)
    for name in [name for name in os.environ if name.startswith(AWS_NAMES)]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setattr(boto3, "DEFAULT_SESSION", None)  # it remembers another's credentials
    yield tmp_path


def test_a_verb_that_looks_shows_what_was_left_and_one_that_changes_does_not(
    home_folder, monkeypatch
):
    done = call_module("trainyard.commands.why")
    assert "the data are from May" in done.stdout
    assert "AWS is not configured" in done.stderr and str(STATE) in done.stderr
    monkeypatch.setattr(boto3, "DEFAULT_SESSION", None)
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    done = call_module("trainyard.commands.start", "--from", "Stop")
    assert done.returncode == 1 and "no AWS credentials" in done.stderr


def test_the_environment_is_as_before_afterwards(home_folder: Path):
    before = dict(os.environ)
    (STATE / ADDRESS).write_text("http://127.0.0.1:9")  # a killed emulator's, which leads nowhere
    with serve_local_state():
        assert "pipeline/checks/" in find_latest_execution("checks")
        with serve_local_state():  # the inner one finds AWS configured
            assert "pipeline/checks/" in find_latest_execution("checks")
    assert dict(os.environ) == before and not (STATE / ADDRESS).exists()


@pytest.mark.parametrize(
    ("variables", "file"),
    [
        ({"AWS_REGION": "us-east-1", "AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b"}, ""),
        ({"AWS_ENDPOINT_URL": "http://127.0.0.1:9"}, ""),
        ({"AWS_ENDPOINT_URL_SAGEMAKER": "http://127.0.0.1:9"}, ""),
        ({"AWS_PROFILE": "gone"}, ""),
        ({}, "[default]\naws_access_key_id = a\naws_secret_access_key = b\n"),
        ({}, "[default]\nsso_account_id = 1\nsso_role_name = r\nsso_session = s\n"),
        ({}, "[default]\nendpoint_url = http://127.0.0.1:9\n"),
    ],
    ids=["keys", "endpoint", "one endpoint", "profile", "file", "half a login", "file's endpoint"],
)
def test_where_aws_is_configured_it_is_left_alone(home_folder: Path, monkeypatch, variables, file):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    (home_folder / ".aws").mkdir()
    (home_folder / ".aws/config").write_text(file)
    before = dict(os.environ)
    with serve_local_state():
        assert dict(os.environ) == before


QUEUE = "https://sqs.us-east-1.amazonaws.com/123456789012/questions"
WAITING = pipeline([{"Name": "Approve", "Type": "Callback", "SqsQueueUrl": QUEUE,
                     "Arguments": {"Question": "go on?"}}])  # fmt: skip
START = f"""
import boto3, json, os, pathlib, time
boto3.client("sqs").create_queue(QueueName="questions")
sagemaker = boto3.client("sagemaker")
sagemaker.create_pipeline(
    PipelineName="asks", PipelineDefinition=json.dumps({WAITING}),
    RoleArn="arn:aws:iam::123456789012:role/r", ClientRequestToken="t" * 32,
)
sagemaker.start_pipeline_execution(PipelineName="asks")
pathlib.Path("started").touch()
while not pathlib.Path("seen").exists():
    time.sleep(0.05)
"""


def test_a_run_is_looked_at_from_another_shell_while_it_runs(home_folder: Path, monkeypatch):
    monkeypatch.chdir(home_folder)
    env = {**clean_environment(), "PYTHONPATH": str(CHECKOUT), "AWS_EC2_METADATA_DISABLED": "true"}
    command = [sys.executable, "-m", "trainyard", "run", "--no-wait", "--", sys.executable, "-c"]
    with subprocess.Popen([*command, START], env=env, cwd=home_folder) as running:
        until((home_folder / "started").exists, 60)
        address = home_folder / STATE / ADDRESS
        assert address.stat().st_mode & 0o777 == 0o600
        for _ in range(2):
            with serve_local_state():
                told = Execution(find_latest_execution(None)).describe()
            assert told["PipelineExecutionStatus"] == "Executing"
        (home_folder / "seen").touch()
        assert running.wait(60) == 0
    assert not address.exists()


def test_without_a_state_nothing_is_made(home_folder: Path, tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with serve_local_state():
        assert "AWS_ENDPOINT_URL" not in os.environ and not STATE.exists()
