"""Trainings on what is there: a script on EFS, the loop on shards of FSx or of another pipeline."""

import shutil
from pathlib import Path

import boto3
import pytest

from pipelines.registry.verification import verify
from tests.conftest import CHECKOUT
from tests.somebodys import data
from tests.test_tuned import run

pytestmark = [pytest.mark.slow, pytest.mark.sweep]
VPC = "aws.vpc={subnets: [subnet-0123456789], security_groups: [sg-0123456789]}"
SYSTEM = "fs-0123456789abcdef0"
READ = """
with open(os.path.join(os.environ["SM_CHANNEL_CORPUS"], "part/slope.txt")) as file:
    options.slope = float(file.read())
"""
SHARDS = (
    VPC,
    "train.input_mode=FSxLustre",
    f"train.fsx={{file_system_id: {SYSTEM}, directory_path: /fsx/mirror}}",
)
LOOP = (
    "workload.config={context_length: 64, layers: 1, heads: 2, dim: 32}",
    "shard={instance_count: 1, key: key, validation_share: 0.3, test_share: 0.2}",
    "train.loop.max_steps=4",
    "train.loop.warmup_steps=1",
    "train.loop.validation_interval=2",
    "gate={max_bits_per_byte: 8.5}",
)


@pytest.fixture
def somebodys(aws_environment, tmp_path: Path) -> Path:
    """Somebody's recipe, with its data in S3, and a script that reads a channel ``corpus``."""
    data.put(boto3.client("s3"))
    folder = shutil.copytree(CHECKOUT / "tests/somebodys", tmp_path / "theirs")
    script = folder / "train.py"
    script.write_text(
        script.read_text().replace('print("loss=0.5")\n', f'print("loss=0.5")\n{READ}')
    )
    return folder / "recipe.yaml"


def test_a_script_reads_a_folder_of_efs_on_two_nodes(somebodys, tmp_path, monkeypatch):
    part = tmp_path / "efs/corpora/part"
    part.mkdir(parents=True)
    (part / "slope.txt").write_text("1.25")
    monkeypatch.setenv("TRAINYARD_EMULATOR_FILE_SYSTEMS", f"{SYSTEM}={tmp_path / 'efs'}")
    mounted = f"{{corpus: {{file_system_id: {SYSTEM}, type: EFS, directory_path: /corpora}}}}"
    execution, package = run(
        str(somebodys), VPC, f"train.file_systems={mounted}", "train.instance_count=2"
    )
    train = {one.name: one for one in execution.list_steps()}["Train"]
    lines = "\n".join(execution.iter_lines(train))
    assert "efs/corpora, read-only" in lines and f"stands in for {SYSTEM}" in lines
    card = boto3.client("sagemaker").describe_model_package(ModelPackageName=package)["ModelCard"]
    assert f"{SYSTEM}:/corpora" in card["ModelCardContent"]


def test_the_loop_trains_on_the_shards_that_fsx_shows(small_corpus, monkeypatch):
    mirror = f"{SYSTEM}/fsx/mirror=s3://trainyard-laptop/trainyard/trainyard-laptop"
    monkeypatch.setenv("TRAINYARD_EMULATOR_FILE_SYSTEMS", mirror)
    execution, _ = run("recipes/laptop.yaml", *SHARDS, *LOOP)
    steps = {one.name: one for one in execution.list_steps()}
    job = boto3.client("sagemaker").describe_training_job(TrainingJobName=steps["Train"].job[1])
    sources = [one["DataSource"] for one in job["InputDataConfig"]]
    assert sum("FileSystemDataSource" in one for one in sources) == 2


def test_a_package_of_given_shards_is_verified_to_the_last_byte(small_corpus):
    steps = {step.name: step for step in run("recipes/laptop.yaml", *LOOP)[0].list_steps()}
    job = boto3.client("sagemaker").describe_processing_job(ProcessingJobName=steps["Shard"].job[1])
    outputs = job["ProcessingOutputConfig"]["Outputs"]
    [train] = [o["S3Output"]["S3Uri"] for o in outputs if o["OutputName"] == "train"]
    shards = train.removesuffix("/").removesuffix("/train")

    given = (f"data={{shards: {shards}}}", "shard={}", "pipeline.name=given")
    execution, package = run("recipes/laptop.yaml", *LOOP, *given)
    assert "Shard" not in {step.name for step in execution.list_steps()}

    s3, (bucket, _, prefix) = boto3.client("s3"), shards[5:].partition("/")
    listed = s3.list_objects_v2(Bucket=bucket, Prefix=f"{prefix}/test/")["Contents"]
    key = next(found["Key"] for found in listed if found["Key"].endswith(".npy"))
    content = s3.get_object(Bucket=bucket, Key=key)["Body"].read()
    s3.put_object(Bucket=bucket, Key=key, Body=content[:-1] + bytes([content[-1] ^ 1]))
    wrong = [one.detail for one in verify(package, deep=True) if one.status == "mismatch"]
    assert any(key.rpartition("/")[2] in detail for detail in wrong)
