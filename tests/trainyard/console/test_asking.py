"""Actions in a real browser, by clicks and by keys: their questions and their effects."""

import pytest
from playwright.sync_api import expect

from tests.trainyard.console.looking import faults, visit
from tests.trainyard.console.test_actions import PARAMETERS, package
from tests.trainyard.emulator.harness import Cloud, process_step

pytestmark = pytest.mark.long


def test_a_run_is_started_by_keys_and_a_model_is_judged(page, console: str, cloud: Cloud):
    house = console.partition("/?")[0]
    cloud.create("typed", [process_step("First", "true")], Parameters=PARAMETERS)
    page.goto(f"{house}/do/start?pipeline=typed")
    page.get_by_label("Steps").fill("many")
    page.get_by_label("Who").fill("me")
    page.keyboard.press("Enter")  # shows, and starts nothing
    page.get_by_text("'many' is not of type Integer.").wait_for()
    expect(page.get_by_label("Who")).to_have_value("me")
    assert faults(page) == []
    page.get_by_label("Steps").fill("7")
    page.get_by_label("Mode").select_option("slow")
    page.keyboard.press("Tab")
    page.get_by_role("button", name="Start").click()
    page.get_by_text("Nothing was done yet.").wait_for()
    expect(page.locator("pre")).to_contain_text('"Value": "7"')
    page.get_by_role("button", name="Start").focus()
    page.keyboard.press("Enter")
    page.wait_for_url(f"{house}/runs/typed/*")

    cloud.sm.create_model_package_group(ModelPackageGroupName="digits")
    package(cloud, CustomerMetadataProperties={"loss": "0.5"})
    package(cloud, CustomerMetadataProperties={"loss": "0.4"})
    visit(page.get_by_role("link", name="Models"))
    visit(page.get_by_role("link", name="digits"))
    assert faults(page) == []
    page.goto(f"{house}/models/digits/1")
    visit(page.get_by_role("link", name="Approve"))
    page.get_by_label("Comment").fill("better")
    stale = page.context.new_page()
    stale.goto(page.url)
    page.get_by_role("button", name="Approve").click()
    page.wait_for_url(f"{house}/models/digits/1")
    expect(page.locator("h1 .chip")).to_have_text("champion")
    assert faults(page) == []

    stale.get_by_label("Comment").fill("me, too")
    stale.get_by_role("button", name="Approve").click()
    stale.get_by_text("Nothing was done: this has changed").wait_for()
    expect(stale.get_by_role("alert").first).to_contain_text("Approved")
    assert faults(stale) == []

    page.goto(f"{house}/models/digits/2")
    visit(page.get_by_role("link", name="Reject"), "Enter")
    page.get_by_label("Comment").focus()
    page.keyboard.type("it leaks")
    page.keyboard.press("Tab")
    while page.evaluate("document.activeElement.textContent") != "Reject":
        page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    page.wait_for_url(f"{house}/models/digits/2")
    page.locator("h1 .Rejected").wait_for()
