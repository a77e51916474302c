"""Pages that browsers ask for again: only what has changed is sent, and swapped."""

import threading

import pytest

from tests.trainyard.console.looking import faults
from tests.trainyard.emulator.harness import (
    Cloud,
    Gate,
    process_step,
    train_step,
    training,
    until,
)
from trainyard.common.errors import ServiceError
from trainyard.console.account_cache import Account
from trainyard.console.web_server import create

pytestmark = pytest.mark.long

HIDE = """(is) => {
  Object.defineProperty(document, "hidden", { get: () => is, configurable: true });
  document.dispatchEvent(new Event("visibilitychange"));
}"""


def test_every_tab_follows_a_run_until_it_ends(page, console: str, cloud: Cloud):
    gate, end = Gate(cloud), Gate(cloud)
    script = f"echo loss=2; {gate.wait}; echo loss=1"
    arguments = training(script)
    metric = {"Name": "loss", "Regex": r"loss=(\d)"}
    arguments["AlgorithmSpecification"]["MetricDefinitions"] = [metric]
    steps = [
        train_step("Train", script, arguments=arguments),
        process_step("Slow", end.wait, depends_on=("Train",)),
    ]
    cloud.create("watched", steps)
    run = cloud.start("watched")
    address = f"{console.partition('/?')[0]}/runs/watched/{run.rpartition('/')[2]}"
    trained, hidden = page.context.new_page(), page.context.new_page()
    for tab, path in ((page, address), (trained, f"{address}/Train"), (hidden, address)):
        tab.goto(path)
    hidden.evaluate(HIDE, True)
    page.locator("#steps td.Executing").wait_for()
    page.evaluate("document.body.mark = 'the same page'")
    trained.get_by_text("last 2").first.wait_for()
    gate.open()
    trained.get_by_text("last 1").first.wait_for()
    page.locator("#steps tr", has_text="Train").locator("td.Succeeded").wait_for()
    assert hidden.locator("#steps td.Succeeded").count() == 0, "nobody looks at it"
    hidden.evaluate(HIDE, False)
    hidden.locator("#steps td.Succeeded").wait_for()
    end.open()
    page.locator("#head strong.Succeeded").wait_for()
    assert page.evaluate("document.body.mark") == "the same page"
    until(lambda: page.evaluate("document.body.dataset.poll") == "")  # nothing more will come
    assert faults(page) == faults(trained) == []


def test_a_page_that_has_not_changed_is_not_sent_again(client, cloud: Cloud):
    gate = Gate(cloud)
    cloud.create("going", [process_step("Slow", gate.wait)])
    arn = cloud.start("going")
    step = f"/runs/going/{arn.rpartition('/')[2]}/Slow"
    until(lambda: "still runs" in client.get(step).text)
    known = {"If-None-Match": client.get(step).headers["ETag"]}
    until(lambda: client.get(step, headers=known).status_code == 304)  # although time passes
    gate.open()
    cloud.ended(arn)
    until(lambda: client.get(step, headers=known).status_code == 200)
    until(lambda: "data-poll" not in client.get(step).text)


def test_what_is_read_in_the_background_is_asked_for_again():
    account, go, calls = Account("us-east-1"), threading.Event(), []

    def read() -> str:
        calls.append(go.wait(60))
        return "read"

    with create(account, "key").test_request_context("/"):
        from flask import g

        assert account.later("key", read, "not yet") == "not yet" and g.unfinished
        go.set()
        until(lambda: account.later("key", read, "not yet") == "read")
    assert calls == [True]
    assert Account("us-east-1", patient=True).later("key", read, "not yet") == "read"


def test_what_could_not_be_read_is_read_again():
    account = Account("us-east-1")

    def refused() -> str:
        raise ServiceError("not now")

    with pytest.raises(ServiceError):
        account.read_cached("page", refused, 60)
    assert account.read_cached("page", lambda: "made", 60) == "made"
