"""A model package that a pipeline of ours registered on an emulator, small: to look at, to harm."""

import hashlib
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import boto3

from pipelines.corpora.stdlib import pack_sources
from pipelines.start import start
from tests.conftest import CHECKOUT, clean_environment
from trainyard.common.safe_unpack import unpack_tar
from trainyard.language.definition_document import END_STATUSES
from trainyard.runs.execution import Execution
from trainyard.runs.run_display import find_model_package

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
    "pipeline.overridable=[GateMaxBitsPerByte]",
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
        environment = clean_environment() | self.env | {"PYTHONPATH": str(self.checkout)}
        return subprocess.run(
            [sys.executable, "-m", *words], cwd=self.checkout, env=environment,
            capture_output=True, text=True, check=False,
        )  # fmt: skip


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
    for name, content in pack_sources(iter(texts)).items():
        s3.put_object(Bucket=BUCKET, Key=f"raw/python-stdlib/{name}", Body=content)
    made = Registered("", checkout, state, emulator.env, client)
    sets = [word for setting in SETTINGS for word in ("--set", setting)]
    done = made.python("pipelines.upsert", "--recipe", "recipes/laptop.yaml", *sets,
                       "--start", "--wait")  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    listed = client("sagemaker").list_model_packages(ModelPackageGroupName=GROUP)
    [package] = listed["ModelPackageSummaryList"]
    return replace(made, arn=package["ModelPackageArn"])


def wait_for(condition: Callable[[], Any]) -> Any:
    """What the condition returns once it is true."""
    limit = time.monotonic() + 240
    while not (value := condition()):
        assert time.monotonic() < limit, "it did not happen"
        time.sleep(0.3)
    return value


def run_to_end(name: str, parameters: Mapping[str, str] | None = None, **options: str) -> Execution:
    """A run of the pipeline, which has ended."""
    execution = Execution(start(name, dict(parameters or {}), **options))
    while execution.describe()["PipelineExecutionStatus"] not in END_STATUSES:
        time.sleep(0.3)
    return execution


def another(champion: str = "none", **parameters: str) -> str:
    """ARN of a package that one more run of the pipeline registers."""
    execution = run_to_end(GROUP, parameters, champion=champion)
    arn = find_model_package(execution.list_steps())
    assert arn, execution.describe()
    return arn


def run_folder(registered: Registered, step: str) -> str:
    execution = registered.metadata["execution"].rpartition("/")[2]
    return f"s3://{BUCKET}/trainyard/{GROUP}/runs/{execution}/{step}"


def first(registered: Registered, uri: str, end: str) -> str:
    bucket, _, prefix = uri.removeprefix("s3://").partition("/")
    listed = registered.client("s3").list_objects_v2(Bucket=bucket, Prefix=prefix)["Contents"]
    return next(f"s3://{bucket}/{i['Key']}" for i in listed if i["Key"].endswith(end))


def reseal_package(
    registered: Registered, champion: str | None, edit: Callable[[dict], None] = lambda _: None
) -> str:
    """A new package of the same model, whose gate compared with ``champion``; its hashes hold.

    ``edit`` changes its evaluation.
    """
    evaluation = json.loads(registered.read(registered.evaluation_uri))
    edit(evaluation)
    text = json.dumps(evaluation | {"champion": {"arn": champion}}).encode()
    package, folder = registered.package, f"s3://{BUCKET}/resealed/{os.urandom(4).hex()}"
    registered.write(f"{folder}/evaluation.json", text)
    digest = hashlib.sha256(text).hexdigest()
    record = json.loads(registered.read(registered.metadata["provenance_uri"]))
    sealed = json.dumps(record | {"evaluation_sha256": digest}).encode()
    registered.write(f"{folder}/provenance.json", sealed)
    metrics = json.loads(json.dumps(package["ModelMetrics"]))
    metrics["ModelQuality"]["Statistics"] |= {
        "S3Uri": f"{folder}/evaluation.json", "ContentDigest": f"sha256:{digest}"
    }  # fmt: skip
    changed = {"evaluation_sha256": digest, "provenance_uri": f"{folder}/provenance.json",
               "provenance_sha256": hashlib.sha256(sealed).hexdigest()}  # fmt: skip
    return registered.client("sagemaker").create_model_package(
        ModelPackageGroupName=GROUP,
        InferenceSpecification=package["InferenceSpecification"],
        ModelCard=package["ModelCard"],
        ModelMetrics=metrics,
        CustomerMetadataProperties=package["CustomerMetadataProperties"] | changed,
    )["ModelPackageArn"]


def unpack_evaluated_files(registered: Registered) -> Path:
    """A folder with what was evaluated: model/, the artifact unpacked, and test/, the split."""
    folder = registered.state / "evaluated"
    with tarfile.open(fileobj=io.BytesIO(registered.read(registered.model_uri))) as tar:
        unpack_tar(tar, folder / "model")
    bucket, _, prefix = run_folder(registered, "shard/test").removeprefix("s3://").partition("/")
    listed = registered.client("s3").list_objects_v2(Bucket=bucket, Prefix=f"{prefix}/")
    (folder / "test").mkdir()
    for item in listed["Contents"]:
        name = item["Key"].rpartition("/")[2]
        (folder / "test" / name).write_bytes(registered.read(f"s3://{bucket}/{item['Key']}"))
    return folder
