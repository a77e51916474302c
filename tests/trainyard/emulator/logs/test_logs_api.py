"""CloudWatch Logs through boto3."""

import contextlib
import json

import pytest
from botocore.exceptions import ClientError

GROUP = "/aws/sagemaker/ProcessingJobs"


@pytest.fixture(scope="module")
def logs(client):
    return client("logs")


@pytest.fixture
def stream(endpoint, request) -> dict[str, str]:
    """Create a stream for this test with the messages 0 ... 9."""
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
    assert end["nextForwardToken"] == rest["nextForwardToken"], "the same token means the end"
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

    def filter_timestamps(**arguments) -> list[int]:
        pages = logs.get_paginator("filter_log_events").paginate(
            logGroupName="filter", PaginationConfig={"PageSize": 2}, **arguments
        )
        return [event["timestamp"] for page in pages for event in page["events"]]

    assert filter_timestamps() == [1000, 2000, 3000, 4000]
    assert filter_timestamps(startTime=2000, endTime=4000) == [2000, 3000]
    assert filter_timestamps(filterPattern='"loss at" -3000', logStreamNamePrefix="a") == [1000]
    assert filter_timestamps(filterPattern="?2000 ?3000") == [2000, 3000]
    assert filter_timestamps(filterPattern="accuracy") == []


@pytest.mark.parametrize("is_ordered", [True, False])
def test_a_time_is_found_whether_or_not_events_are_in_its_order(logs, is_ordered: bool):
    times = [1000 * i for i in range(1, 41)]
    put = times if is_ordered else times[20:] + times[:20]
    where = {"logGroupName": "times", "logStreamName": f"s{is_ordered}"}
    with contextlib.suppress(logs.exceptions.ResourceAlreadyExistsException):
        logs.create_log_group(logGroupName="times")
    logs.create_log_stream(**where)
    for some in (put[:20], put[20:]):
        events = [{"timestamp": t, "message": str(t)} for t in some]
        logs.put_log_events(**where, logEvents=events)

    def read_event_times(**how) -> list[int]:
        return [int(message) for message in messages(logs.get_log_events(**where, **how))]

    assert sorted(read_event_times(startTime=11_000, endTime=14_000)) == [11_000, 12_000, 13_000]
    assert sorted(read_event_times(startTime=38_500)) == [39_000, 40_000]
    assert sorted(read_event_times(endTime=2_500)) == [1_000, 2_000]
    assert read_event_times(startTime=50_000) == read_event_times(endTime=1_000) == []
    if is_ordered:
        assert read_event_times(startTime=11_500, startFromHead=True, limit=2) == [12_000, 13_000]
        assert read_event_times(endTime=11_500, limit=2) == [10_000, 11_000]


def test_a_filter_answers_in_pages_and_goes_on(logs, endpoint):
    """Distant matches in a large log, with characters that JSON escapes, and lines added
    meanwhile.
    """
    wanted = 'C:\\temp "quoted" ü'
    for name in ("a", "b"):
        lines = [wanted if i in (7, 900, 1900) else f"filler {i}" for i in range(2000)]
        endpoint.app.logs.append("parts", name, lines)
    pattern = json.dumps(wanted, ensure_ascii=False)
    found = logs.get_paginator("filter_log_events").paginate(
        logGroupName="parts", filterPattern=pattern, PaginationConfig={"PageSize": 2}
    )
    pages = [page["events"] for page in found]
    events = [event for page in pages for event in page]
    assert [e["message"] for e in events] == [wanted] * 6
    assert [e["timestamp"] for e in events] == sorted(e["timestamp"] for e in events)
    assert len({(e["logStreamName"], e["eventId"]) for e in events}) == 6
    assert len(pages) == 3


@pytest.mark.parametrize(
    ("operation", "asked", "code"),
    [
        ("get_log_events", {"logGroupName": "no", "logStreamName": "s"}, "ResourceNotFound"),
        ("describe_log_streams", {"logGroupName": "no"}, "ResourceNotFound"),
        ("create_log_stream", {"logGroupName": "no", "logStreamName": "s"}, "ResourceNotFound"),
        ("delete_log_group", {"logGroupName": "no"}, "ResourceNotFound"),
        ("describe_metric_filters", {"logGroupName": "g"}, "UnknownOperation"),
        ("create_log_group", {"logGroupName": "g", "tags": {"a": "1"}}, "InvalidParameter"),
        ("filter_log_events", {"logGroupName": "g", "filterPattern": "{$.a = 1}"},
         "InvalidParameter"),
    ],
)  # fmt: skip
def test_refusals_have_aws_codes(logs, operation: str, asked: dict, code: str):
    with pytest.raises(ClientError) as failure:
        getattr(logs, operation)(**asked)
    assert failure.value.response["Error"]["Code"] == f"{code}Exception"


def test_a_log_group_is_made_and_deleted(logs):
    logs.create_log_group(logGroupName="/own")
    logs.create_log_stream(logGroupName="/own", logStreamName="s")
    logs.delete_log_stream(logGroupName="/own", logStreamName="s")
    assert logs.describe_log_streams(logGroupName="/own")["logStreams"] == []
    logs.delete_log_group(logGroupName="/own")
    assert logs.describe_log_groups(logGroupNamePrefix="/own")["logGroups"] == []
