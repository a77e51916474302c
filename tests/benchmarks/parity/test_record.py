"""The emulator's own record is what is kept; what a record made is removed."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks.parity.case_table import CASES, Case, jobs
from benchmarks.parity.comparison_rows import differences
from benchmarks.parity.record import EMULATOR, read, recorded, write
from benchmarks.parity.recording import Halted, Place, Run
from benchmarks.parity.small_steps import definition, make_queue, messages
from tests.trainyard.emulator.harness import ROLE, Cloud, cloud, until
from tests.trainyard.emulator.standin import make_client
from trainyard.common.errors import DataError

pytestmark = [pytest.mark.slow, pytest.mark.long]
OWN = "sagemaker-parity-own-"


def place(aws: Cloud) -> Place:
    made: dict[str, Any] = {}
    return Place(
        client=lambda name: made.setdefault(name, make_client(aws.endpoint, name)),
        prefix=OWN, bucket="bkt", role=ROLE, account="123456789012", region="us-east-1",
        registry="683313688378.dkr.ecr.us-east-1.amazonaws.com", poll=0.05, patience=60,
    )  # fmt: skip


def left(aws: Cloud) -> list[str]:
    """Return the names of everything there that a case may have made."""
    found = [
        *aws.sm.list_processing_jobs()["ProcessingJobSummaries"],
        *aws.sm.list_training_jobs()["TrainingJobSummaries"],
        *aws.sm.list_hyper_parameter_tuning_jobs()["HyperParameterTuningJobSummaries"],
        *aws.sm.list_pipelines()["PipelineSummaries"],
        *aws.sm.list_models()["Models"],
        *aws.sm.list_model_package_groups()["ModelPackageGroupSummaryList"],
        *make_client(aws.endpoint, "lambda").list_functions()["Functions"],
        *make_client(aws.endpoint, "events").list_rules()["Rules"],
        *make_client(aws.endpoint, "sqs").list_queues().get("QueueUrls", []),
    ]
    streams = [
        stream
        for group in aws.logs.describe_log_groups()["logGroups"]
        for stream in aws.logs.describe_log_streams(logGroupName=group["logGroupName"])[
            "logStreams"
        ]
    ]
    return [str(each) for each in [*found, *streams]]


@pytest.fixture(scope="module")
def aws(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    with cloud(tmp_path_factory.mktemp("aws")) as running:
        yield running


@pytest.fixture(scope="module")
def told() -> list[str]:
    return []


@pytest.fixture(scope="module")
def where(aws: Cloud) -> Place:
    return place(aws)


@pytest.fixture(scope="module")
def found(where: Place, told: list[str]) -> dict[str, Any]:
    return recorded(where, CASES, 4, told.append)


def test_cases_without_jobs_answer_as_the_kept_record_says(where: Place, told: list[str]):
    names = [name for name in CASES if not any(jobs([name]).values())]
    kept = read(EMULATOR)
    kept["cases"] = {name: kept["cases"][name] for name in names}
    again = recorded(where, names, 4, told.append)
    told.clear()
    assert len(names) > 8 and [str(each) for each in differences(again, kept)] == []


@pytest.mark.sweep
def test_the_emulator_answers_as_its_kept_record_says(found: dict[str, Any]):
    """To change it: trainyard run -- python -m benchmarks.parity --out that file."""
    assert [str(each) for each in differences(found, read(EMULATOR))] == []
    assert found["cases"].keys() == CASES.keys() == read(EMULATOR)["cases"].keys()


@pytest.mark.sweep
def test_what_was_made_is_removed(found: dict[str, Any], aws: Cloud, told: list[str]):
    assert found["not_recorded"] == {} and left(aws) == []
    assert [line for line in told if line.startswith("not removed")] == []
    assert len(told) == len(CASES)  # a line of progress for each


@pytest.mark.sweep
def test_no_more_jobs_are_started_than_the_price_is_for(found: dict[str, Any], where: Place):
    most = jobs(list(CASES))
    fewer = {"processing": most["processing"] - 2}  # those of a miss and a retry that came not
    assert where.started == {**most, **fewer, "hyperparametertuning": 1}


@pytest.mark.sweep
def test_the_record_holds_nothing_of_its_run(found: dict[str, Any]):
    text = json.dumps(found)
    for own in ("123456789012", "us-east-1", OWN, ROLE, "127.0.0.1", "localhost"):
        assert own not in text


@pytest.mark.sweep
def test_a_record_is_read_as_it_was_written(found: dict[str, Any], tmp_path: Path):
    write(tmp_path / "record.json", found)
    assert read(tmp_path / "record.json") == found
    (tmp_path / "old.json").write_text('{"format": 1, "cases": {}}')
    for name in ("old.json", "none.json"):
        with pytest.raises(DataError, match=name):
            read(tmp_path / name)


def test_an_interrupted_case_stops_its_execution_though_a_callback_step_waits(aws: Cloud):
    run = Run(place(aws), 99)
    queue = make_queue(run, "halted")
    asks = {"SqsQueueUrl": queue, "OutputParameters": [], "Arguments": {}}
    run.create("halted", definition([{"Name": "Ask", "Type": "Callback", **asks}]))
    arn = run.start("halted")
    run.tokens[arn] = until(lambda: messages(run, queue))[0]["token"]
    run.place.halted.set()
    with pytest.raises(Halted):
        run.ended(arn)
    assert list(run.clean()) == [] and left(aws) == []
    described = aws.sm.describe_pipeline_execution(PipelineExecutionArn=arn)
    assert described["PipelineExecutionStatus"] == "Stopped"


def test_a_case_that_may_not_call_or_misreads_is_not_recorded_and_the_others_are(
    aws: Cloud, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setitem(
        CASES, "misreads", Case(lambda run: run.call("sagemaker.list_models")["No"], {})
    )
    here, refused = place(aws), place(aws).client("lambda")
    refused._request_signer._credentials = None  # as where the caller lacks the permission
    given = here.client
    here.client = lambda name: refused if name == "lambda" else given(name)
    names = ["a_functions_outputs_are_read", "a_fail_step_ends_the_execution", "misreads"]
    record = recorded(here, names, 1, lambda line: None)
    assert list(record["cases"]) == names[1:2] and left(aws) == []
    assert "NoCredentials" in record["not_recorded"][names[0]]
    assert "KeyError" in record["not_recorded"]["misreads"]


@pytest.mark.parametrize(
    "sent", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.sweep)]
)
def test_an_interrupted_command_leaves_nothing(aws: Cloud, sent: signal.Signals):
    command = [sys.executable, "-m", "benchmarks.parity", "--only", "a_running_job_is_stopped"]
    more = ["--only", "the_same_arguments_hit_until_they_expire", "--only", "a_batch_transform"]
    with subprocess.Popen(
        [*command, *more, "--at-once", "1"], env={**os.environ, **aws.endpoint.env},
        stderr=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        assert process.stderr
        assert "1 of 3" in process.stderr.readline()
        process.send_signal(sent)
        rest = process.stderr.read()
    assert process.returncode not in (0, 1) and "not removed" not in rest
    assert "Traceback" not in rest and left(aws) == []
    assert [b["Name"] for b in aws.s3.list_buckets()["Buckets"] if "parity" in b["Name"]] == []


@pytest.mark.parametrize(("answer", "code"), [("n", 1), ("y", 0)])
def test_an_account_is_asked_first(aws: Cloud, tmp_path: Path, answer: str, code: int):
    """Addresses for single services stand for AWS itself: only AWS_ENDPOINT_URL is an emulator."""
    env = {**os.environ, **aws.endpoint.env}
    url = env.pop("AWS_ENDPOINT_URL")
    env |= {f"AWS_ENDPOINT_URL_{name}": url for name in ("STS", "S3", "SAGEMAKER")}
    out = tmp_path / "aws.json"
    command = [sys.executable, "-m", "benchmarks.parity", "--only", "a_pipeline_described"]
    done = subprocess.run(
        [*command, "--role", ROLE.replace("/", "/people/jane.doe-"), "--out", out], env=env,
        input=f"{answer}\n", capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert "cases: 1, in us-east-1; jobs: none; at most $0.00" in done.stderr
    assert (
        "all named sagemaker-parity-" in done.stderr and "AmazonSageMakerFullAccess" in done.stderr
    )
    assert done.returncode == code and out.exists() == (code == 0), done
    assert left(aws) == [] and not (out.exists() and "jane" in out.read_text())
    refused = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert refused.returncode == 1 and "needs --role ARN" in refused.stderr
