"""A model package that a pipeline of ours registered on an emulator, small: to look at, to harm."""

import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import boto3

from pipelines.corpora.stdlib import pack
from pipelines.start import start
from tests.conftest import CHECKOUT, clean_environment
from trainyard.language.statuses import ENDED
from trainyard.runs.execution import Execution
from trainyard.runs.summary import model_package

GROUP = BUCKET = "trainyard-laptop"
SETTINGS = [
    "workload.config={context_length: 64, layers: 1, heads: 2, dim: 32}",
    "shard.instance_count=1",
    "shard.validation_share=0.2",
    "shard.test_share=0.2",
    "train.instance_count=1",
    "train.loop.strategy=single",
    "train.loop.max_steps=4",
    "train.loop.warmup_steps=1",
    "train.loop.validation_samples=8",
    "gate={max_bits_per_byte: 8.5}",
]


@dataclass(frozen=True)
class Registered:
    """A package that a pipeline registered, and the checkout that it was built from."""

    arn: str
    checkout: Path
    state: Path
    env: dict[str, str]
    client: Callable[[str], Any]

    @property
    def package(self) -> dict[str, Any]:
        return self.client("sagemaker").describe_model_package(ModelPackageName=self.arn)

    @property
    def metadata(self) -> dict[str, str]:
        return self.package["CustomerMetadataProperties"]

    @property
    def evaluation_uri(self) -> str:
        return self.package["ModelMetrics"]["ModelQuality"]["Statistics"]["S3Uri"]

    @property
    def gate_uri(self) -> str:
        return self.package["ModelMetrics"]["ModelQuality"]["Constraints"]["S3Uri"]

    @property
    def model_uri(self) -> str:
        return self.package["InferenceSpecification"]["Containers"][0]["ModelDataUrl"]

    def read(self, uri: str) -> bytes:
        bucket, _, key = uri.removeprefix("s3://").partition("/")
        return self.client("s3").get_object(Bucket=bucket, Key=key)["Body"].read()

    def write(self, uri: str, body: bytes) -> None:
        bucket, _, key = uri.removeprefix("s3://").partition("/")
        self.client("s3").put_object(Bucket=bucket, Key=key, Body=body)

    def python(self, *words: str) -> subprocess.CompletedProcess:
        return subprocess.run(
            [sys.executable, "-m", *words],
            cwd=self.checkout,
            env=clean_environment() | self.env | {"PYTHONPATH": str(self.checkout)},
            capture_output=True,
            text=True,
            check=False,
        )


def git(checkout: Path, *words: str) -> None:
    who = ["-c", "user.name=test", "-c", "user.email=test@example.com"]
    subprocess.run(["git", "-C", str(checkout), *who, *words], check=True, capture_output=True)


def checkout_in(copy: Path) -> Path:
    """A repository of its own, with nothing uncommitted, whatever this one is like."""
    left_out = shutil.ignore_patterns(".*", "__pycache__", "tests", "docs", "benchmarks")
    shutil.copytree(CHECKOUT, copy, ignore=left_out, dirs_exist_ok=True)
    (copy / ".gitignore").write_text("__pycache__/\n")
    git(copy, "init", "-q")
    git(copy, "add", "-A")
    git(copy, "commit", "-q", "-m", "all")
    return copy


def register(emulator, state: Path, checkout: Path) -> Registered:
    """Upsert laptop.yaml, made small, from ``checkout``, and run it to its end."""

    def client(service: str):
        return boto3.client(service, endpoint_url=emulator.url, region_name="us-east-1",
                            aws_access_key_id=emulator.env["AWS_ACCESS_KEY_ID"],
                         aws_secret_access_key=emulator.env["AWS_SECRET_ACCESS_KEY"])  # fmt: skip

    s3 = client("s3")
    s3.create_bucket(Bucket=BUCKET)
    texts = [(f"file-{n}", f"def f{n}(x):\n    return x + {n}\n" * 20) for n in range(30)]
    for name, content in pack(iter(texts)).items():
        s3.put_object(Bucket=BUCKET, Key=f"raw/python-stdlib/{name}", Body=content)
    made = Registered("", checkout, state, emulator.env, client)
    sets = [word for setting in SETTINGS for word in ("--set", setting)]
    done = made.python("pipelines.upsert", "--recipe", "recipes/laptop.yaml", *sets,
                       "--start", "--wait")  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    [package] = client("sagemaker").list_model_packages(ModelPackageGroupName=GROUP)[
        "ModelPackageSummaryList"
    ]
    return Registered(package["ModelPackageArn"], checkout, state, emulator.env, client)


def another(champion: str = "none", **parameters: str) -> str:
    """ARN of a package that one more run of the pipeline registers."""
    execution = Execution(start(GROUP, parameters, champion=champion))
    while (found := execution.describe())["PipelineExecutionStatus"] not in ENDED:
        time.sleep(0.1)
    arn = model_package(execution.steps())
    assert arn, found
    return arn
