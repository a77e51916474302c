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

HIDE = """(is) => {
  Object.defineProperty(document, "hidden", { get: () => is, configurable: true });
  document.dispatchEvent(new Event("visibilitychange"));
}"""
ABOVE = """
() => {
  const [cause, graph] = [".cause", ".graph"].map((name) => document.querySelector(name));
  return cause.getBoundingClientRect().bottom <= graph.getBoundingClientRect().top;
}
"""
RAISES = """python3 -c "raise ValueError('row 7 has no label')\""""


def address(console: str, arn: str) -> str:
    pipeline, execution = arn.split("/")[1], arn.split("/")[3]
    return f"{console.partition('/?')[0]}/runs/{pipeline}/{execution}"


def test_every_tab_follows_a_run_until_it_ends_and_leads_to_its_steps(
    page, console: str, cloud: Cloud
):
    gate, end = Gate(cloud), Gate(cloud)
    script = f"echo loss=2; {gate.wait}; echo loss=1"
    train = train_step("Train", script)
    measured = [{"Name": "loss", "Regex": r"loss=(\d)"}]
    train["Arguments"]["AlgorithmSpecification"]["MetricDefinitions"] = measured
    good = [compare("Equals", {"Get": "Parameters.Mode"}, "fast")]
    slow = process_step("Slow", end.wait, ("Train",))
    check = condition_step("Good", good, [], [fail_step("Bad", "x")], DependsOn=["Slow"])
    mode = {"Name": "Mode", "Type": "String", "DefaultValue": "fast"}
    cloud.create("live", [train, slow, check], Parameters=[mode])
    arn = cloud.start("live")
    run = address(console, arn)
    trained, hidden = page.context.new_page(), page.context.new_page()
    for tab, path in ((page, run), (trained, f"{run}/Train"), (hidden, run)):
        tab.goto(path)
    hidden.evaluate(HIDE, True)
    page.locator("#node-Train .Executing rect").wait_for()
    page.evaluate("document.body.mark = 'the same page'")
    before = page.locator(".gantt .times").inner_text()
    until(lambda: page.locator(".gantt .times").inner_text() != before)
    trained.get_by_text("last 2").first.wait_for()
    gate.open()
    trained.get_by_text("last 1").first.wait_for()
    page.locator("#steps tr", has_text="Train").locator("td.Succeeded").wait_for()
    assert hidden.locator("#steps td.Succeeded").count() == 0, "nobody looks at it"
    hidden.evaluate(HIDE, False)
    hidden.locator("#steps td.Succeeded").wait_for()
    end.open()
    page.locator("#node-Slow .Succeeded rect").wait_for()
    cloud.wait_for_execution(arn)
    page.locator("#head strong.Succeeded").wait_for()
    assert page.evaluate("document.body.mark") == "the same page"
    until(lambda: page.evaluate("document.body.dataset.poll") == "")  # nothing more will come
    expect(page.locator("#node-Bad .node.NotTaken")).to_have_count(1)
    expect(page.locator("#timeline")).to_contain_text("Train \u2192 Slow \u2192 Good")
    expect(page.locator(".settings")).to_contain_text("fast")
    assert faults(page) == faults(trained) == []
    expect(page.get_by_role("link", name="Train Succeeded, Training")).to_have_count(1)
    visit(page.locator("#node-Train"), "Enter")
    expect(page).to_have_url(f"{run}/Train")
    page.go_back()
    visit(page.locator("#node-Slow rect").first)
    expect(page).to_have_url(f"{run}/Slow")


def test_a_failed_run_says_why_above_all_else_also_in_the_report(
    page, console: str, cloud: Cloud, tmp_path: Path
):
    cloud.create("broken", [train_step("Fit", RAISES), process_step("After", "true", ("Fit",))])
    arn = cloud.start("broken")
    cloud.wait_for_execution(arn)
    page.goto(address(console, arn))
    page.locator(".cause").get_by_text("row 7 has no label").first.wait_for()
    expect(page.locator("#node-After .node.NotRun")).to_have_count(1)
    assert page.evaluate(ABOVE)
    assert faults(page) == []
    out = tmp_path / "report.html"
    frozen_page.write_frozen_page(arn, out)
    page.goto(out.as_uri())
    expect(page.locator(".cause")).to_contain_text("row 7 has no label")
    assert page.locator("a[href]:not([href^='#']), script").count() == 0
    assert faults(page) == []
