"""A pipeline written with nothing of ours: SDK v3's own classes and somebody else's scripts.

AWS's drivers (sm_train.sh, the torchrun driver) run unmodified; on two nodes where a rank fails.
The AWS CLI looks on.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.trainyard.emulator.harness import Cloud, cloud

pytestmark = pytest.mark.long

PREPARE = """
import argparse, glob, json, os
parser = argparse.ArgumentParser()
parser.add_argument("--scale", type=float)
scale = parser.parse_args().scale
host = json.load(open("/opt/ml/config/resourceconfig.json"))["current_host"]
for path in glob.glob("/opt/ml/processing/in/*.txt"):
    value = float(open(path).read()) * scale
    open(os.path.join("/opt/ml/processing/out", os.path.basename(path)), "w").write(str(value))
print(host, "prepared")
"""
TRAIN = """
import argparse, glob, os
import torch
import torch.distributed as dist
parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int)
parser.add_argument("--fail_rank", type=int, default=-1)
args = parser.parse_args()
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
files = sorted(glob.glob(os.environ["SM_CHANNEL_TRAIN"] + "/*.txt"))
total = torch.tensor([sum(float(open(path).read()) for path in files[rank::world])])
dist.all_reduce(total)
if rank == args.fail_rank:
    raise ValueError(f"rank {rank} of {world} does not like its data")
print(f"epoch {args.epochs} total={total.item()}", flush=True)
if rank == 0:
    torch.save({"total": total}, os.path.join(os.environ["SM_MODEL_DIR"], "model.pt"))
dist.barrier()
dist.destroy_process_group()
"""
EVALUATE = """
import io, json, tarfile
import torch
with tarfile.open("/opt/ml/processing/model/model.tar.gz") as tar:
    model = io.BytesIO(tar.extractfile("model.pt").read())
total = torch.load(model, weights_only=True)["total"].item()
json.dump({"metrics": [{"total": total}]}, open("/opt/ml/processing/report/report.json", "w"))
"""
BUILD = """
import sys
from sagemaker.core.processing import ScriptProcessor
from sagemaker.core.shapes import (
    ProcessingInput, ProcessingOutput, ProcessingS3Input, ProcessingS3Output,
)
from sagemaker.core.training.configs import Compute, InputData, OutputDataConfig, SourceCode
from sagemaker.core.workflow.conditions import ConditionGreaterThanOrEqualTo
from sagemaker.core.workflow.functions import Join, JsonGet
from sagemaker.core.workflow.parameters import ParameterFloat, ParameterInteger
from sagemaker.core.workflow.pipeline_context import PipelineSession
from sagemaker.core.workflow.properties import PropertyFile
from sagemaker.mlops.workflow.condition_step import ConditionStep
from sagemaker.mlops.workflow.fail_step import FailStep
from sagemaker.mlops.workflow.pipeline import Pipeline
from sagemaker.mlops.workflow.steps import ProcessingStep, TrainingStep
from sagemaker.train import ModelTrainer
from sagemaker.train.distributed import Torchrun

ROLE, IMAGE = sys.argv[1:3]
session = PipelineSession(default_bucket="bkt")
least = ParameterFloat(name="Least", default_value=10.0)
fail_rank = ParameterInteger(name="FailRank", default_value=-1)
nodes = ParameterInteger(name="Nodes", default_value=1)


def processor(count):
    return ScriptProcessor(role=ROLE, image_uri=IMAGE, command=["python3"], instance_count=count,
                           instance_type="ml.m5.large", sagemaker_session=session)


def s3_input(name, uri, spread="FullyReplicated"):
    return ProcessingInput(input_name=name, s3_input=ProcessingS3Input(
        s3_uri=uri, local_path=f"/opt/ml/processing/{name}", s3_data_type="S3Prefix",
        s3_input_mode="File", s3_data_distribution_type=spread))


def output(name):
    return ProcessingOutput(output_name=name, s3_output=ProcessingS3Output(
        s3_uri=f"s3://bkt/sdk/{name}", local_path=f"/opt/ml/processing/{name}",
        s3_upload_mode="EndOfJob"))


prepare = ProcessingStep(name="Prepare", step_args=processor(2).run(
    code="prepare.py", arguments=["--scale", "2.0"],
    inputs=[s3_input("in", "s3://bkt/raw", "ShardedByS3Key")], outputs=[output("out")]))
trainer = ModelTrainer(
    training_image=IMAGE, role=ROLE, sagemaker_session=session, distributed=Torchrun(),
    source_code=SourceCode(source_dir="src", entry_script="train.py"),
    compute=Compute(instance_type="ml.m5.large", instance_count=nodes, volume_size_in_gb=1),
    output_data_config=OutputDataConfig(s3_output_path="s3://bkt/models"),
    hyperparameters={"epochs": 3, "fail_rank": fail_rank.to_string()})
data = prepare.properties.ProcessingOutputConfig.Outputs["out"].S3Output.S3Uri
train = TrainingStep(name="Train", step_args=trainer.train(
    input_data_config=[InputData(channel_name="train", data_source=data)]))
report = PropertyFile(name="report", output_name="report", path="report.json")
evaluate = ProcessingStep(name="Evaluate", property_files=[report], step_args=processor(1).run(
    code="evaluate.py", outputs=[output("report")],
    inputs=[s3_input("model", train.properties.ModelArtifacts.S3ModelArtifacts)]))
total = JsonGet(step_name="Evaluate", property_file="report", json_path="metrics[0].total")
message = Join(on=" ", values=["total", total, "is less than", least])
gate = ConditionStep(name="Gate", if_steps=[],
                     else_steps=[FailStep(name="No", error_message=message)],
                     conditions=[ConditionGreaterThanOrEqualTo(left=total, right=least)])
pipeline = Pipeline(name="theirs", parameters=[least, fail_rank, nodes], sagemaker_session=session,
                    steps=[prepare, train, evaluate, gate])
pipeline.upsert(role_arn=ROLE)
pipeline.upsert(role_arn=ROLE)
execution = pipeline.start()
execution.wait(delay=1)
for step in execution.list_steps():
    print("STEP", step["StepName"], step["StepStatus"])
print("ARN", execution.arn)
"""
ROLE = "arn:aws:iam::123456789012:role/pipeline"
IMAGE = "763104351884.dkr.ecr.us-east-1.amazonaws.com/pytorch-training:2.6.0-cpu-py312"


@pytest.fixture(scope="module")
def aws(tmp_path_factory: pytest.TempPathFactory):
    with cloud(tmp_path_factory.mktemp("aws")) as running:
        for number in range(1, 4):
            running.put(f"raw/{number}.txt", str(number))
        yield running


@pytest.fixture(scope="module")
def built(aws: Cloud, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Output of the SDK's own script: it upserts, starts, waits and lists the steps."""
    work = tmp_path_factory.mktemp("theirs")
    (work / "src").mkdir()
    files = {
        "prepare.py": PREPARE,
        "src/train.py": TRAIN,
        "evaluate.py": EVALUATE,
        "build.py": BUILD,
    }
    for name, text in files.items():
        (work / name).write_text(text)
    command = [sys.executable, "build.py", ROLE, IMAGE]
    done = subprocess.run(
        command,
        cwd=work,
        env=environment(aws, work),
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout.splitlines()


def environment(aws: Cloud, home: Path) -> dict[str, str]:
    outer = {k: v for k, v in os.environ.items() if not k.startswith("AWS_")}
    return outer | aws.endpoint.env | {"HOME": str(home)}


@pytest.mark.slow
def test_the_sdks_start_wait_and_list_steps(aws: Cloud, built: list[str]) -> None:
    steps = [line.split()[1:] for line in built if line.startswith("STEP")]
    assert steps == [[name, "Succeeded"] for name in ("Gate", "Evaluate", "Train", "Prepare")]
    assert json.loads(aws.get("sdk/report/report.json")) == {"metrics": [{"total": 12.0}]}
    job = aws.sm.list_training_jobs()["TrainingJobSummaries"][0]["TrainingJobName"]
    lines = aws.log("Training", job, "algo-1")
    assert "epoch 3 total=12.0" in lines
    assert "Running Torchrun Driver" in lines


@pytest.mark.slow
def test_the_aws_cli_sees_the_same(aws: Cloud, built: list[str], tmp_path: Path) -> None:
    arn = next(line.split()[1] for line in built if line.startswith("ARN"))

    def cli(*arguments: str) -> dict:
        command = [sys.executable, "-m", "awscli", "sagemaker", *arguments, "--output", "json"]
        done = subprocess.run(
            command,
            env=environment(aws, tmp_path),
            capture_output=True,
            text=True,
            timeout=250,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    names = [p["PipelineName"] for p in cli("list-pipelines")["PipelineSummaries"]]
    assert names == ["theirs"]
    steps = cli("list-pipeline-execution-steps", "--pipeline-execution-arn", arn)
    train = next(s for s in steps["PipelineExecutionSteps"] if s["StepName"] == "Train")
    job = train["Metadata"]["TrainingJob"]["Arn"].rpartition("/")[2]
    described = cli("describe-training-job", "--training-job-name", job)
    assert described["TrainingJobStatus"] == "Completed"


@pytest.mark.sweep
@pytest.mark.slow
def test_a_rank_that_raises_is_named_and_the_gate_says_why(aws: Cloud, built: list[str]) -> None:
    """Two executions at once: their torchruns use the same port in different namespaces."""
    failing = aws.start("theirs", {"FailRank": "1", "Nodes": "2"})
    strict = aws.start("theirs", {"Least": "100", "Nodes": "2"})
    assert aws.ended(failing)["PipelineExecutionStatus"] == "Failed"
    reason = aws.steps(failing)["Train"]["FailureReason"]
    assert reason.startswith(
        "ClientError: AlgorithmError: ValueError: rank 1 of 2 does not like its data (algo-2)"
    ), reason
    assert aws.ended(strict)["PipelineExecutionStatus"] == "Failed"
    assert aws.steps(strict)["No"]["FailureReason"] == "total 12.0 is less than 100.0"
