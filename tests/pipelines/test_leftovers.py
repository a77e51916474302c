"""What belongs to no champion is listed with its command; nothing is deleted."""

import io
import json
import tarfile

import boto3
import pytest

from tests.conftest import CHECKOUT, called
from tests.pipelines.upserting import clean_aws
from tests.trainyard.emulator.harness import until
from trainyard.language.statuses import ENDED

pytestmark = pytest.mark.long
LAPTOP = str(CHECKOUT / "recipes/laptop.yaml")
BUCKET, PIPELINE = "leftovers-bkt", "leftovers-pipe"
ROOT = f"trainyard/{PIPELINE}"
IMAGE = "683313688378.dkr.ecr.us-east-1.amazonaws.com/sagemaker-scikit-learn:1.2-1-cpu-py3"
ROLE = "arn:aws:iam::123456789012:role/jobs"
HANDLER = b"def model_fn(model_dir): return 1"
SETS = [f"--set=aws.bucket={BUCKET}", f"--set=pipeline.name={PIPELINE}",
        f"--set=register.model_package_group={PIPELINE}", "--set=cache.enabled=false"]  # fmt: skip


@pytest.fixture
def aws(emulator, monkeypatch: pytest.MonkeyPatch):
    s3, sagemaker = clean_aws(emulator.env, monkeypatch)
    s3.create_bucket(Bucket=BUCKET)
    for item in s3.list_objects_v2(Bucket=BUCKET).get("Contents", ()):
        s3.delete_object(Bucket=BUCKET, Key=item["Key"])
    for upload in s3.list_multipart_uploads(Bucket=BUCKET).get("Uploads", ()):
        s3.abort_multipart_upload(Bucket=BUCKET, Key=upload["Key"], UploadId=upload["UploadId"])
    yield s3, sagemaker
    pages = sagemaker.list_model_packages(ModelPackageGroupName=PIPELINE)
    for one in pages["ModelPackageSummaryList"]:
        sagemaker.delete_model_package(ModelPackageName=one["ModelPackageArn"])


def put(s3, *keys: str) -> None:
    for key in keys:
        s3.put_object(Bucket=BUCKET, Key=f"{ROOT}/{key}", Body=b"x" * 1000)


def packaged(s3, sagemaker, run: str, status: str) -> str:
    """Register the model of a run; return the package's ARN."""
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w:gz") as tar:
        entry = tarfile.TarInfo("code/inference.py")
        entry.size = len(HANDLER)
        tar.addfile(entry, io.BytesIO(HANDLER))
    key = f"{ROOT}/runs/{run}/train/model.tar.gz"
    s3.put_object(Bucket=BUCKET, Key=key, Body=archive.getvalue())
    put(s3, f"runs/{run}/evaluate/evaluation.json")
    groups = sagemaker.list_model_package_groups()["ModelPackageGroupSummaryList"]
    if PIPELINE not in [one["ModelPackageGroupName"] for one in groups]:
        sagemaker.create_model_package_group(ModelPackageGroupName=PIPELINE)
    container = {"Image": IMAGE, "ModelDataUrl": f"s3://{BUCKET}/{key}",
                 "Environment": {"SAGEMAKER_PROGRAM": "inference.py"}}  # fmt: skip
    made = sagemaker.create_model_package(
        ModelPackageGroupName=PIPELINE,
        ModelApprovalStatus=status,
        InferenceSpecification={"Containers": [container]},
    )
    return made["ModelPackageArn"]


def listed(days: int = 0, *more: str) -> str:
    done = called("pipelines.leftovers", "--recipe", LAPTOP, "--days", str(days), *SETS, *more)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_what_a_run_may_still_reuse_is_not_offered_for_removal():
    done = called("pipelines.leftovers", "--recipe", LAPTOP, "--days", "3")
    assert done.returncode == 1
    assert "--days 3: less than cache.expire_after P30D" in done.stderr


def test_a_rejected_run_is_listed_and_the_champion_is_not_and_nothing_is_deleted(aws):
    s3, sagemaker = aws
    packaged(s3, sagemaker, "before", "Approved")
    packaged(s3, sagemaker, "champion", "Approved")
    packaged(s3, sagemaker, "rejected", "Rejected")
    put(s3, "runs/nothing/train/a", "checkpoints/abc/step-1/a", "code/a.py", "definitions/a.json",
        "captured/models/version-1/2026/01/01/a.jsonl")  # fmt: skip
    s3.put_object(Bucket=BUCKET, Key=f"{ROOT}-too/runs/other/a", Body=b"another pipeline's")
    upload = s3.create_multipart_upload(Bucket=BUCKET, Key=f"{ROOT}/runs/nothing/b")["UploadId"]
    before = s3.list_objects_v2(Bucket=BUCKET)["Contents"]
    said = listed()
    commands = [line for line in said.splitlines() if line.startswith("aws ")]
    removed = {line.split()[4] for line in commands if line.startswith("aws s3 rm")}
    ours = ("runs/rejected", "runs/nothing", "checkpoints/abc", "captured/models/version-1")
    assert removed == {f"s3://{BUCKET}/{ROOT}/{name}/" for name in ours}
    [abort] = [line for line in commands if "abort-multipart-upload" in line]
    assert upload in abort and "code/" not in said and "-too" not in said
    assert s3.list_objects_v2(Bucket=BUCKET)["Contents"] == before
    assert "nothing is left over" in listed(30)
    with_endpoint = listed(0, "--set=deploy={endpoint: models}")
    assert "captured/models" not in with_endpoint  # of a package that is Approved


def test_a_model_made_from_a_file_and_a_running_execution_keep_what_they_need(aws):
    s3, sagemaker = aws
    put(s3, "runs/loose/train/model.tar.gz", "runs/nothing/a", "checkpoints/abc/a")
    uri = f"s3://{BUCKET}/{ROOT}/runs/loose/train/model.tar.gz"
    sagemaker.create_model(
        ModelName="loose", ExecutionRoleArn=ROLE,
        PrimaryContainer={"Image": IMAGE, "ModelDataUrl": uri},
    )  # fmt: skip
    sqs = boto3.client("sqs")
    queue = sqs.create_queue(QueueName="leftovers")["QueueUrl"]
    step = {"Name": "Wait", "Type": "Callback", "SqsQueueUrl": queue, "Arguments": {}}
    body = json.dumps({"Version": "2020-12-01", "Steps": [step]})
    sagemaker.create_pipeline(PipelineName=PIPELINE, PipelineDefinition=body, RoleArn=ROLE)
    arn = sagemaker.start_pipeline_execution(PipelineName=PIPELINE)["PipelineExecutionArn"]
    put(s3, f"runs/{arn.rpartition('/')[2]}/a")
    said = listed()
    assert "runs/nothing/" in said
    assert "loose" not in said and "checkpoints" not in said and arn[-12:] not in said
    [message] = until(lambda: sqs.receive_message(QueueUrl=queue).get("Messages"))
    token = json.loads(message["Body"])["token"]
    sagemaker.send_pipeline_execution_step_success(CallbackToken=token)
    run = {"PipelineExecutionArn": arn}
    until(lambda: sagemaker.describe_pipeline_execution(**run)["PipelineExecutionStatus"] in ENDED)
    assert "checkpoints/abc/" in listed()
    sagemaker.delete_pipeline(PipelineName=PIPELINE)
    sagemaker.delete_model(ModelName="loose")


def test_an_endpoint_of_another_package_is_listed_with_its_price_and_keeps_its_model(aws):
    s3, sagemaker = aws
    old = packaged(s3, sagemaker, "old", "Approved")
    packaged(s3, sagemaker, "champion", "Approved")
    sagemaker.create_model(
        ModelName="old", ExecutionRoleArn=ROLE, PrimaryContainer={"ModelPackageName": old}
    )
    variant = {"VariantName": "one", "ModelName": "old", "InstanceType": "ml.m5.large",
               "InitialInstanceCount": 2}  # fmt: skip
    sagemaker.create_endpoint_config(EndpointConfigName="old", ProductionVariants=[variant])
    sagemaker.create_endpoint(EndpointName="forgotten", EndpointConfigName="old")
    sagemaker.update_model_package(ModelPackageArn=old, ModelApprovalStatus="Rejected")
    try:
        said = listed()
    finally:
        sagemaker.delete_endpoint(EndpointName="forgotten")
        sagemaker.delete_endpoint_config(EndpointConfigName="old")
        sagemaker.delete_model(ModelName="old")
    assert "delete-endpoint --endpoint-name forgotten --region us-east-1" in said
    assert "endpoint forgotten" in said and "~0.230" in said
    assert "runs/old" not in said
    assert "runs/old" in listed()  # the endpoint is gone
