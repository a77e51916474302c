"""Actions in a real browser, by clicks and by keys: their questions and their effects."""

import pytest
from playwright.sync_api import expect

from tests.trainyard.console.looking import faults, visit
from tests.trainyard.console.test_actions import PARAMETERS, answer, is_asking
from tests.trainyard.emulator.harness import IMAGE, Cloud, process_step, until
from tests.trainyard.emulator.sagemaker.test_callback_tokens import callback_step
from tests.trainyard.emulator.standin import make_client

pytestmark = pytest.mark.long


@pytest.fixture
def house(console: str) -> str:
    """Address of the console without its key."""
    return console.partition("/?")[0]


def test_a_run_is_started_and_stopped(page, house: str, cloud: Cloud):
    queue = make_client(cloud.endpoint, "sqs").create_queue(QueueName="asked")["QueueUrl"]
    cloud.create("typed", [process_step("First", "true")], Parameters=PARAMETERS)
    cloud.create("asks", [callback_step("Ask", queue)])

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

    arn = cloud.start("asks")
    until(lambda: is_asking(cloud, arn))
    page.goto(f"{house}/do/stop?pipeline=asks&execution={arn.rpartition('/')[2]}")
    assert faults(page) == []
    page.get_by_role("button", name="Stop").click()
    page.wait_for_url(f"{house}/runs/asks/*")
    answer(cloud, arn)
    assert cloud.ended(arn)["PipelineExecutionStatus"] == "Stopped"


def test_models_are_approved_and_rejected(page, house: str, cloud: Cloud):
    cloud.sm.create_model_package_group(ModelPackageGroupName="digits")
    spec = {
        "Containers": [{"Image": IMAGE, "ModelDataUrl": "s3://bkt/m.tar.gz"}],
        "SupportedContentTypes": ["text/csv"],
        "SupportedResponseMIMETypes": ["text/csv"],
    }
    for loss in ("0.5", "0.4", "0.3"):
        cloud.sm.create_model_package(
            ModelPackageGroupName="digits",
            InferenceSpecification=spec,
            CustomerMetadataProperties={"loss": loss},
        )
    visit(page.get_by_role("link", name="Models"))
    visit(page.get_by_role("link", name="digits"))
    assert faults(page) == []

    for version in ("1", "2"):
        page.goto(f"{house}/models/digits/{version}")
        visit(page.get_by_role("link", name="Approve"))
        page.get_by_label("Comment").fill(f"better, says test {version}")
        page.get_by_role("button", name="Approve").click()
        page.wait_for_url(f"{house}/models/digits/{version}")
        page.get_by_text(f"better, says test {version}").wait_for()
    expect(page.locator("h1 .chip")).to_have_text("champion")
    assert faults(page) == []

    page.goto(f"{house}/models/digits/3")
    visit(page.get_by_role("link", name="Reject"), "Enter")
    page.get_by_label("Comment").focus()
    page.keyboard.type("it leaks")
    page.keyboard.press("Tab")
    while page.evaluate("document.activeElement.textContent") != "Reject":
        page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    page.wait_for_url(f"{house}/models/digits/3")
    page.locator("h1 .Rejected").wait_for()

    page.goto(f"{house}/models/digits/2")
    visit(page.get_by_role("link", name="Reject"))
    page.get_by_label("Comment").fill("wrong on Sundays")
    stale = page.context.new_page()
    stale.goto(page.url)
    page.get_by_role("button", name="Reject").click()
    page.wait_for_url(f"{house}/models/digits/2")

    stale.get_by_label("Comment").fill("me, too")
    stale.get_by_role("button", name="Reject").click()
    stale.get_by_text("Nothing was done: this has changed").wait_for()
    assert faults(stale) == []
    expect(stale.get_by_role("alert").first).to_contain_text("model-package/digits/1")
