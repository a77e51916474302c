"""The page of a run in a real browser: it follows the run, links to its steps, says why it failed,
and is the report.
"""

from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.trainyard.console.looking import faults, visit
from tests.trainyard.emulator.harness import (
    Cloud,
    Gate,
    compare,
    condition_step,
    fail_step,
    process_step,
    train_step,
    until,
)
from trainyard.console import frozen_page

pytestmark = pytest.mark.long

ABOVE = """
() => {
  const [cause, graph] = [".cause", ".graph"].map((name) => document.querySelector(name));
  return cause.getBoundingClientRect().bottom <= graph.getBoundingClientRect().top;
}
"""
RAISES = """python3 -c "raise ValueError('row 7 has no label')\""""


@pytest.fixture(scope="module")
def end(cloud: Cloud) -> Gate:
    """What a run of "live" waits for."""
    return Gate(cloud)


@pytest.fixture(scope="module")
def pipelines(cloud: Cloud, end: Gate) -> None:
    """One pipeline whose runs wait in their first step, and one whose runs fail."""
    good = [compare("Equals", {"Get": "Parameters.Mode"}, "fast")]
    cloud.create(
        "live",
        [
            process_step("Prepare", end.wait),
            train_step("Train", "true", DependsOn=["Prepare"]),
            condition_step("Good", good, [], [fail_step("Bad", "x")], DependsOn=["Train"]),
        ],
        Parameters=[{"Name": "Mode", "Type": "String", "DefaultValue": "fast"}],
    )
    cloud.create("broken", [train_step("Fit", RAISES), process_step("After", "true", ("Fit",))])


def address(console: str, arn: str) -> str:
    pipeline, execution = arn.split("/")[1], arn.split("/")[3]
    return f"{console.partition('/?')[0]}/runs/{pipeline}/{execution}"


def test_the_graph_and_the_timeline_follow_a_run_and_lead_to_its_steps(
    page, console: str, cloud: Cloud, pipelines, end: Gate
):
    arn = cloud.start("live")
    page.goto(address(console, arn))
    page.locator("#node-Prepare .Executing rect").wait_for()
    before = page.locator(".gantt .times").inner_text()
    until(lambda: page.locator(".gantt .times").inner_text() != before)
    end.open()
    page.locator("#node-Prepare .Succeeded rect").wait_for()
    page.locator(".gantt li", has_text="Train").first.wait_for()
    cloud.ended(arn)
    page.locator("#head strong.Succeeded").wait_for()
    expect(page.locator("#node-Bad .node.NotTaken")).to_have_count(1)
    expect(page.locator("#timeline")).to_contain_text("Prepare \u2192 Train \u2192 Good")
    expect(page.locator(".settings")).to_contain_text("fast")
    assert faults(page) == []
    expect(page.get_by_role("link", name="Train Succeeded, Training")).to_have_count(1)
    visit(page.locator("#node-Train"), "Enter")
    expect(page).to_have_url(f"{address(console, arn)}/Train")
    page.go_back()
    visit(page.locator("#node-Prepare rect").first)
    expect(page).to_have_url(f"{address(console, arn)}/Prepare")


def test_a_failed_run_says_why_above_all_else_also_in_the_report(
    page, console: str, cloud: Cloud, pipelines, tmp_path: Path
):
    arn = cloud.start("broken")
    cloud.ended(arn)
    page.goto(address(console, arn))
    page.locator(".cause").get_by_text("row 7 has no label").first.wait_for()
    expect(page.locator("#node-After .node.NotRun")).to_have_count(1)
    assert page.evaluate(ABOVE)
    assert faults(page) == []
    out = tmp_path / "report.html"
    frozen_page.write(arn, out)
    page.goto(out.as_uri())
    expect(page.locator(".cause")).to_contain_text("row 7 has no label")
    assert (
        page.locator("a[href]:not([href^='#'])").count() == 0
        and page.locator("script").count() == 0
    )
    assert faults(page) == []
