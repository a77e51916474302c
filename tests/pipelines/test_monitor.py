"""Captured requests whose features moved are named, and the pipeline is started again."""

import json
import uuid
from base64 import b64encode
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pytest
import typer

from pipelines.definition import from_recipe
from pipelines.monitor import main
from pipelines.upsert import upsert
from tests.conftest import CHECKOUT
from tests.pipelines.upserting import clean_aws
from trainyard.aws_clients import create_client
from trainyard.common.errors import DataError, RecipeError

pytestmark = pytest.mark.long

END = datetime(2026, 11, 28, tzinfo=UTC)
BUCKET, ROOT = "trainyard-laptop", "trainyard/trainyard-flights"
SETS = ["deploy.endpoint=flights", "deploy.capture_share=1", "monitor.prediction=probability",
        "monitor.retrain=true", "workload.config.categories=[carrier, origin, date]",
        "evaluate.slices=[origin]",
        "workload.config.numbers=[distance, temp, wind_speed]"]  # fmt: skip
FLIGHTS = CHECKOUT / "recipes/flights.yaml"


@pytest.fixture
def aws(emulator, monkeypatch: pytest.MonkeyPatch):
    s3, sagemaker = clean_aws(emulator.env, monkeypatch)
    s3.create_bucket(Bucket=BUCKET)
    pages = s3.get_paginator("list_objects_v2").paginate(Bucket=BUCKET)
    for item in [item for page in pages for item in page.get("Contents", ())]:
        s3.delete_object(Bucket=BUCKET, Key=item["Key"])
    return s3, sagemaker


def capture(s3: Any, days: tuple[int, int], number: int, *, moved: bool = False) -> None:
    """Put so many captured requests into S3, of days counted back from ``END``."""
    random = np.random.default_rng(days)
    folders: dict[str, list[str]] = {}
    for _ in range(number):
        at = END - timedelta(days=float(random.uniform(*days)))
        record = {
            "carrier": str(random.choice(["A[/b]", "DL", "UA"], p=[0.1, 0.3, 0.6] if moved
                                         else [0.4, 0.3, 0.3])),
            "origin": str(random.choice(["EWR", "JFK"])),
            "date": "2013-01-01",
            "distance": int(random.integers(100, 3000)),
            "temp": float(random.normal(20 if moved else 12, 8)),
            "wind_speed": None if random.random() < 0.1 else float(random.gamma(2, 5)),
        }  # fmt: skip
        asked, answer = json.dumps({"record": record}), json.dumps({"probability": random.random()})
        sides = {
            "endpointInput": {"data": asked, "encoding": "JSON", "mode": "INPUT"},
            "endpointOutput": {
                "data": b64encode(answer.encode()).decode(),
                "encoding": "BASE64",
                "mode": "OUTPUT",
            },
        }
        event = {"eventId": str(uuid.uuid4()), "inferenceTime": f"{at:%Y-%m-%dT%H:%M:%SZ}"}
        line = {"captureData": sides, "eventMetadata": event, "eventVersion": "0"}
        folders.setdefault(f"{at:%Y/%m/%d}/12", []).append(json.dumps(line))
    for folder, lines in folders.items():
        key = f"{ROOT}/captured/flights/version-1/{folder}/{uuid.uuid4()}.jsonl"
        s3.put_object(Bucket=BUCKET, Key=key, Body="\n".join(lines).encode())


def monitor(*sets: str, **options: Any) -> int:
    """Return the verb's exit status."""
    with pytest.raises(typer.Exit) as ended:
        main(FLIGHTS, [*SETS, *sets], until=END.replace(tzinfo=None), **options)
    return ended.value.exit_code


def read_written_report(s3: Any, name: str) -> Any:
    key = f"{ROOT}/monitoring/2026-11-28T00-00-00Z/{name}.json"
    return json.loads(s3.get_object(Bucket=BUCKET, Key=key)["Body"].read())


@pytest.mark.sweep
def test_two_features_that_moved_are_named_and_the_pipeline_is_started(aws, capsys):
    s3, sagemaker = aws
    upsert(from_recipe(FLIGHTS, SETS))
    capture(s3, (7, 35), 600)
    capture(s3, (0, 7), 300)
    assert monitor(start_run=True) == 0
    assert "no drift: no need to retrain" in capsys.readouterr().out
    assert read_written_report(s3, "constraint_violations") == {"violations": []}
    capture(s3, (0, 7), 900, moved=True)
    assert monitor(start_run=True) == 1
    said = capsys.readouterr().out
    assert "retrain on newer records: carrier, temp moved" in said or "temp, carrier" in said, said
    [run] = sagemaker.list_pipeline_executions(PipelineName="trainyard-flights")[
        "PipelineExecutionSummaries"
    ]
    sagemaker.stop_pipeline_execution(PipelineExecutionArn=run["PipelineExecutionArn"])
    found = read_written_report(s3, "constraint_violations")["violations"]
    assert {one["feature_name"] for one in found} == {"carrier", "temp"}
    assert {one["constraint_check_type"] for one in found} == {"baseline_drift_check"}
    statistics = read_written_report(s3, "statistics")
    assert statistics["dataset"]["item_count"] == 1200
    assert "answer.probability" in {one["name"] for one in statistics["features"]}
    assert len(read_written_report(s3, "constraints")["features"]) == 7


def test_records_of_files_are_a_baseline_and_a_column_that_is_gone_is_told(aws, capsys):
    s3, _ = aws
    capture(s3, (0, 7), 200)
    rows = "\n".join(f"{n % 3},{n % 7}.5" for n in range(300))
    s3.put_object(Bucket=BUCKET, Key="base/a.csv", Body=f"gate,distance\n{rows}\n".encode())
    base = f"monitor.baseline=s3://{BUCKET}/base/"
    sns, sqs = create_client("sns", "us-east-1"), create_client("sqs", "us-east-1")
    topic = sns.create_topic(Name="drift")["TopicArn"]
    queue = sqs.create_queue(QueueName="drift")["QueueUrl"]
    arn = sqs.get_queue_attributes(QueueUrl=queue, AttributeNames=["QueueArn"])["Attributes"]
    sns.subscribe(TopicArn=topic, Protocol="sqs", Endpoint=arn["QueueArn"])
    assert monitor(base, "monitor.features=[gate]", f"monitor.topic={topic}") == 1
    [message] = sqs.receive_message(QueueUrl=queue)["Messages"]
    assert json.loads(message["Body"])["Subject"] == "flights: features that drifted: 1"
    [violation] = read_written_report(s3, "constraint_violations")["violations"]
    assert violation["constraint_check_type"] == "missing_column_check"
    assert (
        "do not retrain yet: first find out why values of gate are missing"
        in capsys.readouterr().out
    )
    with pytest.raises(RecipeError, match="no column 'distanc'; nearest valid name: distance"):
        main(FLIGHTS, [*SETS, base, "monitor.features=[distanc]"], until=END.replace(tzinfo=None))


def test_what_a_monitor_lacks_is_named(aws):
    truths = [*SETS, f"monitor.truths=s3://{BUCKET}/truths/"]
    with pytest.raises(DataError, match="no requests from 2026-11-21 00:00 to 2026-11-28 00:00"):
        main(FLIGHTS, SETS, until=END.replace(tzinfo=None))
    with pytest.raises(
        RecipeError, match=r"auc cannot be computed .* valid names: log_loss, brier"
    ):
        main(FLIGHTS, [*truths, "monitor.metric=auc"])
    with pytest.raises(DataError, match="endpoint flights: serves no model package"):
        main(FLIGHTS, truths)
    with pytest.raises(RecipeError, match=r"set monitor.retrain: true"):
        main(FLIGHTS, [*SETS, "monitor.retrain=false"], start_run=True)
