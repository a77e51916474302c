"""StopTrainingJob's SIGTERM, which reaches the container's first process alone, saves the loop."""

import time
from collections.abc import Callable
from typing import Any

import pytest

from pipelines.definition import from_recipe
from pipelines.start import start
from pipelines.upsert import upsert
from tests.conftest import CHECKOUT
from tests.registered import BUCKET, SETTINGS

pytestmark = pytest.mark.slow

ENDLESS = ("train.loop.max_steps=100000", "train.loop.checkpoint_interval=100000",
           "train.loop.log_interval=1", "train.instance_count=2",
           "train.loop.strategy=ddp")  # fmt: skip


def wait_for(condition: Callable[[], Any]) -> Any:
    limit = time.monotonic() + 240
    while not (value := condition()):
        assert time.monotonic() < limit, "it did not happen"
        time.sleep(0.3)
    return value


def read_log(aws: Callable[[str], Any], job: str) -> list[str]:
    logs = aws("logs")
    try:
        events = logs.filter_log_events(
            logGroupName="/aws/sagemaker/TrainingJobs", logStreamNamePrefix=job
        )["events"]
    except logs.exceptions.ResourceNotFoundException:
        return []
    return [event["message"] for event in events]


def test_the_ranks_of_both_nodes_save_a_checkpoint_before_they_end(aws, small_corpus):
    compiled = from_recipe(CHECKOUT / "recipes/laptop.yaml", (*SETTINGS, *ENDLESS))
    upsert(compiled)
    start(compiled.name, {})
    sagemaker = aws("sagemaker")
    [job] = wait_for(lambda: sagemaker.list_training_jobs()["TrainingJobSummaries"])
    name = job["TrainingJobName"]
    wait_for(lambda: any("step=3" in line for line in read_log(aws, name)))
    sagemaker.stop_training_job(TrainingJobName=name)

    def describe_stopped() -> dict[str, Any] | None:
        job = sagemaker.describe_training_job(TrainingJobName=name)
        return job if job["TrainingJobStatus"] == "Stopped" else None

    stopped = wait_for(describe_stopped)
    log = read_log(aws, name)
    assert any("stopped by SIGTERM after step" in line for line in log), log[-20:]
    prefix = stopped["CheckpointConfig"]["S3Uri"].removeprefix(f"s3://{BUCKET}/")
    listing = aws("s3").list_objects_v2(Bucket=BUCKET, Prefix=prefix)
    keys = [entry["Key"] for entry in listing.get("Contents", ())]
    assert any(key.endswith("complete.json") for key in keys), keys
