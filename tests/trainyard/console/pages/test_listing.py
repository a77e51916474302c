"""The list of runs: which are listed, and search, filters and order of these."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.trainyard.emulator.harness import Cloud, fail_step
from trainyard.console.account_cache import Account
from trainyard.console.pages import runs
from trainyard.console.pages.runs import Run, filter_runs, list_columns, list_newest, sort_runs

BEGIN = datetime(2026, 11, 22, tzinfo=UTC)


def run(number: int, pipeline: str = "churn", **more: Any) -> Run:
    started = BEGIN + timedelta(hours=number)
    arn = f"arn:aws:sagemaker:us-east-1:1:pipeline/{pipeline}/execution/id{number}"
    fields: dict[str, Any] = {
        **{"pipeline": pipeline, "id": f"id{number}", "arn": arn, "title": f"run-{number}"},
        **{"status": "Succeeded", "started": started, "description": "", "reason": ""},
        "ended": started + timedelta(seconds=60 - number),
        "parameters": {"Rate": str(10.0**-number), "Data": "s3://bkt/a"},
    }
    return Run(**fields | more)


RUNS = [
    run(1),
    run(2, status="Failed", reason="Step failure: out of memory"),
    run(3, "vision", parameters={"Size": "224"}, description="the großen pictures"),
    run(4, parameters={"Rate": "1e-4", "Data": "s3://bkt/b"}),
]


@pytest.mark.parametrize(
    ("words", "ids"),
    [
        ("", ["id1", "id2", "id3", "id4"]),
        ("MEMORY", ["id2"]),
        ("pipeline/vision/execution/id3", ["id3"]),
        ("GROSSEN", ["id3"]),
        ("s3://bkt/b churn", ["id4"]),
        ("Rate=0.1", ["id1"]),
        ("churn pictures", []),
    ],
)
def test_all_words_of_a_search_are_in_a_run(words: str, ids: list[str]):
    assert [one.id for one in filter_runs(RUNS, words, [])] == ids
    assert [one.id for one in filter_runs(RUNS, "", ["Failed", "Stopped"])] == ["id2"]


@pytest.mark.parametrize(
    ("by", "ids"),
    [
        ("-started", "4321"),
        ("duration", "4321"),
        ("p.Rate", "4213"),
        ("-p.Rate", "1243"),
        ("-status", "1342"),
        ("no such column", "1234"),
    ],
)
def test_the_order_is_that_of_a_column_and_who_lacks_it_comes_last(by: str, ids: str):
    assert "".join(one.id[2:] for one in sort_runs(RUNS, by)) == ids


def test_parameters_that_differ_are_columns_or_all_if_none_does():
    def list_parameter_columns(found: list[Run]) -> list[str]:
        return [name for name in list_columns(found) if name not in runs.COLUMNS]

    assert list_parameter_columns(RUNS) == ["pipeline", "p.Rate", "p.Data"]
    assert list_parameter_columns([RUNS[1]]) == ["p.Rate", "p.Data"]
    assert list_parameter_columns([RUNS[2]]) == ["p.Size"]


def test_pages_together_have_every_run_of_every_pipeline_once(cloud: Cloud, monkeypatch):
    monkeypatch.setattr(runs, "ROWS", 2)
    started: list[str] = []
    for name in ("one", "two", "never", "one", "three", "two"):
        if name not in {arn.split("/")[1] for arn in started}:
            cloud.create(name, [fail_step("Stop", "no")])
        if name != "never":
            started.append(cloud.start(name))
    here, before, pages = Account(), None, []
    while True:
        found, is_more = list_newest(here, "", before)
        pages.append([summary["PipelineExecutionArn"] for _, summary in found])
        if not is_more:
            break
        before = found[-1][1]["StartTime"]
    assert pages == [started[:2:-1], started[2:0:-1], started[:1]]
    mine, _ = list_newest(here, "two", None)
    assert [name for name, _ in mine] == ["two", "two"]
