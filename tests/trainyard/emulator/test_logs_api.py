"""CloudWatch Logs through boto3."""

import pytest
from botocore.exceptions import ClientError

GROUP = "/aws/sagemaker/ProcessingJobs"


@pytest.fixture(scope="module")
def logs(client):
    return client("logs")


@pytest.fixture
def stream(endpoint, request) -> dict[str, str]:
    """A stream of this test's own with the messages 0 ... 9."""
    name = f"{request.node.name}/algo-1"
    endpoint.app.logs.append(GROUP, name, [str(i) for i in range(10)])
    return {"logGroupName": GROUP, "logStreamName": name}


def messages(answer: dict) -> list[str]:
    return [event["message"] for event in answer["events"]]


def test_following_a_stream_from_its_head(logs, endpoint, stream):
    first = logs.get_log_events(**stream, startFromHead=True, limit=4)
    assert messages(first) == ["0", "1", "2", "3"]
    rest = logs.get_log_events(**stream, nextToken=first["nextForwardToken"])
    assert messages(rest) == ["4", "5", "6", "7", "8", "9"]
    end = logs.get_log_events(**stream, nextToken=rest["nextForwardToken"])
    assert messages(end) == []
    assert end["nextForwardToken"] == rest["nextForwardToken"], "the end is told by the same token"
    endpoint.app.logs.append(GROUP, stream["logStreamName"], ["new"])
    assert messages(logs.get_log_events(**stream, nextToken=end["nextForwardToken"])) == ["new"]


def test_reading_back_from_the_tail(logs, endpoint, stream):
    tail = logs.get_log_events(**stream, limit=3)
    assert messages(tail) == ["7", "8", "9"]
    before = logs.get_log_events(**stream, limit=5, nextToken=tail["nextBackwardToken"])
    assert messages(before) == ["2", "3", "4", "5", "6"]
    head = logs.get_log_events(**stream, nextToken=before["nextBackwardToken"])
    assert messages(head) == ["0", "1"]
    start = logs.get_log_events(**stream, nextToken=head["nextBackwardToken"])
    assert (messages(start), start["nextBackwardToken"]) == ([], head["nextBackwardToken"])
    endpoint.app.logs.append(GROUP, stream["logStreamName"], ["new"])
    assert messages(logs.get_log_events(**stream, nextToken=tail["nextForwardToken"])) == ["new"]


def test_streams_are_found_by_prefix_in_pages(logs, endpoint):
    for name in ("j/algo-2", "j/algo-1", "k/algo-1"):
        endpoint.app.logs.append("pages", name, [name])
    one = logs.describe_log_streams(logGroupName="pages", logStreamNamePrefix="j/", limit=1)
    two = logs.describe_log_streams(
        logGroupName="pages", logStreamNamePrefix="j/", limit=1, nextToken=one["nextToken"]
    )
    found = one["logStreams"] + two["logStreams"]
    assert [s["logStreamName"] for s in found] == ["j/algo-1", "j/algo-2"]
    assert "nextToken" not in two
    assert found[0]["firstEventTimestamp"] == found[0]["lastEventTimestamp"] > 1.7e12
    latest = logs.describe_log_streams(
        logGroupName="pages", orderBy="LastEventTime", descending=True, limit=1
    )
    assert latest["logStreams"][0]["lastEventTimestamp"] >= found[0]["lastEventTimestamp"]
    groups = logs.describe_log_groups(logGroupNamePrefix="pa")["logGroups"]
    assert [g["logGroupName"] for g in groups] == ["pages"]


def test_put_events_and_filter_them_across_streams(logs):
    logs.create_log_group(logGroupName="filter")
    for name, times in (("a", (1000, 3000)), ("b", (2000, 4000))):
        logs.create_log_stream(logGroupName="filter", logStreamName=name)
        events = [{"timestamp": t, "message": f"loss at {t}"} for t in times]
        logs.put_log_events(logGroupName="filter", logStreamName=name, logEvents=events)

    def found(**arguments) -> list[int]:
        pages = logs.get_paginator("filter_log_events").paginate(
            logGroupName="filter", PaginationConfig={"PageSize": 2}, **arguments
        )
        return [event["timestamp"] for page in pages for event in page["events"]]

    assert found() == [1000, 2000, 3000, 4000]
    assert found(startTime=2000, endTime=4000) == [2000, 3000]
    assert found(filterPattern='"loss at" -3000', logStreamNamePrefix="a") == [1000]
    assert found(filterPattern="?2000 ?3000") == [2000, 3000]
    assert found(filterPattern="accuracy") == []


@pytest.mark.parametrize(
    ("call", "code"),
    [
        (lambda c: c.get_log_events(logGroupName="no", logStreamName="s"), "ResourceNotFound"),
        (lambda c: c.describe_log_streams(logGroupName="no"), "ResourceNotFound"),
        (lambda c: c.create_log_stream(logGroupName="no", logStreamName="s"), "ResourceNotFound"),
        (lambda c: c.put_retention_policy(logGroupName="g", retentionInDays=1), "UnknownOperation"),
        (
            lambda c: c.filter_log_events(logGroupName="g", filterPattern="{$.a = 1}"),
            "InvalidParameter",
        ),
    ],
)
def test_refusals_have_aws_codes(logs, call, code: str):
    with pytest.raises(ClientError) as failure:
        call(logs)
    assert failure.value.response["Error"]["Code"] == f"{code}Exception"
