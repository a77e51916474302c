"""The emulator's own record is what is kept, and a difference is seen."""

import copy
import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import trainyard.parity
from tests.trainyard.emulator.harness import ROLE, Cloud, cloud
from trainyard.commands.parity import costs, recorded
from trainyard.parity.cases import JOBS
from trainyard.parity.recording import Run, Scrubber, differences

pytestmark = [pytest.mark.slow, pytest.mark.long]
KEPT = Path(trainyard.parity.__file__).with_name("emulator.json")


@pytest.fixture(scope="module")
def aws(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    with cloud(tmp_path_factory.mktemp("aws")) as running:
        yield running


@pytest.fixture(scope="module")
def found(aws: Cloud) -> dict[str, Any]:
    aws.s3.create_bucket(Bucket="trainyard-parity-1")
    image = "683313688378.dkr.ecr.us-east-1.amazonaws.com/sagemaker-scikit-learn:1.2-1-cpu-py3"
    run = Run(
        sagemaker=aws.sm, s3=aws.s3, prefix="parity-1-", bucket="trainyard-parity-1", role=ROLE,
        image=image, account="123456789012", region="us-east-1", poll=0.05,
    )  # fmt: skip
    return recorded(run)


def test_the_emulator_answers_as_its_kept_record_says(found: dict[str, Any]):
    """When that is meant to change: trainyard run -- trainyard parity --out that file."""
    assert list(differences(found, json.loads(KEPT.read_text()))) == []


def test_what_was_made_is_removed(found: dict[str, Any], aws: Cloud):
    assert aws.sm.list_pipelines()["PipelineSummaries"] == []
    assert aws.sm.list_model_package_groups()["ModelPackageGroupSummaryList"] == []
    assert "trainyard-parity-1" not in [b["Name"] for b in aws.s3.list_buckets()["Buckets"]]


def test_the_price_is_that_of_the_jobs_that_are_started(found: dict[str, Any], aws: Cloud):
    assert len(aws.sm.list_processing_jobs()["ProcessingJobSummaries"]) == JOBS
    said = costs("us-east-1")
    assert re.search(r"3 processing jobs .* 15 minutes in us-east-1: at most \d\.\d US cents", said)
    assert "prices are not known" in costs("mars-1")


def test_the_record_holds_nothing_of_its_run(found: dict[str, Any]):
    text = json.dumps(found)
    for own in ("123456789012", "us-east-1", "parity-1", ROLE, "127.0.0.1"):
        assert own not in text


def test_a_difference_is_named_with_its_place():
    one = json.loads(KEPT.read_text())
    other = copy.deepcopy(one)
    other["cases"]["a_fail_step_ends_the_execution"][2]["ended"]["FailureReason"] = "other"
    del other["cases"]["what_start_refuses"]
    said = list(differences(one, other))
    assert [line.partition(":")[0] for line in said] == [
        "a_fail_step_ends_the_execution[2].ended.FailureReason", "what_start_refuses",
    ]  # fmt: skip


def test_scrubbing():
    scrub = Scrubber({"123456789012": "<account>"})
    answer = {"b": [datetime.now(UTC), "at 2026-11-22T09:00:00.123Z"], "ResponseMetadata": {},
              "a": "arn:x:123456789012:y/execution/abcdefghijkl"}  # fmt: skip
    assert scrub(answer) == {
        "a": "arn:x:<account>:y/execution/<execution>", "b": ["<time>", "at <time>"],
    }  # fmt: skip
