"""``trainyard run`` as a user starts it."""

import json
import signal
import sys
import venv
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from tests.trainyard.emulator.harness import pipeline, process_step, processing, until

pytestmark = pytest.mark.long

START = """
import boto3, sys
sm = boto3.client("sagemaker")
boto3.client("s3").create_bucket(Bucket="bkt")
boto3.client("s3").upload_file("job.py", "bkt", "code/job.py")
role = "arn:aws:iam::123456789012:role/pipeline"
token = "t" * 32
sm.create_pipeline(PipelineName="p", PipelineDefinition=open("definition.json").read(),
                   RoleArn=role, ClientRequestToken=token)
print(sm.start_pipeline_execution(PipelineName="p")["PipelineExecutionArn"])
"""

LIST = """
import boto3
for page in boto3.client("s3").get_paginator("list_objects_v2").paginate(Bucket="public"):
    print(*[item["Key"] for item in page["Contents"]])
boto3.client("s3").get_object(Bucket="elsewhere", Key="data/a.csv")
"""


@pytest.fixture
def start(started: Callable) -> Callable:
    """Starts ``trainyard run`` with these arguments."""
    return partial(started, "run")


@pytest.fixture
def definition(tmp_path: Path) -> Callable[[str], None]:
    """Makes START's pipeline: one step, a job.py of that text."""

    def write(job: str) -> None:
        (tmp_path / "start.py").write_text(START)
        (tmp_path / "job.py").write_text(job)
        folder = "/opt/ml/processing/input/code"
        code = {"S3Uri": "s3://bkt/code", "LocalPath": folder, "S3DataType": "S3Prefix"}
        spec = processing("")["AppSpecification"] | {
            "ContainerEntrypoint": ["python3", f"{folder}/job.py"],
            "ContainerArguments": ["none"],
        }
        inputs = [{"InputName": "code", "S3Input": code | {"S3InputMode": "File"}}]
        step = process_step("Job", "", arguments={"AppSpecification": spec,
                                                  "ProcessingInputs": inputs})  # fmt: skip
        (tmp_path / "definition.json").write_text(json.dumps(pipeline([step])))

    return write


@pytest.mark.parametrize("status", [0, pytest.param(1, marks=pytest.mark.sweep)])
def test_an_execution_that_the_command_leaves_running_is_waited_for(
    start: Callable, definition: Callable, tmp_path: Path, status: int
):
    definition(
        "import os, time\nwhile not os.path.exists('/opt/ml/go'): time.sleep(0.05)\n"
        f"raise SystemExit({status})"
    )
    process = start("--", sys.executable, "start.py")
    assert process.stderr.readline().startswith("to look at it meanwhile: ")
    assert process.stderr.readline().startswith("waiting for arn:aws:sagemaker:")
    [folder] = until(
        lambda: [*tmp_path.glob(".trainyard/aws/jobs/*/algo-1/ml/processing/input/code")]
    )
    (folder.parents[2] / "go").touch()
    out, err = process.communicate(timeout=250)
    assert process.returncode == status, out + err
    assert ("run Succeeded" in out) == (status == 0) and ("exit code: 1" in out) == (status == 1)


@pytest.mark.parametrize("status", [pytest.param(0, marks=pytest.mark.sweep), 1])
def test_a_job_that_no_pipeline_started_is_waited_for_too(start: Callable, status: int):
    request = processing(f"sleep 2; exit {status}") | {"ProcessingJobName": "alone"}
    script = f"import boto3; boto3.client('sagemaker').create_processing_job(**{request})"
    process = start("--", sys.executable, "-c", script)
    _, err = process.communicate(timeout=250)
    assert process.returncode == status, err
    assert ("alone AlgorithmError: " in err) == (status == 1)


@pytest.mark.sweep
def test_an_execution_that_failed_before_the_commands_end_is_no_success(
    start: Callable, definition: Callable
):
    definition("raise SystemExit(3)")
    slow = (
        f"{START}import time\nwhile sm.list_pipeline_executions(PipelineName='p')["
        "'PipelineExecutionSummaries'][0]['PipelineExecutionStatus'] != 'Failed': time.sleep(0.1)"
    )
    for arguments, status in ((), 1), (("--no-wait", "--state", "other"), 0):
        process = start(*arguments, "--", sys.executable, "-c", slow)
        out, err = process.communicate(timeout=250)
        assert process.returncode == status, out + err
        assert (f"{out.splitlines()[0]} Failed: " in err) == (status == 1)


def test_the_interpreter_is_the_users_and_what_it_lacks_is_named_before_the_job(
    start: Callable, definition: Callable, tmp_path: Path
):
    venv.create(tmp_path / "theirs", with_pip=False)
    definition("import json, beside\ntry: import torch\nexcept ImportError: pass\nimport boto3")
    theirs = tmp_path / "theirs/bin/python"
    (tmp_path / "beside.py").write_text("import numpy")
    (tmp_path / "more.py").write_text(
        START.replace("sm.create_p", 'boto3.client("s3").upload_file("beside.py", "bkt", '
                      '"code/beside.py")\nsm.create_p', 1)
    )  # fmt: skip
    process = start("--python", str(theirs), "--", sys.executable, "more.py")
    out, err = process.communicate(timeout=250)
    assert f"job.py imports boto3, numpy, which {theirs} lacks" in err
    assert process.returncode == 1 and "No module named" in out + err


def test_runs_a_command_against_itself_and_takes_its_status(start: Callable):
    script = (
        "import os, sys, boto3\n"
        "assert 'AWS_SESSION_TOKEN' not in os.environ\n"
        "print(boto3.client('s3').list_buckets()['Buckets'])\n"
        "sys.exit(7)"
    )
    process = start("--", sys.executable, "-c", script, AWS_SESSION_TOKEN="real")
    out, err = process.communicate(timeout=250)
    assert (process.returncode, out.strip()) == (7, "[]"), err


def test_passes_a_signal_on_to_the_command(start: Callable):
    script = "import time; print('up', flush=True); time.sleep(300)"
    process = start("--", sys.executable, "-c", script)
    process.stdout.readline()
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=250)
    assert process.returncode == 128 + signal.SIGTERM


@pytest.mark.slow
def test_the_sdk_needs_no_real_sts_and_sends_no_telemetry(start: Callable):
    script = (
        "from sagemaker.core.helper.session_helper import Session\n"
        "from sagemaker.core.common_utils import resolve_value_from_config\n"
        "from sagemaker.core.config.config_schema import TELEMETRY_OPT_OUT_PATH\n"
        "session = Session()\n"
        "print(session.default_bucket())\n"
        "print(resolve_value_from_config(None, TELEMETRY_OPT_OUT_PATH, sagemaker_session=session))"
    )
    process = start("--", sys.executable, "-c", script)
    out, err = process.communicate(timeout=250)
    assert out.split()[-2:] == ["sagemaker-us-east-1-123456789012", "True"], err


def test_files_and_folders_are_put_and_what_is_not_there_is_named(start: Callable, tmp_path: Path):
    (tmp_path / "one.csv").write_text("1")
    (tmp_path / "folder/in").mkdir(parents=True)
    (tmp_path / "folder/in/two.csv").write_text("2")
    puts = ("--put", "s3://public/data/a.csv=one.csv", "--put", "s3://public/all=folder")
    process = start(*puts, "--", sys.executable, "-c", LIST)
    out, err = process.communicate(timeout=250)
    assert process.returncode == 1
    assert out == "all/in/two.csv data/a.csv\n"
    assert "s3://elsewhere/data/a.csv" in err and "--put s3://elsewhere/data/a.csv=FILE" in err


def test_a_command_that_fails_with_its_execution_is_told_why(
    start: Callable, definition: Callable, tmp_path: Path
):
    definition("raise SystemExit('no such column')")
    script = START.replace("print(sm.start", "arn = (sm.start") + (
        "import time\n"
        "def status():\n"
        "    found = sm.describe_pipeline_execution(PipelineExecutionArn=arn)\n"
        "    return found['PipelineExecutionStatus']\n"
        "while status() == 'Executing': time.sleep(0.1)\n"
        "assert status() == 'Succeeded'\n"
    )
    (tmp_path / "start.py").write_text(script)
    process = start("--", sys.executable, "start.py")
    _, err = process.communicate(timeout=250)
    assert process.returncode == 1 and "AssertionError" in err
    assert "Failed: Step failure" in err and "no such column" in err
