"""The list of runs in a browser: search, sorting, choice, comparison, following."""

import html
import re

import pytest
from playwright.sync_api import expect

from tests.trainyard.console.looking import faults, visit
from tests.trainyard.emulator.harness import (
    PATIENCE,
    Cloud,
    Gate,
    condition_step,
    fail_step,
    process_step,
)
from trainyard.console.pages import runs as listed

pytestmark = pytest.mark.long

PARAMETERS = [
    {"Name": "Rate", "Type": "Float", "DefaultValue": 0.1},
    {"Name": "Same", "Type": "String", "DefaultValue": "s3://bkt/same"},
]
HOSTILE = "<img src=x onerror=alert(1)> \N{RIGHT-TO-LEFT OVERRIDE}\x1b[31m"


@pytest.fixture(scope="module")
def runs(cloud: Cloud) -> dict[str, str]:
    """Name → id of the runs of two pipelines."""
    cloud.create("quick", [condition_step("Look", [], [], [])], Parameters=PARAMETERS)
    cloud.create("broken", [fail_step("Stop", "because of the weather")])
    arns = {}
    for number, rate in enumerate(("0.5", "0.05", "0.005")):
        named = {"PipelineExecutionDisplayName": f"rate-{number}"}
        arns[f"rate {rate}"] = cloud.start("quick", {"Rate": rate}, **named)
    arns["broken"] = cloud.start("broken", PipelineExecutionDescription=HOSTILE)
    for arn in arns.values():
        cloud.wait_for_execution(arn)
    return {name: arn.rpartition("/")[2] for name, arn in arns.items()}


BROKEN = re.compile(r"broken \d\d ")


def shows_runs(page, *names: str | re.Pattern[str]) -> None:
    expect(page.locator("tbody th")).to_have_text([*names], use_inner_text=True)


def test_runs_are_found_sorted_chosen_and_compared(page, console: str, runs: dict[str, str]):
    page.goto(f"{console.partition('/?')[0]}/runs")
    visit(page.get_by_role("link", name="Rate", exact=True))
    shows_runs(page, "rate-0", "rate-1", "rate-2", BROKEN)  # who lacks it comes last
    expect(page.locator("thead")).not_to_contain_text("Same")  # it does not differ
    expect(page.locator("tbody td.Failed")).to_have_count(1)
    page.get_by_label("Search").fill("quick Rate=0.0")
    page.keyboard.press("Enter")
    page.wait_for_url("**q=quick+Rate**")
    shows_runs(page, "rate-1", "rate-2")
    expect(page.get_by_role("status")).to_contain_text("2 of the 4 newest runs")
    for name in ("rate-1", "rate-2"):
        page.get_by_label(f"choose {name}").check()
    assert faults(page) == []
    page.get_by_role("button", name="Compare").click()
    page.wait_for_url("**/compare?**")
    for name in ("rate 0.05", "rate 0.005"):
        assert f"run=quick%2F{runs[name]}" in page.url
    page.go_back()
    shows_runs(page, "rate-1", "rate-2")
    page.get_by_role("link", name="rate-1", exact=True).click()
    page.wait_for_url(f"**/runs/quick/{runs['rate 0.05']}")


def test_older_runs_are_on_the_next_page(client, runs: dict[str, str], monkeypatch):
    monkeypatch.setattr(listed, "ROWS", 3)
    first = client.get("/runs").text
    assert first.count('<th scope="row">') == 3 and "3 newest runs: search" in first
    older = html.unescape(re.search(r'href="([^"]+)">Older runs', first)[1])
    second = client.get(older).text
    assert second.count('<th scope="row">') == 1 and "rate-0" in second
    assert "Older runs" not in second and "Newest runs" in second


def test_a_new_run_and_its_end_appear_and_what_is_chosen_stays(
    page, cloud: Cloud, runs: dict[str, str]
):
    page.get_by_label("choose rate-2").check()
    gate = Gate(cloud)
    cloud.create("watched", [process_step("Slow", gate.wait)])
    arn = cloud.start("watched", PipelineExecutionDisplayName="watched-run")
    row = page.locator("tbody tr", has_text="watched-run")
    row.locator("td.Executing").wait_for()
    gate.open()
    row.locator("td.Succeeded").wait_for()
    cloud.wait_for_execution(arn)
    expect(page.get_by_label("choose rate-2")).to_be_checked()


def test_it_works_without_script(chromium, console: str, runs: dict[str, str]):
    context = chromium.new_context(java_script_enabled=False)
    page = context.new_page()
    page.set_default_timeout(PATIENCE * 1000)
    page.goto(console)
    page.get_by_text("Filters").click()
    page.get_by_label("Failed", exact=True).check()
    page.get_by_role("button", name="Apply", exact=True).click()
    page.wait_for_url("**status=Failed**")
    expect(page.locator("tbody tr")).to_have_count(1)
    expect(page.get_by_role("link", name="Reset")).to_have_count(1)
    context.close()


def test_names_are_text_and_no_address_is_refused(client, runs: dict[str, str]):
    text = client.get(f"/runs/broken/{runs['broken']}").text
    assert "&lt;img src=x onerror=alert(1)&gt;" in text
    assert "<img" not in text and "\x1b" not in text and "\N{RIGHT-TO-LEFT OVERRIDE}" not in text
    before = "before=yesterday&pipeline=none&status=<b>"
    for query in ("sort=p.%00", "_external=1&endpoint=x", "run=a&run=b&q=%00", before):
        assert client.get(f"/runs?{query}").status_code == 200, query
