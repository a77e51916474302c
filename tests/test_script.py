"""A script of one's own on the emulator: interrupted, resumed, registered, verified, cached."""

import io
import json
import re
import tarfile
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from tests.conftest import called, process

pytestmark = pytest.mark.slow

BUCKET = "trainyard-mine"
RECIPE = r"""
pipeline: {name: mine}
aws: {region: us-east-1, role: 'arn:aws:iam::123456789012:role/trainyard', bucket: trainyard-mine}
train:
  script: project/train.py
  launcher: none
  arguments: {epochs: 8}
  channels: {training: s3://trainyard-mine/data/train}
  metrics: {loss: 'loss=(\S+)'}
evaluate:
  script: scoring/evaluate.py
  channels: {test: s3://trainyard-mine/data/test}
  metrics: {squared_error: lower}
inference: {script: project/serve.py}
gate: {max_squared_error: 100}
register: {model_package_group: mine}
"""
TRAIN = """
import argparse, os, signal, sys, time
from functools import partial
from pathlib import Path
import numpy as np
parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int)
arguments = parser.parse_args()
checkpoint = Path("/opt/ml/checkpoints/weights.npz")
data = np.load(Path(os.environ["SM_CHANNEL_TRAINING"]) / "data.npy")
x, y, weights, done = data[:, :2], data[:, 2], np.zeros(2), 0
first = not os.listdir("/opt/ml/checkpoints")
if not first:
    state = np.load(checkpoint)
    weights, done = state["weights"], int(state["epoch"])
    print(f"resumed from epoch {done}", flush=True)
def save():
    np.savez("/opt/ml/checkpoints/new.npz", weights=weights, epoch=done)
    os.replace("/opt/ml/checkpoints/new.npz", checkpoint)
def stop(*_):
    save()
    print("stopping", flush=True)
    time.sleep(1)
    print(f"saved epoch {done}", flush=True)
    sys.exit(1)
signal.signal(signal.SIGTERM, stop)
while done < arguments.epochs:
    error = x @ weights - y
    weights, done = weights - 0.1 * x.T @ error / len(x), done + 1
    print(f"epoch={done} loss={(error ** 2).mean():.6f}", flush=True)
    if first and done == 3:
        time.sleep(600)
np.save(Path(os.environ["SM_MODEL_DIR"]) / "weights.npy", weights)
"""
SCORE = """
import json, os
from functools import partial
from pathlib import Path
import numpy as np
weights = np.load(Path(os.environ["SM_MODEL_DIR"]) / "weights.npy")
data = np.load(Path(os.environ["SM_CHANNEL_TEST"]) / "data.npy")
errors = (data[:, :2] @ weights - data[:, 2]) ** 2
rows = [{"example": f"row {n}", "squared_error": float(e)} for n, e in enumerate(errors)]
(Path(os.environ["SM_OUTPUT_DATA_DIR"]) / "scores.jsonl").write_text(
    "".join(json.dumps(row) + "\\n" for row in rows)
)
"""


@pytest.fixture(scope="module")
def home(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("mine")
    for name, text in {
        "recipe.yaml": RECIPE,
        "project/train.py": TRAIN,
        "project/serve.py": "import layers\n",
        "project/layers.py": "",
        "scoring/evaluate.py": SCORE,
    }.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    return folder


@pytest.fixture(scope="module")
def verb(emulator, home):
    return partial(process, emulator, home)


@pytest.fixture(scope="module")
def here(emulator, home) -> Iterator[None]:
    """This process talks to the emulator as ``verb`` does: for what ``called`` runs in it."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in (emulator.env | {"HOME": str(home)}).items():
            patch.setenv(name, value)
        yield


def lines(aws, job: str) -> list[str]:
    group, logs = "/aws/sagemaker/TrainingJobs", aws("logs")
    try:
        streams = logs.describe_log_streams(logGroupName=group, logStreamNamePrefix=job)
    except logs.exceptions.ResourceNotFoundException:
        return []
    found = [stream["logStreamName"] for stream in streams["logStreams"]]
    events = (logs.get_log_events(logGroupName=group, logStreamName=name) for name in found)
    return [event["message"] for page in events for event in page["events"]]


def jobs(aws) -> list[str]:
    found = aws("sagemaker").list_training_jobs()["TrainingJobSummaries"]
    return [job["TrainingJobName"] for job in sorted(found, key=lambda job: job["CreationTime"])]


def until(condition, seconds: float = 240):
    limit = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < limit, "it did not happen"
        time.sleep(0.3)
    return found


@pytest.fixture(scope="module")
def interrupted(aws, verb, home) -> str:
    """The first run's training job, which was stopped in its third epoch."""
    s3, draw = aws("s3"), np.random.default_rng(0)
    s3.create_bucket(Bucket=BUCKET)
    for split in ("train", "test"):
        x, body = draw.normal(size=(50, 2)), io.BytesIO()
        np.save(body, np.c_[x, x @ [1, 2]])
        s3.put_object(Bucket=BUCKET, Key=f"data/{split}/data.npy", Body=body.getvalue())
    done = verb("upsert", "--recipe", str(home / "recipe.yaml"), "--start")
    assert done.returncode == 0, done.stdout + done.stderr
    [job] = until(lambda: jobs(aws))
    until(lambda: any("epoch=3" in line for line in lines(aws, job)))
    aws("sagemaker").stop_training_job(TrainingJobName=job)
    until(lambda: aws("sagemaker").describe_training_job(TrainingJobName=job)
          ["TrainingJobStatus"] == "Stopped")  # fmt: skip
    return job


@pytest.fixture(scope="module")
def package(interrupted, verb, aws) -> str:
    """What the second run, which goes on from there, has registered."""
    done = verb("start", "--pipeline", "mine", "--wait")
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"^Train +loss +\d+\.\d+", done.stdout, re.MULTILINE), done.stdout
    [found] = aws("sagemaker").list_model_packages(ModelPackageGroupName="mine")[
        "ModelPackageSummaryList"
    ]
    return found["ModelPackageArn"]


def test_sigterm_reaches_the_script_which_saves(interrupted, aws):
    said = lines(aws, interrupted)
    told = [line for line in said if line in ("stopping", "saved epoch 3")]
    assert told == ["stopping", "saved epoch 3"], said[-20:]


def test_the_next_run_goes_on_from_the_scripts_own_checkpoint(package, aws, interrupted):
    [_, job] = jobs(aws)
    said = lines(aws, job)
    assert "resumed from epoch 3" in said
    epochs = [line for line in said if line.startswith("epoch=")]
    assert epochs[0].startswith("epoch=4 ") and epochs[-1].startswith("epoch=8 ")
    told = aws("sagemaker").describe_training_job(TrainingJobName=job)["FinalMetricDataList"]
    assert [metric["MetricName"] for metric in told] == ["loss"]


def test_the_archive_has_the_scripts_files_and_what_is_known_of_them(package, aws):
    described = aws("sagemaker").describe_model_package(ModelPackageName=package)
    uri = described["InferenceSpecification"]["Containers"][0]["ModelDataUrl"]
    bucket, _, key = uri.removeprefix("s3://").partition("/")
    body = aws("s3").get_object(Bucket=bucket, Key=key)["Body"].read()
    with tarfile.open(fileobj=io.BytesIO(body)) as tar:
        names = {member.name.removeprefix("./") for member in tar if member.isfile()}
        told = json.load(tar.extractfile(next(n for n in tar.getnames() if "yard.json" in n)))
    assert {"weights.npy", "code/trainyard.json", "code/packages.txt"} < names
    assert {"code/inference.py", "code/layers.py", "code/train.py"} < names
    assert told["arguments"] == {"epochs": 8} and told["script"] == "train.py"


def test_the_package_verifies(package, verb):
    done = verb("verify", package, "--deep")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "✓  artifact's training" in done.stdout and "✓  train split" in done.stdout


def test_changed_training_data_are_found(package, here, aws):
    where = {"Bucket": BUCKET, "Key": "data/train/data.npy"}
    before = aws("s3").get_object(**where)["Body"].read()
    aws("s3").put_object(**where, Body=before[:-1] + b"?")
    done = called("pipelines.verify", package, "--deep")
    aws("s3").put_object(**where, Body=before)
    assert done.returncode == 1 and "✗  train split" in done.stdout, done.stdout


def test_an_unchanged_folder_is_answered_from_the_cache(package, here, aws, home):
    recipe = str(home / "recipe.yaml")
    done = called("pipelines.upsert", "--recipe", recipe, "--start", "--wait")
    assert "unchanged" in done.stdout and len(jobs(aws)) == 2, done.stdout


def test_the_report_draws_what_the_script_printed(package, verb, home):
    page = home / "report.html"
    done = verb("report", "--pipeline", "mine", "--out", str(page))
    assert done.returncode == 0, done.stderr
    assert "<h2>Training</h2>" in page.read_text() and "loss" in page.read_text()
