"""Answers and results that pages share."""

import threading

import pytest

from tests.trainyard.emulator.harness import until
from trainyard.common.errors import ServiceError
from trainyard.console.account_cache import Account, Beside


def test_what_several_pages_show_is_made_once_for_each_version():
    account, made = Account("us-east-1"), []

    def shared(version: str) -> int:
        return account.shared("page", version, lambda: made.append(version) or len(made), 60)

    assert [shared(version) for version in ("a", "a", "b", "b", "a")] == [1, 1, 2, 2, 3]
    assert made == ["a", "b", "a"]


def test_what_could_not_be_made_is_made_again():
    account = Account("us-east-1")

    def refused() -> str:
        raise ServiceError("not now")

    with pytest.raises(ServiceError):
        account.shared("page", "a", refused, 60)
    assert account.shared("page", "a", lambda: "made", 60) == "made"


def test_no_more_readings_wait_than_may():
    beside, go = Beside(1, most=2), threading.Event()
    for key in "abc":
        assert beside.get(key, 1, go.wait, None) is None
    go.set()
    until(lambda: beside.finished == 2)
    assert beside.get("b", 1, go.wait, None) and beside.get("c", 1, go.wait, None) in (None, True)
    until(lambda: beside.finished == 3)
