"""Somebody's train.py, evaluate.py and inference.py: interrupted, resumed, gated, registered,
verified, approved, served.

One pipeline on one emulator: its runs follow each other as they would.
"""

import io
import json
import math
import re
import shutil
import tarfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import boto3
import pytest

from pipelines.approve import approve
from pipelines.definition import from_recipe
from pipelines.registry.package_evidence import Evidence
from pipelines.registry.record_checks import Mismatch
from pipelines.registry.verification import make_split_check, verify
from pipelines.run_report.run_panels import PANELS
from pipelines.start import start
from pipelines.upsert import upsert
from tests.conftest import CHECKOUT, call_module
from tests.registered import run_to_end, wait_for
from tests.somebodys.data import BUCKET, ROWS, put
from trainyard.console import frozen_page
from trainyard.runs.execution import Execution
from trainyard.runs.run_display import find_model_package

pytestmark = pytest.mark.slow

TRAIN = """
import argparse, json, os, signal, sys, time
from pathlib import Path
parser = argparse.ArgumentParser()
parser.add_argument("--slope", type=float)
parser.add_argument("--seen", default="")
options = parser.parse_args()
checkpoint, done = Path("/opt/ml/checkpoints/epoch"), 0
if resumes := os.listdir("/opt/ml/checkpoints"):
    done = int(checkpoint.read_text())
    print(f"resumed from epoch {done}", flush=True)
def stop(*_):
    checkpoint.write_text(str(done))
    print("stopping", flush=True)
    time.sleep(1)
    print(f"saved epoch {done}", flush=True)
    sys.exit(1)
signal.signal(signal.SIGTERM, stop)
while done < 8:
    done += 1
    print(f"epoch={done} loss={1 / done:.6f}", flush=True)
    if done == 3 and options.slope == 1.5 and not options.seen and not resumes:
        time.sleep(600)
with open(os.path.join(os.environ["SM_MODEL_DIR"], "weights.json"), "w") as file:
    json.dump({"slope": options.slope, "seen": options.seen.split(",")}, file)
"""


@dataclass(frozen=True)
class Run:
    """A run of somebody's pipeline, which is over."""

    execution: Execution
    package: str | None
    gate: dict[str, Any]

    @property
    def failed_checks(self) -> list[str]:
        return [check["name"] for check in self.gate["checks"] if not check["passed"]]

    @classmethod
    def from_execution(cls, execution: Execution) -> "Run":
        steps = {step.name: step for step in execution.list_steps()}
        assert "Gate" in steps and steps["Gate"].status == "Succeeded", steps
        gate = execution.read_output_json(steps["Gate"], "gate", "gate.json")
        return cls(execution, find_model_package(list(steps.values())), gate)


@pytest.fixture(scope="module")
def client(aws_environment):
    """Clients at the emulator, with somebody's data in its S3."""
    put(boto3.client("s3"))
    return boto3.client


@pytest.fixture(scope="module")
def recipe(tmp_path_factory) -> Path:
    """Somebody's recipe, whose training keeps checkpoints, and whose inference has a module."""
    folder = shutil.copytree(CHECKOUT / "tests/somebodys", tmp_path_factory.mktemp("a") / "theirs")
    (folder / "train.py").write_text(TRAIN)
    (folder / "layers.py").touch()
    path, metrics = folder / "recipe.yaml", r"metrics: {loss: 'loss=(\S+)'}"
    path.write_text(path.read_text().replace("launcher: none", f"launcher: none\n  {metrics}"))
    return path


@pytest.fixture(scope="module")
def run(client, recipe) -> Callable[..., Run]:
    """A run of the pipeline with these arguments of train.py."""

    def go(**arguments) -> Run:
        given = json.dumps({"slope": 1.5} | arguments)
        upsert(from_recipe(recipe, [f"train.arguments={given}"]))
        return Run.from_execution(run_to_end(BUCKET))

    return go


def jobs(client) -> list[str]:
    found = client("sagemaker").list_training_jobs()["TrainingJobSummaries"]
    return [job["TrainingJobName"] for job in sorted(found, key=lambda job: job["CreationTime"])]


def lines(client, job: str) -> list[str]:
    logs = client("logs")
    try:
        events = logs.filter_log_events(
            logGroupName="/aws/sagemaker/TrainingJobs", logStreamNamePrefix=job
        )["events"]
    except logs.exceptions.ResourceNotFoundException:
        return []
    return [event["message"] for event in events]


@pytest.fixture(scope="module")
def interrupted_job(client, recipe) -> str:
    """The first run's training job, which was stopped in its third epoch."""
    upsert(from_recipe(recipe))
    start(BUCKET, {})
    sagemaker = client("sagemaker")
    [job] = wait_for(lambda: jobs(client))
    wait_for(lambda: any("epoch=3" in line for line in lines(client, job)))
    sagemaker.stop_training_job(TrainingJobName=job)
    describe = sagemaker.describe_training_job
    wait_for(lambda: describe(TrainingJobName=job)["TrainingJobStatus"] == "Stopped")
    return job


@pytest.fixture(scope="module")
def champion(interrupted_job, client) -> Run:
    """The model of the second run, which goes on from there, approved."""
    done = call_module("pipelines.start", "--pipeline", BUCKET, "--wait")
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"^Train +loss +\d+\.\d+", done.stdout, re.MULTILINE), done.stdout
    listed = client("sagemaker").list_pipeline_executions(PipelineName=BUCKET)
    newest = listed["PipelineExecutionSummaries"][0]["PipelineExecutionArn"]
    found = Run.from_execution(Execution(newest))
    assert approve(str(found.package)).champion == found.package
    return found


def test_sigterm_reaches_the_script_which_saves_and_the_next_run_goes_on(
    champion, client, interrupted_job
):
    said = lines(client, interrupted_job)
    told = [line for line in said if line in ("stopping", "saved epoch 3")]
    assert told == ["stopping", "saved epoch 3"], said[-20:]
    [_, job] = jobs(client)
    said = lines(client, job)
    assert "resumed from epoch 3" in said
    epochs = [line for line in said if line.startswith("epoch=")]
    assert epochs[0].startswith("epoch=4 ") and epochs[-1].startswith("epoch=8 ")
    told = client("sagemaker").describe_training_job(TrainingJobName=job)["FinalMetricDataList"]
    assert [metric["MetricName"] for metric in told] == ["loss"]


def test_the_archive_has_the_scripts_files_and_what_is_known_of_them(champion, client):
    described = client("sagemaker").describe_model_package(ModelPackageName=champion.package)
    uri = described["InferenceSpecification"]["Containers"][0]["ModelDataUrl"]
    bucket, _, key = uri.removeprefix("s3://").partition("/")
    body = client("s3").get_object(Bucket=bucket, Key=key)["Body"].read()
    with tarfile.open(fileobj=io.BytesIO(body)) as tar:
        names = {member.name.removeprefix("./") for member in tar if member.isfile()}
        told = json.load(tar.extractfile(next(n for n in tar.getnames() if "yard.json" in n)))
    assert {"weights.json", "code/trainyard.json", "code/packages.txt"} < names
    assert {"code/inference.py", "code/layers.py", "code/train.py"} < names
    assert told["arguments"] == {"slope": 1.5} and told["script"] == "train.py"


def test_all_that_the_record_says_holds_and_the_page_has_it(champion, tmp_path):
    findings = {finding.name: finding for finding in verify(str(champion.package), deep=True)}
    assert not [f for f in findings.values() if f.status == "mismatch"]
    checked = {name for name, finding in findings.items() if finding.status == "ok"}
    assert {"artifact's training", "scores", "train split", "test split", "verdict"} <= checked
    assert champion.gate["champion"] == "none" and champion.gate["examples"] == len(ROWS)
    page = tmp_path / "report.html"
    frozen_page.write_frozen_page(champion.execution.arn, page, PANELS)
    text = page.read_text()
    for shown in ("<h2>Training</h2>", "Gate: ", "Held-out test split", "log loss"):
        assert shown in text


def test_an_unchanged_folder_is_unchanged_and_its_training_is_in_the_cache(champion, recipe):
    done = call_module("pipelines.upsert", "--recipe", str(recipe))
    assert "unchanged" in done.stdout, done.stdout + done.stderr
    steps = json.loads(call_module("pipelines.plan", "--recipe", str(recipe), "--json").stdout)[
        "steps"
    ]
    assert {step["step"]: step["answer"] for step in steps}["Train"] == "cached"


def test_a_worse_model_is_rejected_against_the_champion(champion, run):
    worse = run(slope=0.2)
    assert worse.package is None and worse.failed_checks == ["non_inferiority_log_loss"]
    assert worse.gate["champion"] == champion.package and worse.gate["look"] == 1


def test_a_model_that_was_trained_on_test_examples_is_rejected_though_it_is_no_worse(champion, run):
    leaked = run(seen="row-3,row-17,something")
    assert leaked.package is None and leaked.failed_checks == ["max_leaked_examples"]
    assert leaked.gate["champion"] == champion.package
    assert "2 of 400" in leaked.gate["reason"]


@pytest.mark.parametrize("name", ["train/a.csv", "test/test.csv"])
def test_other_data_under_the_same_name_are_found(champion, client, name):
    s3, channel = client("s3"), name.partition("/")[0]
    before = s3.get_object(Bucket=BUCKET, Key=f"data/{name}")["Body"].read()
    s3.put_object(Bucket=BUCKET, Key=f"data/{name}", Body=before.replace(b",1\n", b",0\n"))
    try:
        with pytest.raises(Mismatch, match=f"SHA-256 of channel {channel}"):
            make_split_check(channel, deep=True)(Evidence(str(champion.package)))
    finally:
        s3.put_object(Bucket=BUCKET, Key=f"data/{name}", Body=before)


def test_the_registered_package_answers_by_the_scripts_own_functions(champion, client):
    sagemaker, role = client("sagemaker"), "arn:aws:iam::123456789012:role/pipelines"
    container = {"ModelPackageName": champion.package}
    sagemaker.create_model(ModelName="m", Containers=[container], ExecutionRoleArn=role)
    variant = {"VariantName": "v", "ModelName": "m", "InstanceType": "ml.m5.large"}
    sagemaker.create_endpoint_config(
        EndpointConfigName="c", ProductionVariants=[variant | {"InitialInstanceCount": 1}]
    )
    sagemaker.create_endpoint(EndpointName="e", EndpointConfigName="c")
    sagemaker.get_waiter("endpoint_in_service").wait(
        EndpointName="e", WaiterConfig={"Delay": 1, "MaxAttempts": 90}
    )
    answer = client("sagemaker-runtime").invoke_endpoint(
        EndpointName="e", ContentType="application/json", Body=b'{"x": 1}'
    )
    probability = json.loads(answer["Body"].read())["probability"]
    assert probability == pytest.approx(1 / (1 + math.exp(-1.5)))
    sagemaker.delete_endpoint(EndpointName="e")
