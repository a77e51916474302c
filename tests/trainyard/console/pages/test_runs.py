"""The list of runs in a browser: search, sorting, choice, comparison, following."""

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
    arns = {
        f"rate {rate}": cloud.start(
            "quick", {"Rate": rate}, PipelineExecutionDisplayName=f"rate-{number}"
        )
        for number, rate in enumerate(("0.5", "0.05", "0.005"))
    }
    arns["broken"] = cloud.start("broken", PipelineExecutionDescription=HOSTILE)
    for arn in arns.values():
        cloud.ended(arn)
    return {name: arn.rpartition("/")[2] for name, arn in arns.items()}


def shows_runs(page, *names: str) -> None:
    expect(page.locator("tbody th")).to_have_text([*names], use_inner_text=True)


def test_runs_are_found_sorted_chosen_and_compared(page, console: str, runs: dict[str, str]):
    page.goto(f"{console.partition('/?')[0]}/runs?rows=3")
    visit(page.get_by_role("link", name="Rate", exact=True))
    shows_runs(page, "rate-0", "rate-1", "rate-2")  # the highest first; who lacks it comes last
    expect(page.locator("thead")).not_to_contain_text("Same")  # it does not differ
    page.get_by_role("link", name="2", exact=True).click()
    page.wait_for_url("**page=2")
    expect(page.locator("tbody td.Failed")).to_have_count(1)
    page.go_back()
    expect(page).to_have_url(re.compile(re.escape("rows=3&sort=-p.Rate") + "$"))
    page.get_by_label("Search").fill("quick 0.0")
    page.keyboard.press("Enter")
    page.wait_for_url("**q=quick+0.0**")
    shows_runs(page, "rate-1", "rate-2")
    for name in ("rate-1", "rate-2"):
        page.get_by_label(f"choose {name}").check()
    expect(page).to_have_url(re.compile("run=.*run="))
    address = page.url
    assert faults(page) == []
    page.get_by_role("button", name="Compare").click()
    page.wait_for_url("**/compare?**")
    for name in ("rate 0.05", "rate 0.005"):
        assert f"run=quick%2F{runs[name]}" in page.url
    page.go_back()
    expect(page).to_have_url(address)
    expect(page.get_by_label("choose rate-2")).to_be_checked()
    shows_runs(page, "rate-1", "rate-2")
    page.get_by_role("link", name="rate-1", exact=True).click()
    page.wait_for_url(f"**/runs/quick/{runs['rate 0.05']}")


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
    cloud.ended(arn)
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


def test_names_are_text(client, runs: dict[str, str]):
    html = client.get(f"/runs/broken/{runs['broken']}").text
    assert "&lt;img src=x onerror=alert(1)&gt;" in html
    assert "<img" not in html and "\x1b" not in html and "\N{RIGHT-TO-LEFT OVERRIDE}" not in html


def test_no_address_is_refused(client, runs: dict[str, str]):
    for query in (
        "sort=p.%00",
        "page=0&rows=99999",
        "_external=1&endpoint=x",
        "run=a&run=b&q=%00",
        "since=yesterday&p.Rate=>x&status=<b>",
    ):
        assert client.get(f"/runs?{query}").status_code == 200, query
