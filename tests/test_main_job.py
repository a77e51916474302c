"""The main job on the emulator, small: what our verbs, the AWS CLI and the SDK see of one run."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import boto3
import psutil
import pytest

from pipelines.corpora.stdlib import pack_sources
from pipelines.start import start
from tests.conftest import AWS_NAMES, call_module, clean_environment, process
from tests.registered import wait_for
from trainyard.common.errors import PlanError

pytestmark = pytest.mark.slow

BUCKET = "trainyard-laptop"
SMALL = [
    "workload.config={context_length: 64, layers: 1, heads: 2, dim: 32}",
    "shard.instance_count=2",
    "shard.validation_share=0.2",
    "shard.test_share=0.2",
    "train.loop.max_steps=12",
    "train.loop.warmup_steps=2",
    "train.loop.checkpoint_interval=4",
    "train.loop.validation_samples=8",
    "gate={max_bits_per_byte: 8.5, visible_checks: true}",
    "pipeline.overridable=[MaxSteps, GateMaxBitsPerByte]",
]


@pytest.fixture(scope="module")
def home(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def verb(emulator, home) -> Iterator[Callable[..., subprocess.CompletedProcess]]:
    """Run one of our verbs with the recipe and these settings: ``verb("upsert", "--start")``."""
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith(AWS_NAMES)]:
            patch.delenv(name)
        for name, value in (emulator.env | {"HOME": str(home)}).items():
            patch.setenv(name, value)

        def run(name: str, *arguments: str, recipe: bool = True, settings=SMALL):
            given = of_recipe(settings) if recipe else []
            return call_module(f"pipelines.{name}", *given, *arguments)

        yield run


def of_recipe(settings: list[str], recipe: str = "recipes/laptop.yaml") -> list[str]:
    return ["--recipe", recipe, *(word for setting in settings for word in ("--set", setting))]


@pytest.fixture(scope="module")
def finished_upsert(aws, emulator, home):
    """The corpus uploaded, the pipeline upserted, started and watched to its end."""
    texts = [(f"file-{n}", f"def f{n}(x):\n    return x + {n}\n" * 40) for n in range(40)]
    s3 = aws("s3")
    s3.create_bucket(Bucket=BUCKET)
    for name, content in pack_sources(iter(texts)).items():
        s3.put_object(Bucket=BUCKET, Key=f"raw/python-stdlib/{name}", Body=content)
    return process(emulator, home, "upsert", *of_recipe(SMALL), "--start", "--wait")


def execution_arn(done: subprocess.CompletedProcess) -> str:
    return re.search(r"started (arn:\S+)", done.stdout)[1]


def read_object(aws, uri: str) -> bytes:
    bucket, _, key = uri.removeprefix("s3://").partition("/")
    return aws("s3").get_object(Bucket=bucket, Key=key)["Body"].read()


def test_the_run_ends_with_a_registered_model_package(finished_upsert, aws):
    assert finished_upsert.returncode == 0, finished_upsert.stdout + finished_upsert.stderr
    arn = re.search(r"model package (arn:\S+)", finished_upsert.stdout)[1]
    package = aws("sagemaker").describe_model_package(ModelPackageName=arn)
    metadata = package["CustomerMetadataProperties"]
    assert re.fullmatch(r"[0-9a-f]{64}", metadata["dataset_fingerprint"])
    assert re.fullmatch(r"[0-9a-f]{40}(-dirty)?|unknown", metadata["commit"])
    assert package["ModelApprovalStatus"] == "PendingManualApproval"
    metrics = json.loads(
        read_object(aws, package["ModelMetrics"]["ModelQuality"]["Statistics"]["S3Uri"])
    )
    assert float(metadata["bits_per_byte"]) == metrics["metrics"]["bits_per_byte"]["value"]
    assert read_object(aws, package["InferenceSpecification"]["Containers"][0]["ModelDataUrl"])


def iter_job_logs(aws, kind: str, job: str) -> Iterator[tuple[str, str]]:
    """Name and text of each of a job's log streams."""
    group, logs = f"/aws/sagemaker/{kind}", aws("logs")
    streams = logs.describe_log_streams(logGroupName=group, logStreamNamePrefix=f"{job}/")
    for name in (stream["logStreamName"] for stream in streams["logStreams"]):
        events = logs.get_log_events(logGroupName=group, logStreamName=name)["events"]
        yield name, "\n".join(event["message"] for event in events)


def test_all_shard_instances_and_both_nodes_did_their_part(finished_upsert, aws):
    execution = execution_arn(finished_upsert)
    listed = aws("sagemaker").list_pipeline_execution_steps(PipelineExecutionArn=execution)
    jobs = {step["StepName"]: step["Metadata"] for step in listed["PipelineExecutionSteps"]}
    train = jobs["Train"]["TrainingJob"]["Arn"].rpartition("/")[2]
    described = aws("sagemaker").describe_training_job(TrainingJobName=train)
    latest = {m["MetricName"]: m["Value"] for m in described["FinalMetricDataList"]}
    assert latest["train:step"] == 12
    assert 0 < latest["train:loss"] < 6
    trained = [name for name, _ in iter_job_logs(aws, "TrainingJobs", train)]
    assert {re.search(r"algo-\d", name)[0] for name in trained} == {"algo-1", "algo-2"}
    prefix = f"trainyard/trainyard-laptop/runs/{execution.rpartition('/')[2]}/shard/train/"
    keys = [i["Key"] for i in aws("s3").list_objects_v2(Bucket=BUCKET, Prefix=prefix)["Contents"]]
    assert {k.removeprefix(prefix) for k in keys} >= {f"manifest-algo-{n}.json" for n in (1, 2)}
    shard = jobs["Shard"]["ProcessingJob"]["Arn"].rpartition("/")[2]
    told = (re.findall(r"(\d+) of \1 raw objects, ", text)[-1:]
            for _, text in iter_job_logs(aws, "ProcessingJobs", shard))  # fmt: skip
    read = sum(int(last) for found in told for last in found)
    raw = aws("s3").list_objects_v2(Bucket=BUCKET, Prefix="raw/python-stdlib/")["Contents"]
    assert read == len(raw)  # each of them by one instance alone


def test_a_second_upsert_uploads_nothing_and_a_second_run_is_answered_from_the_cache(
    finished_upsert, verb
):
    done = verb("upsert")
    assert "unchanged" in done.stdout and "0 bytes of code uploaded" in done.stdout, done.stderr
    steps = json.loads(verb("plan", "--json").stdout)["steps"]
    cached = ["Shard", "Train", "Evaluate", "Gate"]
    assert [step["step"] for step in steps if step["answer"] == "cached"] == cached
    with pytest.raises(PlanError, match=r"Train would be the cached result of run \w+: .*InputUri"):
        start("trainyard-laptop", {}, fresh=True)
    done = verb("start", "--wait")
    assert done.returncode == 0
    assert re.findall(r"(\w+) +Succeeded \(cached\)", done.stdout)[:4] == cached


def test_a_model_that_misses_its_threshold_is_not_registered(finished_upsert, verb, aws):
    before = packages(aws)
    done = verb("upsert", "--set", "gate.max_bits_per_byte=0.1", "--start", "--wait")
    assert done.returncode != 0
    report = r"The gate rejected the model \(s3://\S+/gate\.json\): "
    reason = r"bits_per_byte is [\d.]+, the recipe demands at most 0.1"
    assert re.search(report + reason, done.stdout), done.stdout
    assert packages(aws) == before
    verb("upsert")  # back to the threshold that the other tests expect


def packages(aws) -> list[str]:
    found = aws("sagemaker").list_model_packages(ModelPackageGroupName="trainyard-laptop")
    return [package["ModelPackageArn"] for package in found["ModelPackageSummaryList"]]


def test_a_parameter_changes_one_run_without_an_upsert(finished_upsert, verb):
    done = verb("start", "--parameter", "GateMaxBitsPerByte=0.2", "--wait")
    assert done.returncode != 0
    assert "at most 0.2" in done.stdout


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("ApprovalStatus=Approved", "a run of this pipeline cannot change it"),
        ("TrainInstanceCount=1", "a run of this pipeline cannot change it"),
        ("MaxStep=3", "nearest valid name: MaxSteps"),
    ],
)
def test_a_parameter_that_the_recipe_does_not_list_is_refused(given, said, finished_upsert, verb):
    done = verb("start", "--parameter", given)
    assert done.returncode == 1
    assert said in done.stderr and "Traceback" not in done.stderr


def test_watch_finds_the_newest_execution_and_the_report_shows_it(finished_upsert, verb, tmp_path):
    watched = verb("watch", recipe=False)
    assert "run " in watched.stdout
    out = tmp_path / "report.html"
    done = verb("report", execution_arn(finished_upsert), "--out", str(out), recipe=False)
    assert done.returncode == 0, done.stderr
    page = out.read_text()
    assert "optimizer step" in page and "bits per byte" in page


def test_the_plain_aws_cli_sees_pipeline_steps_job_and_package(finished_upsert, emulator, aws):
    def cli(*arguments: str) -> dict:
        command = [str(Path(sys.executable).parent / "aws"), *arguments, "--output", "json"]
        environment = clean_environment() | emulator.env
        done = subprocess.run(command, env=environment, capture_output=True, check=True)
        return json.loads(done.stdout)

    execution = execution_arn(finished_upsert)
    steps = cli("sagemaker", "list-pipeline-execution-steps", "--pipeline-execution-arn", execution)
    found = {step["StepName"]: step for step in steps["PipelineExecutionSteps"]}
    assert {step["StepStatus"] for step in found.values()} == {"Succeeded"}
    job = found["Train"]["Metadata"]["TrainingJob"]["Arn"].rpartition("/")[2]
    described = cli("sagemaker", "describe-training-job", "--training-job-name", job)
    assert described["TrainingJobStatus"] == "Completed"
    package = found["Register"]["Metadata"]["RegisterModel"]["Arn"]
    described = cli("sagemaker", "describe-model-package", "--model-package-name", package)
    assert described["ModelPackageStatus"] == "Completed"


def test_the_sdks_own_start_wait_and_list_steps_work(finished_upsert, verb):
    from sagemaker.core.workflow.pipeline_context import PipelineSession
    from sagemaker.mlops.workflow.pipeline import Pipeline

    session = PipelineSession(boto_session=boto3.Session(), default_bucket="trainyard-laptop")
    pipeline = Pipeline(name="trainyard-laptop", sagemaker_session=session)
    execution = pipeline.start(parameters={"ChampionArn": "none"})
    execution.wait(delay=1, max_attempts=240)
    steps = {"Evaluate", "Gate", "Register", "Shard", "Train", "Verdict"}
    assert {step["StepName"] for step in execution.list_steps()} == steps
    assert execution.describe()["PipelineExecutionStatus"] == "Succeeded"


LONG = [*SMALL, "train.loop.max_steps=100000"]


def wait_for_training(aws, execution: str) -> str:
    """The training job, once it has logged its first step."""

    def logged_job() -> str | None:
        steps = aws("sagemaker").list_pipeline_execution_steps(PipelineExecutionArn=execution)
        for step in steps["PipelineExecutionSteps"]:
            if step["StepName"] == "Train" and "TrainingJob" in step.get("Metadata", {}):
                job = step["Metadata"]["TrainingJob"]["Arn"].rpartition("/")[2]
                described = aws("sagemaker").describe_training_job(TrainingJobName=job)
                return job if described.get("FinalMetricDataList") else None
        return None

    return wait_for(logged_job)


def test_a_stopped_trainings_ranks_save_a_checkpoint_on_both_nodes(finished_upsert, verb, aws):
    """SIGTERM reaches the container's first process alone."""
    endless = ("train.loop.checkpoint_interval=100000", "train.loop.log_interval=1")
    done = verb("upsert", "--start", settings=[*LONG, *endless])
    job, sagemaker = wait_for_training(aws, execution_arn(done)), aws("sagemaker")
    sagemaker.stop_training_job(TrainingJobName=job)
    describe = sagemaker.describe_training_job
    wait_for(lambda: describe(TrainingJobName=job)["TrainingJobStatus"] == "Stopped")
    log = "\n".join(text for _, text in iter_job_logs(aws, "TrainingJobs", job))
    assert "stopped by SIGTERM after step" in log, log[-2000:]
    prefix = describe(TrainingJobName=job)["CheckpointConfig"]["S3Uri"]
    listing = aws("s3").list_objects_v2(
        Bucket=BUCKET, Prefix=prefix.removeprefix(f"s3://{BUCKET}/")
    )
    keys = [entry["Key"] for entry in listing.get("Contents", ())]
    assert any(key.endswith("complete.json") for key in keys), keys
    done = verb("watch", execution_arn(done), recipe=False)
    assert done.returncode != 0
    verb("upsert")


def descendants(nodes: dict[str, int]) -> list[psutil.Process]:
    found = []
    for pid in nodes.values():
        process = psutil.Process(pid)
        found += [process, *process.children(recursive=True)]
    return found


@pytest.mark.sweep
def test_a_killed_node_fails_the_step_and_nothing_is_left(finished_upsert, verb, aws, state):
    execution = execution_arn(verb("upsert", "--start", settings=LONG))
    job = wait_for_training(aws, execution)
    nodes = json.loads((state / "jobs" / job / "nodes.json").read_text())
    processes = descendants(nodes)
    assert len(processes) > 4  # two nodes, each with a driver, torchrun and a rank
    psutil.Process(nodes["algo-2"]).kill()
    _, alive = psutil.wait_procs(processes, timeout=60)
    assert alive == []
    done = verb("watch", execution, recipe=False)
    assert done.returncode != 0
    failure = re.search(r"Train failed: (.*)", done.stdout)[1]
    assert "algo-2" in failure and "SIGKILL" in failure
    listed = aws("s3").list_objects_v2(Bucket=BUCKET, Prefix="trainyard/trainyard-laptop/runs/")
    keys = [item["Key"] for item in listed["Contents"]]
    assert not any(job in key for key in keys)  # no model.tar.gz of the failed job


@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        ("data.input=s3://trainyard-laptop/no/such/prefix", "s3://trainyard-laptop/no/such/prefix"),
        ("images.processing=example.com/mine:1", "example.com/mine:1"),
        ("train.loop.micro_batch=16", "16 × 2 = 32 does not divide it"),
    ],
    ids=["missing prefix", "unknown image", "impossible batch"],
)
def test_bad_input_gives_one_clear_message(setting: str, expected: str, finished_upsert, verb):
    done = verb("upsert", "--set", setting, "--start", "--wait")
    assert done.returncode == 1
    assert expected in done.stdout + done.stderr
    assert "Traceback" not in done.stdout + done.stderr


def test_a_script_that_raises_is_shown_with_its_error(finished_upsert, emulator, home, tmp_path):
    package = tmp_path / "code" / "mine" / "broken"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "config.py").write_text(
        "from training.workloads.language_model.config import SPEC\n"
    )
    (package / "packing.py").write_text("raise RuntimeError('this packing is broken')\n")
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(Path("recipes/laptop.yaml").read_text())
    settings = [*SMALL, "pipeline.name=trainyard-raises", "workload.name=mine.broken",
                "workload.source=code", "shard.instance_count=1"]  # fmt: skip
    given = of_recipe(settings, str(recipe))
    done = process(emulator, home, "upsert", *given, "--start", "--wait")
    assert done.returncode == 1
    assert "RuntimeError: this packing is broken" in done.stdout


def test_no_emulator_gives_one_clear_message(run_python):
    env = {"AWS_ENDPOINT_URL": "http://127.0.0.1:9", "AWS_ACCESS_KEY_ID": "x",
           "AWS_SECRET_ACCESS_KEY": "x", "AWS_DEFAULT_REGION": "us-east-1"}  # fmt: skip
    done = run_python("-m", "pipelines.watch", env=env)
    assert done.returncode == 1
    assert "start the emulator" in done.stderr and "Traceback" not in done.stderr
