"""AWS's own torchrun driver on two nodes: a rank is killed on each, and the job succeeds."""

import io
import json
import re
import shlex
import sys
import tarfile
from importlib.util import find_spec
from pathlib import Path

import psutil
import pytest

from steps.train.config import TrainStepConfig
from tests.training import worlds
from tests.training.test_loop import copy_inputs
from tests.training.trainings import CHECKOUT, SETTINGS, TOYS, losses
from tests.trainyard.emulator.harness import Cloud, channel, cloud, training, until

pytestmark = pytest.mark.slow

LOOP = SETTINGS | {"strategy": "ddp", "micro_batch": 4, "max_steps": 240, "checkpoint_interval": 10,
                   "validation_interval": 240}  # fmt: skip
DRIVERS = Path(find_spec("sagemaker.train").origin).parent / "container_drivers"


@pytest.fixture(scope="module")
def aws(tmp_path_factory):
    with cloud(tmp_path_factory.mktemp("aws")) as running:
        yield running


def start(aws: Cloud, root: Path, name: str) -> None:
    """Start the train job on two nodes, as sm_train.sh does in the end."""
    script = f"""
        export SM_CURRENT_INSTANCE_TYPE=ml.m5.large SM_HOST_COUNT=2
        export SM_MASTER_ADDR=algo-1 SM_MASTER_PORT=7777 SM_CURRENT_HOST=$HOSTNAME
        export SM_CURRENT_HOST_RANK=$((${{HOSTNAME#algo-}} - 1))
        export SM_ENTRY_SCRIPT={CHECKOUT}/steps/train/job.py
        export SM_DISTRIBUTED_CONFIG='{{"process_count_per_node": 1}}'
        export SM_HPS={shlex.quote(json.dumps({"workload": "toys.ragged"} | LOOP))}
        exec {sys.executable} {DRIVERS}/distributed_drivers/torchrun_driver.py
    """
    config = TrainStepConfig(loop=LOOP)
    environment = config.launcher_environment | {
        "PYTHONPATH": f"{CHECKOUT}:{TOYS}",
        "OMP_NUM_THREADS": "1",
    }
    # Through S3, because a job does not see the tests' folders.
    data = root / "input/data"
    for file in data.rglob("*.*"):
        aws.put(f"toys/{file.relative_to(data)}", file.read_bytes())
    request = training(script, nodes=2) | {"Environment": environment}
    request["InputDataConfig"] = [
        channel(name, f"s3://bkt/toys/{name}/") for name in ("train", "validation")
    ]
    request["StoppingCondition"] = {"MaxRuntimeInSeconds": 280}
    aws.sm.create_training_job(TrainingJobName=name, **request)


def log(aws: Cloud, job: str) -> str:
    """Return what rank 0 printed; empty before there is a log."""
    try:
        return "\n".join(aws.log("Training", job))
    except (IndexError, aws.logs.exceptions.ResourceNotFoundException):
        return ""


def rank_of(aws: Cloud, job: str, rank: int) -> psutil.Process:
    for process in aws.family(job, 2):
        words = process.cmdline()
        ours = "-u" in words and any(word.endswith("steps/train/job.py") for word in words)
        if ours and process.environ().get("RANK") == str(rank):
            return process
    raise AssertionError(f"no rank {rank}")


def has_logged(aws: Cloud, job: str, text: str) -> bool:
    found = log(aws, job)
    assert aws.sm.describe_training_job(TrainingJobName=job)["TrainingJobStatus"] == "InProgress", (
        found[-4000:]
    )
    return text in found


@pytest.mark.sweep
def test_a_rank_killed_on_either_node_costs_a_restart_and_not_the_job(aws: Cloud, root: Path):
    start(aws, root, "killed")
    until(lambda: has_logged(aws, "killed", "step=20 "), 120)
    rank_of(aws, "killed", 1).kill()
    until(lambda: has_logged(aws, "killed", "restart 1 of 3"), 120)
    until(lambda: has_logged(aws, "killed", "step=100 "), 120)
    rank_of(aws, "killed", 0).kill()
    done = aws.wait_for_training("killed")
    text = log(aws, "killed")
    assert done["TrainingJobStatus"] == "Completed", (done, text[-4000:])
    reasons = re.findall(
        r"restart (\d) of 3: (.*); continuing from the checkpoint of step (\d+)", text
    )
    assert [number for number, _, _ in reasons] == ["1", "2"]
    assert re.search(r"rank 1 \(pid \d+ on algo-2, local rank 0\)", reasons[0][1])
    assert re.search(r"rank 0 \(pid \d+ on algo-1, local rank 0\)", reasons[1][1])
    data = io.BytesIO(aws.get("models/killed/output/model.tar.gz"))
    with tarfile.open(fileobj=data) as tar:
        lines = tar.extractfile("history.jsonl").read().splitlines()
    after = {line["step"]: line["loss"] for line in map(json.loads, lines) if "loss" in line}
    undisturbed = losses(worlds.train(copy_inputs(root, "undisturbed"), 2, **LOOP))
    assert after == undisturbed
