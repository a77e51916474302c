"""Rules and schedules survive the end of an emulator."""

import json
import time
from pathlib import Path
from typing import Any

import pytest

from tests.trainyard.emulator.harness import (
    ROLE,
    Cloud,
    cloud,
    compare,
    condition_step,
    fail_step,
    until,
)
from tests.trainyard.emulator.standin import make_client

pytestmark = pytest.mark.long


def failing() -> list[dict]:
    """Return steps without jobs."""
    return [condition_step("Check", [compare("Equals", 1, 1)], [fail_step("Stop", "no")], [])]


def schedule(scheduler: Any, name: str, expression: str, arn: str, **more: Any) -> None:
    later = {"StartDate": time.time() + 3600} if expression.startswith("rate") else {}
    scheduler.create_schedule(
        Name=name,
        **later,  # without it a rate fires at once
        ScheduleExpression=expression,
        FlexibleTimeWindow={"Mode": "OFF"},
        Target={"Arn": arn, "RoleArn": ROLE, **more},
    )


def in_seconds(seconds: float) -> str:
    return time.strftime("at(%Y-%m-%dT%H:%M:%S)", time.gmtime(time.time() + seconds))


def started(aws: Cloud, name: str) -> int:
    """Wait until the pipeline has an execution; return their number."""
    ask = lambda: aws.sm.list_pipeline_executions(PipelineName=name)  # noqa: E731
    return len(until(lambda: ask()["PipelineExecutionSummaries"]))


def test_rules_and_schedules_outlive_the_emulator(tmp_path: Path) -> None:
    with cloud(tmp_path) as aws:
        events, scheduler = (make_client(aws.endpoint, n) for n in ("events", "scheduler"))
        arns = {name: aws.create(name, failing()) for name in ("hourly", "once", "nightly")}
        schedule(scheduler, "hourly", "rate(1 hour)", arns["hourly"])
        schedule(scheduler, "once", in_seconds(600), arns["once"])
        events.put_rule(Name="nightly", ScheduleExpression="cron(0 3 * * ? *)")
        events.put_targets(Rule="nightly", Targets=[{"Id": "1", "Arn": arns["nightly"]}])
    kept = {path.name: path for path in (tmp_path / "events").rglob("*.json")}
    for name, due in (("default%2Fhourly", 2), ("default%2Fonce", -600), ("nightly", 2)):
        path = kept[f"{name}.json"]  # as if the time had passed; the one of once has, meanwhile
        document = json.loads(path.read_text()) | {"next": time.time() + due}
        path.write_text(json.dumps(document))
    (tmp_path / "events/rules/torn.json").write_text("{")
    with cloud(tmp_path) as aws:
        events, scheduler = (make_client(aws.endpoint, n) for n in ("events", "scheduler"))
        assert [started(aws, name) for name in ("once", "hourly", "nightly")] == [1, 1, 1]
        [rule] = events.list_rules()["Rules"]
        assert (rule["Name"], rule["ScheduleExpression"]) == ("nightly", "cron(0 3 * * ? *)")
        assert (tmp_path / "damaged/events/rules/torn.json").exists()
        scheduler.delete_schedule(Name="hourly")
        assert [s["Name"] for s in scheduler.list_schedules()["Schedules"]] == ["once"]
