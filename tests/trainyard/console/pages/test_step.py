"""The page of a step: result, cause, attempts, arguments, inputs and outputs."""

import html
import json
import re

import pytest

from tests.trainyard.console.looking import faults, visit
from tests.trainyard.emulator.harness import (
    Cloud,
    compare,
    condition_step,
    json_get,
    process_step,
    s3_input,
    train_step,
    until,
)
from trainyard.console.account_cache import Account
from trainyard.console.web_server import create_console_app

pytestmark = pytest.mark.long

CACHE = {"Enabled": True, "ExpireAfter": "P30D"}
RETRY = {
    "ExceptionType": ["SageMaker.JOB_INTERNAL_ERROR"],
    "IntervalSeconds": 2,
    "BackoffRate": 1.0,
    "MaxAttempts": 3,
}
WRITES = (
    "echo preparing; cd /opt/ml/processing/out; "
    """printf 'a,b\\n1,<b>two</b>\\n' > rows.csv; echo '{"loss": 0.25, "n": 3}' > scores.json"""
)
FAILS = "python3 -c \"rows = int(open('/opt/ml/processing/raw/x').read())\""
SECRET = "hunter2-hunter2"


def steps() -> list[dict]:
    """Prepare is cached; Train has hyperparameters; Read has two attempts and fails."""
    prepare = process_step(
        "Prepare", WRITES, outputs={"out": "s3://bkt/prepared"}, CacheConfig=CACHE,
        PropertyFiles=[{"PropertyFileName": "s", "OutputName": "out", "FilePath": "scores.json"}],
    )  # fmt: skip
    named = {"HyperParameters": {"lr": {"Get": "Parameters.Rate"}, "epochs": "3"}}
    named["Environment"] = {"DB_PASSWORD": SECRET, "MODE": "fast"}
    script = "echo loss=0.5; echo weights > /opt/ml/model/w"
    measured = [{"Name": "loss", "Regex": "loss=([0-9.]+)"}]
    train = train_step("Train", script, arguments=named, CacheConfig=CACHE, DependsOn=["Prepare"])
    train["Arguments"]["AlgorithmSpecification"]["MetricDefinitions"] = measured
    read = process_step("Read", FAILS, RetryPolicies=[RETRY], depends_on=("Train",))
    read["Arguments"]["ProcessingInputs"] = [s3_input("raw", "s3://bkt/raw/x")]
    low = compare("LessThan", json_get("Prepare", "s", "loss"), 1.0)
    check = condition_step("Check", [low], [read], [], DependsOn=["Train"])
    return [prepare, train, check]


RATE = {"Name": "Rate", "Type": "String", "DefaultValue": "0.1"}


def run(cloud: Cloud, name: str, rate: str, *, fault: bool = False) -> str:
    """Run the pipeline to its end; return the id. ``fault``: Read's first job fails by the service.

    The fault is real: the input is missing on the emulator's disk until the job has failed.
    """
    cloud.put("raw/x", "no number")
    path = cloud.endpoint.app.objects.locate_file("bkt", "raw/x")
    hidden = path.rename(path.with_suffix(".hidden")) if fault else None
    arn = cloud.start(name, {"Rate": rate})
    if hidden:
        until(lambda: _jobs(cloud, arn, "Failed"))
        hidden.rename(path)
    cloud.wait_for_execution(arn)
    return arn.rpartition("/")[2]


def _jobs(cloud: Cloud, arn: str, status: str) -> list[dict]:
    named = f"pipelines-{arn.rpartition('/')[2]}-Read"
    listed = cloud.sm.list_processing_jobs(NameContains=named, StatusEquals=status)
    return listed["ProcessingJobSummaries"]


@pytest.fixture(scope="module")
def runs(cloud: Cloud) -> tuple[str, str]:
    """Ids of two executions: the first one's Read has two attempts; the second has another rate."""
    cloud.create("shown", steps(), Parameters=[RATE])
    return run(cloud, "shown", "0.1", fault=True), run(cloud, "shown", "0.2")


@pytest.fixture(scope="module")
def client(cloud: Cloud):
    """A client for all tests here, as a browser has one."""
    asking = create_console_app(Account(may_write=True), "key").test_client()
    asking.get("/?key=key")
    return asking


def text(answer) -> str:
    """Return the visible text of a page, with single spaces."""
    inner = answer.text.partition("<main")[2]
    return re.sub(r"\s+", " ", html.unescape(re.sub(r"<[^>]+>", " ", inner)))


def test_the_reason_of_a_failure_comes_first_and_leads_to_its_line(client, runs):
    answer = client.get(f"/runs/shown/{runs[0]}/Read")
    said = text(answer)
    assert "ValueError: invalid literal for int() with base 10: 'no number'" in said
    assert said.index("Why it failed") < said.index("Attempts") < said.index("Time and cost")
    link = re.search(r'href="(/runs/shown/\w+/Read/log\?[^"#]+)#([\w-]+)">ValueError', answer.text)
    assert link is not None
    log = client.get(html.unescape(link[1])).text
    marked = re.search(rf'class="l[^"]* marked" id="{link[2]}">.*?<span class="said">(.*?)<', log)
    assert marked is not None and marked[1].startswith("ValueError: invalid literal")


def test_every_attempt_has_its_own_job_status_reason_and_log(client, runs, cloud: Cloud):
    answer = client.get(f"/runs/shown/{runs[0]}/Read")
    jobs = cloud.sm.list_processing_jobs(NameContains=f"{runs[0]}-Read")["ProcessingJobSummaries"]
    assert len(jobs) == 2
    for job in jobs:
        assert f"Read/log?job={job['ProcessingJobName']}" in answer.text
    said = text(answer)
    first, second = said.partition("Attempts")[2].split("log of attempt")[1:3]
    assert "InternalServerError" in first and "AlgorithmError: ValueError" in second
    assert "no job is listed" not in said
    assert re.search(r"this run .* all attempts.* of which attempt 1 ", said)
    assert "log of attempt" not in client.get(f"/runs/shown/{runs[1]}/Read").text


def test_a_cached_step_leads_to_where_it_ran(client, runs):
    cached = client.get(f"/runs/shown/{runs[1]}/Prepare")
    assert f'href="/runs/shown/{runs[0]}/Prepare"' in cached.text
    assert "Answered from the cache" in text(cached)


def test_arguments_are_what_the_run_was_told_and_no_secret(client, runs):
    answer = client.get(f"/runs/shown/{runs[1]}/Train")
    assert "epochs 3 lr 0.2" in text(answer)
    assert SECRET not in answer.text and "DB_PASSWORD (hidden)" in text(answer)
    asked = re.search(r'id="asked-text"[^>]*>(.*?)</pre>', answer.text, re.DOTALL)
    assert json.loads(html.unescape(asked[1]))["Arguments"]["HyperParameters"]["lr"] == "0.2"
    check = client.get(f"/runs/shown/{runs[0]}/Check").text
    asked = re.search(r'id="asked-text"[^>]*>(.*?)</pre>', check, re.DOTALL)
    compared = json.loads(html.unescape(asked[1]))["Arguments"]["Conditions"][0]
    assert compared["LeftValue"] == 0.25  # as it stood in the file of Prepare's output


def test_inputs_and_outputs_stand_by_their_addresses(client, runs):
    said = text(client.get(f"/runs/shown/{runs[0]}/Train"))
    assert re.search(r"output ModelArtifacts\S* s3://bkt/models/\S+/model.tar.gz", said)
    said = text(client.get(f"/runs/shown/{runs[0]}/Prepare"))
    assert re.search(r"output Outputs\[out\]\S* s3://bkt/prepared", said)
    said = text(client.get(f"/runs/shown/{runs[0]}/Read"))
    assert re.search(r"input ProcessingInputs\[raw\]\S* s3://bkt/raw/x", said)


def test_metrics_are_curves_and_the_last_lines_of_the_log_are_there(client, runs):
    answer = client.get(f"/runs/shown/{runs[0]}/Train")
    inside = answer.text.partition('<div id="curves"')[2].partition('<div id="log"')
    assert "<figure" in inside[0] and "&lt;" not in inside[0]
    assert "loss=0.5" in inside[2]


def test_a_step_that_has_not_begun_has_a_page_and_none_of_that_name_has_none(client, cloud: Cloud):
    cloud.create("waiting", steps(), Parameters=[RATE])
    arn = cloud.start("waiting")
    number = arn.rpartition("/")[2]
    page = client.get(f"/runs/waiting/{number}/Read")
    assert page.status_code == 200
    assert client.get(f"/runs/waiting/{number}/None").status_code == 404
    cloud.wait_for_execution(arn)


def test_in_a_browser(page, console: str, runs):
    """Attempts open, arguments are copied, evidence leads to its log."""
    address = console.partition("/?")[0]
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.goto(f"{address}/runs/shown/{runs[0]}/Read")
    page.get_by_text("1 Failed").click()
    page.get_by_text("InternalServerError").wait_for()
    assert faults(page) == []
    page.get_by_text("The definition's arguments with this run's values").click()
    page.locator("#asked button").click()
    page.get_by_role("button", name="copied").wait_for()
    copied = page.evaluate("navigator.clipboard.readText()")
    assert json.loads(copied)["RetryPolicies"][0]["MaxAttempts"] == 3
    visit(page.get_by_role("link", name="ValueError: invalid literal"))
    page.wait_for_url("**/Read/log?**line=**#**")
    page.locator(".l.marked").get_by_text("ValueError: invalid literal").wait_for()
    page.set_viewport_size({"width": 390, "height": 800})
    page.goto(f"{address}/runs/shown/{runs[0]}/Train")
    page.locator("#curves .plot canvas").first.wait_for()
    assert faults(page) == []
    page.goto(f"{address}/compare?run=shown/{runs[0]}")
    assert page.evaluate("document.documentElement.scrollWidth") == 390
