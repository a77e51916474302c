"""``trainyard run`` as a user starts it; in this process where its start is not what is tested."""

import json
import os
import signal
import sys
import venv
from collections.abc import Callable, Iterator
from pathlib import Path

import boto3
import pytest

from tests.conftest import CHECKOUT, clean_environment
from tests.trainyard.emulator.harness import pipeline, process_step, processing, until
from trainyard.commands.run import main, parse_put
from trainyard.common.errors import EmulatorError
from trainyard.terminal import run

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
WAIT = """
import time
while sm.list_pipeline_executions(PipelineName="p")["PipelineExecutionSummaries"][0][
        "PipelineExecutionStatus"] == "Executing":
    time.sleep(0.1)
"""


@pytest.fixture
def ran(tmp_path: Path, monkeypatch, capfd) -> Iterator[Callable[..., tuple[int, str, str]]]:
    """Runs the verb in this process; its exit status, and what it and its command printed."""
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(boto3, "DEFAULT_SESSION", None)  # it remembers another's credentials
    for name in os.environ.keys() - clean_environment().keys():
        monkeypatch.delenv(name)
    monkeypatch.setenv("PYTHONPATH", str(CHECKOUT))
    monkeypatch.setenv("AWS_SESSION_TOKEN", "real")

    def call(*arguments: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as end:
            run(main, "trainyard run", arguments)
        told = capfd.readouterr()
        return int(end.value.code or 0), told.out, told.err

    yield call
    for number, handler in handlers.items():
        signal.signal(number, handler)


@pytest.fixture
def definition(tmp_path: Path) -> Callable[[str], None]:
    """Makes START's pipeline: one step, a job.py of that text."""

    def write(job: str) -> None:
        (tmp_path / "start.py").write_text(START)
        (tmp_path / "job.py").write_text(job)
        folder = "/opt/ml/processing/input/code"
        code = {"S3Uri": "s3://bkt/code", "LocalPath": folder, "S3DataType": "S3Prefix"}
        program = {"ContainerEntrypoint": ["python3", f"{folder}/job.py"]}
        spec = processing("")["AppSpecification"] | program | {"ContainerArguments": ["none"]}
        inputs = [{"InputName": "code", "S3Input": code | {"S3InputMode": "File"}}]
        arguments = {"AppSpecification": spec, "ProcessingInputs": inputs}
        step = process_step("Job", "", arguments=arguments)
        (tmp_path / "definition.json").write_text(json.dumps(pipeline([step])))

    return write


def test_an_execution_that_the_command_leaves_running_is_waited_for(
    started: Callable, definition: Callable, tmp_path: Path
):
    definition("import os, time\nwhile not os.path.exists('/opt/ml/go'): time.sleep(0.05)\n")
    process = started("run", "--", sys.executable, "start.py")
    assert process.stderr.readline().startswith("to look at it meanwhile, run ")
    assert process.stderr.readline().startswith("waiting for arn:aws:sagemaker:")
    [folder] = until(
        lambda: [*tmp_path.glob(".trainyard/aws/jobs/*/algo-1/ml/processing/input/code")]
    )
    (folder.parents[2] / "go").touch()
    out, err = process.communicate(timeout=250)
    assert process.returncode == 0, out + err
    assert "run Succeeded" in out


def test_a_job_that_no_pipeline_started_is_waited_for_too(ran: Callable):
    request = processing("sleep 1; exit 1") | {"ProcessingJobName": "alone"}
    script = f"import boto3; boto3.client('sagemaker').create_processing_job(**{request})"
    status, _, err = ran("--", sys.executable, "-c", script)
    assert status == 1 and "alone AlgorithmError: " in err


@pytest.mark.sweep
def test_an_execution_that_failed_before_the_commands_end_is_no_success(
    ran: Callable, definition: Callable
):
    definition("raise SystemExit(3)")
    for arguments, expected in ((), 1), (("--no-wait", "--state", "other"), 0):
        status, out, err = ran(*arguments, "--", sys.executable, "-c", START + WAIT)
        assert status == expected, out + err
        assert (f"{out.splitlines()[0]} Failed: " in err) == (expected == 1)


def test_the_interpreter_is_the_users_and_what_it_lacks_is_named_before_the_job(
    started: Callable, definition: Callable, tmp_path: Path
):
    venv.create(tmp_path / "theirs", with_pip=False)
    definition("import json, beside\ntry: import torch\nexcept ImportError: pass\nimport boto3")
    theirs = tmp_path / "theirs/bin/python"
    (tmp_path / "beside.py").write_text("import numpy")
    beside = 'boto3.client("s3").upload_file("beside.py", "bkt", "code/beside.py")\nsm.create_p'
    script = START.replace("sm.create_p", beside, 1)
    process = started("run", "--python", str(theirs), "--", sys.executable, "-c", script)
    out, err = process.communicate(timeout=250)
    assert f"job.py imports boto3, numpy, which {theirs} lacks" in err
    assert process.returncode == 1 and "No module named" in out + err


LIST = """
import boto3, os, sys
assert "AWS_SESSION_TOKEN" not in os.environ
for page in boto3.client("s3").get_paginator("list_objects_v2").paginate(Bucket="public"):
    print(*[item["Key"] for item in page["Contents"]])
try:
    boto3.client("s3").get_object(Bucket="elsewhere", Key="data/a.csv")
finally:
    sys.exit(7)
"""


def test_a_command_runs_against_it_with_what_is_put_there_and_its_status_is_taken(
    ran: Callable, tmp_path: Path
):
    (tmp_path / "one.csv").write_text("1")
    (tmp_path / "folder/in").mkdir(parents=True)
    (tmp_path / "folder/in/two.csv").write_text("2")
    puts = ("--put", "s3://public/data/a.csv=one.csv", "--put", "s3://public/all=folder")
    status, out, err = ran(*puts, "--", sys.executable, "-c", LIST)
    assert (status, out) == (7, "all/in/two.csv data/a.csv\n")
    assert "s3://elsewhere/data/a.csv" in err and "--put s3://elsewhere/data/a.csv=FILE" in err


@pytest.mark.parametrize(
    "text",
    ["a.csv", "s3://b/k", "http://b/k=pyproject.toml", "s3://=pyproject.toml", "s3://b/k=no"],
)
def test_what_is_put_without_sense_is_refused(text: str):
    with pytest.raises(EmulatorError, match="--put"):
        parse_put(text)


def test_a_key_that_ends_with_a_slash_keeps_the_files_name(tmp_path: Path):
    file = tmp_path / "a.csv"
    file.touch()
    assert [key for _, key in parse_put(f"s3://b/x/={file}").iter_files()] == ["x/a.csv"]
    assert [key for _, key in parse_put(f"s3://b/x={file}").iter_files()] == ["x"]


def test_passes_a_signal_on_to_the_command(started: Callable):
    script = "import time; print('up', flush=True); time.sleep(300)"
    process = started("run", "--", sys.executable, "-c", script)
    process.stdout.readline()
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=250)
    assert process.returncode == 128 + signal.SIGTERM


@pytest.mark.slow
def test_the_sdk_needs_no_real_sts_and_sends_no_telemetry(ran: Callable):
    script = (
        "from sagemaker.core.helper.session_helper import Session\n"
        "from sagemaker.core.common_utils import resolve_value_from_config\n"
        "from sagemaker.core.config.config_schema import TELEMETRY_OPT_OUT_PATH\n"
        "session = Session()\n"
        "print(session.default_bucket())\n"
        "print(resolve_value_from_config(None, TELEMETRY_OPT_OUT_PATH, sagemaker_session=session))"
    )
    _, out, err = ran("--", sys.executable, "-c", script)
    assert out.split()[-2:] == ["sagemaker-us-east-1-123456789012", "True"], err


def test_a_command_that_fails_with_its_execution_is_told_why(ran: Callable, definition: Callable):
    definition("raise SystemExit('no such column')")
    status, _, err = ran("--", sys.executable, "-c", f"{START}{WAIT}raise AssertionError")
    assert status == 1 and "AssertionError" in err
    assert "Failed: Step failure" in err and "no such column" in err
