"""/metrics of an emulator after some runs, for owners of the token, and its dashboards."""

import re
from collections.abc import Iterator

import pytest
import requests

from tests.trainyard.emulator.harness import Cloud
from tests.trainyard.emulator.harness import cloud as running
from tests.trainyard.test_dashboards import cloudwatch_metrics
from trainyard import dashboards
from trainyard.common.measures import OF_SERVICE, PIPELINES
from trainyard.emulator.cloudwatch import metric_store
from trainyard.emulator.cloudwatch.metric_store import derive_scrape_token

SAMPLE = re.compile(r"(?P<name>[a-z_]+)(?:\{(?P<labels>[^}]*)\})? (?P<value>\S+)")


def request_metrics(cloud: Cloud, token: str | None) -> tuple[int, str]:
    headers = {"Authorization": f"Bearer {token}"} if token is not None else {}
    answer = requests.get(f"{cloud.endpoint.url}/metrics", headers=headers, timeout=60)
    return answer.status_code, answer.text


def samples(text: str) -> list[tuple[str, float]]:
    """Return name and value of each line except comments; every line must match the format."""
    lines = [line for line in text.splitlines() if not line.startswith("# ")]
    found = [SAMPLE.fullmatch(line) for line in lines]
    assert all(found), lines
    return [(match["name"], float(match["value"])) for match in found if match]


EQUAL = {"Conditions": [{"Type": "Equals", "LeftValue": 1, "RightValue": 1}],
         "IfSteps": [], "ElseSteps": []}  # fmt: skip
ONLY = {
    "good": {"Name": "Only", "Type": "Condition", "Arguments": EQUAL},
    "bad": {"Name": "Only", "Type": "Fail", "Arguments": {"ErrorMessage": "as it is told to"}},
}


@pytest.fixture(scope="module")
def cloud(tmp_path_factory) -> Iterator[Cloud]:
    with running(tmp_path_factory.mktemp("state")) as found:
        yield found


@pytest.fixture(scope="module")
def exposition(cloud: Cloud) -> str:
    """The metrics after one successful and one failed execution, and requests to two variants.

    They are read while measured, since a model server takes seconds to start.
    """
    [store] = cloud.endpoint.app.worlds.metrics
    for variant, status, count in (("A", 200, 2), ("A", 400, 2), ("B", 500, 1)):
        metric_store.record_invocation(
            store, ("shop", variant, "config"), status, (0.25, 0.05), count
        )
    for name, step in ONLY.items():
        cloud.create(name, [step])
        cloud.run(name)
    status, text = request_metrics(
        cloud, derive_scrape_token(cloud.endpoint.env["AWS_SECRET_ACCESS_KEY"])
    )
    assert status == 200
    return text


def test_each_line_is_of_the_format_and_each_family_appears_once(exposition):
    families = re.findall(r"^# TYPE (\S+) (\S+)$", exposition, re.MULTILINE)
    assert len({name for name, _ in families}) == len(families) > 0
    assert all(value >= 0 for _, value in samples(exposition))


def test_executions_and_steps_are_counted_by_their_outcome(exposition):
    assert 'trainyard_executions_total{pipeline="good",outcome="succeeded"} 1.0' in exposition
    assert 'trainyard_executions_total{pipeline="bad",outcome="failed"} 1.0' in exposition
    assert 'trainyard_steps_total{pipeline="bad",step="Only",outcome="failed"} 1.0' in exposition
    assert 'trainyard_step_duration_seconds_count{pipeline="good",step="Only"} 1.0' in exposition


def test_each_variant_of_an_endpoint_has_its_requests_errors_times_and_instances(exposition):
    def read_variant_samples(variant: str) -> dict[str, float]:
        named = f'endpoint="shop",variant="{variant}"'
        found = filter(None, map(SAMPLE.fullmatch, exposition.splitlines()))
        return {
            m["name"].removeprefix("trainyard_endpoint_") + m["labels"].removeprefix(named):
                float(m["value"])
            for m in found
            if named in (m["labels"] or "")
        }  # fmt: skip

    assert read_variant_samples("A") == pytest.approx({
        "invocations_total": 2, "invocations_per_instance_total": 1,
        'errors_total,class="4xx"': 1, 'errors_total,class="5xx"': 0,
        "latency_seconds_sum": 0.5, "latency_seconds_count": 2,
        "overhead_seconds_sum": 0.1, "overhead_seconds_count": 2,
    })  # fmt: skip
    assert (
        read_variant_samples("B")['errors_total,class="5xx"']
        == 1
        == read_variant_samples("B")["invocations_per_instance_total"]
    )


def test_the_dashboards_ask_for_what_is_there(exposition):
    given = {name for name, _ in samples(exposition)}
    board = str(dashboards.build_grafana_dashboard())
    service = {s for m in OF_SERVICE for s in m.series}
    assert {s for s in service if s in board} == service <= given


def test_cloudwatchs_dashboard_names_metrics_that_the_emulator_measures(cloud, exposition):
    [store] = cloud.endpoint.app.worlds.metrics
    known = {(metric.namespace, metric.name) for metric in store.list_metrics()}
    named = {
        one
        for one in cloudwatch_metrics(dashboards.build_cloudwatch_template())
        if one[0] == PIPELINES
    }
    stopped = {(PIPELINES, "ExecutionStopped"), (PIPELINES, "StepStopped")}
    assert named - stopped <= known


def test_without_the_token_nothing_is_told(cloud):
    assert request_metrics(cloud, "wrong")[0] == 401
    status, text = request_metrics(cloud, None)
    assert status == 403 and "trainyard_" not in text
    assert request_metrics(cloud, cloud.endpoint.env["AWS_SECRET_ACCESS_KEY"])[0] == 401
