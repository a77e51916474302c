"""Pages that browsers ask for again: only what has changed is sent, and swapped."""

import threading

import pytest

from tests.trainyard.emulator.harness import Cloud, Gate, process_step, until
from trainyard.common.errors import ServiceError
from trainyard.console.account_cache import Account
from trainyard.console.web_server import create_console_app

pytestmark = pytest.mark.long


def test_a_page_that_has_not_changed_is_not_sent_again(client, cloud: Cloud):
    gate = Gate(cloud)
    cloud.create("going", [process_step("Slow", gate.wait)])
    arn = cloud.start("going")
    step = f"/runs/going/{arn.rpartition('/')[2]}/Slow"
    until(lambda: "still runs" in client.get(step).text)
    known = {"If-None-Match": client.get(step).headers["ETag"]}
    until(lambda: client.get(step, headers=known).status_code == 304)  # although time passes
    gate.open()
    cloud.wait_for_execution(arn)
    until(lambda: client.get(step, headers=known).status_code == 200)
    until(lambda: "data-poll" not in client.get(step).text)


def test_what_is_read_in_the_background_or_could_not_be_read_is_asked_for_again():
    account, go, calls = Account("us-east-1"), threading.Event(), []

    def read() -> str:
        calls.append(go.wait(60))
        return "read"

    with create_console_app(account, "key").test_request_context("/"):
        from flask import g

        assert account.read_in_background("key", read, "not yet") == "not yet" and g.unfinished
        go.set()
        until(lambda: account.read_in_background("key", read, "not yet") == "read")
    assert calls == [True]
    assert Account("us-east-1", patient=True).read_in_background("key", read, "not yet") == "read"

    def raise_service_error() -> str:
        raise ServiceError("not now")

    with pytest.raises(ServiceError):
        account.read_cached("page", raise_service_error, 60)
    assert account.read_cached("page", lambda: "made", 60) == "made"
