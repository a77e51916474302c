"""The list of runs in a browser: found, sorted, chosen, compared, followed."""

from pathlib import Path

import pytest

from tests.trainyard.console.looking import faults
from tests.trainyard.emulator.harness import (
    Cloud,
    condition_step,
    fail_step,
    process_step,
    wait_for,
)

PARAMETERS = [
    {"Name": "Rate", "Type": "Float", "DefaultValue": 0.1},
    {"Name": "Same", "Type": "String", "DefaultValue": "s3://bkt/same"},
]
HOSTILE = "<img src=x onerror=alert(1)> \N{RIGHT-TO-LEFT OVERRIDE}\x1b[31m"


@pytest.fixture(scope="module")
def runs(cloud: Cloud) -> dict[str, str]:
    """Name → id of runs of two pipelines."""
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


def names(page) -> list[str]:
    return page.locator("tbody th").all_inner_texts()


def test_runs_are_found_sorted_chosen_and_compared(page, console: str, runs: dict[str, str]):
    page.goto(f"{console.partition('/?')[0]}/runs?rows=3")
    page.get_by_role(
        "link", name="Rate", exact=True
    ).click()  # the highest first; who lacks it comes last
    assert names(page) == ["rate-0", "rate-1", "rate-2"]
    assert page.locator("thead").inner_text().count("Same") == 0  # it does not differ
    page.get_by_role("link", name="2", exact=True).click()
    page.wait_for_url("**page=2")
    assert page.locator("tbody td.Failed").count() == 1
    page.go_back()
    assert page.url.endswith("rows=3&sort=-p.Rate")
    page.get_by_label("Search").fill("quick 0.0")
    page.keyboard.press("Enter")
    page.wait_for_url("**q=quick+0.0**")
    assert names(page) == ["rate-1", "rate-2"]
    page.get_by_text("Columns").click()
    page.get_by_role("checkbox", name="Same").check()
    page.get_by_role("checkbox", name="duration").uncheck()
    page.get_by_role("button", name="Show these").click()
    page.wait_for_url("**col=p.Same**")
    head = page.locator("thead").inner_text()
    assert "Same" in head and "duration" not in head
    for name in ("rate-1", "rate-2"):
        page.get_by_label(f"choose {name}").check()
    address = page.url
    assert faults(page) == []
    page.get_by_role("button", name="Compare").click()
    page.wait_for_url("**/compare?**")
    for name in ("rate 0.05", "rate 0.005"):
        assert f"run=quick%2F{runs[name]}" in page.url
    page.go_back()
    assert page.url == address
    assert page.get_by_label("choose rate-2").is_checked()
    assert names(page) == ["rate-1", "rate-2"]
    page.get_by_role("link", name="rate-1", exact=True).click()
    page.wait_for_url(f"**/runs/quick/{runs['rate 0.05']}")


def test_a_new_run_and_its_end_appear_and_what_is_chosen_stays(
    page, cloud: Cloud, runs: dict[str, str], tmp_path: Path
):
    page.get_by_label("choose rate-2").check()
    cloud.create("watched", [process_step("Slow", wait_for(tmp_path / "end"))])
    arn = cloud.start("watched", PipelineExecutionDisplayName="watched-run")
    row = page.locator("tbody tr", has_text="watched-run")
    row.locator("td.Executing").wait_for()
    (tmp_path / "end").touch()
    row.locator("td.Succeeded").wait_for()
    cloud.ended(arn)
    row.get_by_text("$").wait_for()
    assert page.get_by_label("choose rate-2").is_checked()


def test_it_works_without_script(chromium, console: str, runs: dict[str, str]):
    context = chromium.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(console)
    page.get_by_label("Failed").check()
    page.get_by_role("button", name="Show", exact=True).click()
    page.wait_for_url("**status=Failed**")
    assert page.locator("tbody tr").count() == 1
    assert page.get_by_role("link", name="everything").count() == 1
    context.close()


def test_names_are_text(client, runs: dict[str, str]):
    html = client.get("/runs?col=description&q=weather").text
    assert "&lt;img src=x onerror=alert(1)&gt;" in html
    assert "<img" not in html and "\x1b" not in html and "\N{RIGHT-TO-LEFT OVERRIDE}" not in html


def test_no_address_is_refused(client, runs: dict[str, str]):
    for query in (
        "col=nothing&sort=p.%00",
        "page=0&rows=99999",
        "_external=1&endpoint=x",
        "run=a&run=b&q=%00",
        "since=yesterday&p.Rate=>x&status=<b>",
    ):
        assert client.get(f"/runs?{query}").status_code == 200, query
