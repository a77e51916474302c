"""Every page of the console, with optional members of AWS's answers left out."""

import re
import threading
import traceback
from collections.abc import Iterable, Iterator, Set
from concurrent.futures.thread import _threads_queues
from itertools import product
from typing import Any

import pytest
from flask import Flask
from jinja2 import BytecodeCache
from jinja2.bccache import Bucket

from tests.trainyard.console.synthetic import BARE, Service, answering
from trainyard.console.account_cache import Account
from trainyard.console.actions.action import list_actions
from trainyard.console.web_server import create_console_app

pytestmark = pytest.mark.long

RUN = "p/abcdefghijkl"
VALUES: dict[str, Iterable[str]] = {
    "pipeline": ["p"],
    "execution": ["abcdefghijkl"],
    "step": ["S"],
    "group": ["g"],
    "version": ["1"],
    "action": list_actions(),  # filled by the pages' modules
}
"""Values for the variables of pages' addresses, by name."""

ASKED = (
    f"run={RUN}&run=p/mnopqrstuvwx&pipeline=p&execution=abcdefghijkl&step=S&group=g&endpoint=e"
    "&package=arn:aws:sagemaker:us-east-1:123456789012:model-package/g/1&uri=s3://bkt/k/a.json&job=j&token=f/1&name=train:loss&rank="
)
"""Query string for all pages; each uses the parameters that it knows."""

NO_PAGES = ("static", "home", "charts.send_library_file")


class Compiled(BytecodeCache):
    """Templates compiled by one application, for all others of this process."""

    def __init__(self) -> None:
        self._known: dict[str, bytes] = {}

    def load_bytecode(self, bucket: Bucket) -> None:
        if bucket.key in self._known:
            bucket.bytecode_from_string(self._known[bucket.key])

    def dump_bytecode(self, bucket: Bucket) -> None:
        self._known[bucket.key] = bucket.bytecode_to_string()


COMPILED = Compiled()


def console() -> Flask:
    """A console that has not read anything yet."""
    app = create_console_app(Account(may_write=True, patient=True), "key")
    app.jinja_env.bytecode_cache = COMPILED
    app.testing = True
    return app


def request_twice(service: Service, endpoint: str, where: dict[str, str], address: str) -> None:
    """Request the page twice: results of background readings are there the second time."""
    others = set(threading.enumerate())
    app = console()
    client = app.test_client()
    client.get("/?key=key")
    for _ in range(2):
        answer = client.get(address)
        _join(address, others)
        is_told = answer.status_code == 502 and "Parameter validation" not in answer.text
        assert answer.status_code < 500 or (service.absent and is_told), _read_error_text(
            answer.text
        )
        app.extensions["trainyard-account"].clear_cache()


def addresses(app: Flask) -> Iterator[tuple[str, dict[str, str], str]]:
    """Return (endpoint, its arguments, address) of each page, found by its rule."""
    for rule in app.url_map.iter_rules():
        is_page = "GET" in (rule.methods or ()) and rule.endpoint not in NO_PAGES
        if not is_page:
            continue
        assert rule.arguments <= VALUES.keys(), f"{rule}: what may stand for {rule.arguments}?"
        names = sorted(rule.arguments)
        for values in product(*(VALUES[name] for name in names)):
            where = dict(zip(names, values, strict=True))
            built = rule.build(where, append_unknown=False)
            assert built is not None
            yield rule.endpoint, where, f"{built[1]}?{ASKED}"


def _read_error_text(page: str) -> str:
    """Return the text of a page that reports an error."""
    return re.sub(r"\s+", " ", re.sub("<[^>]+>", " ", page.partition("<main")[2]))[:300]


def _join(what: str, others: Set[threading.Thread]) -> None:
    """Wait for a page's readings in the background; their exceptions count as the page's.

    ``others``: threads that existed before the page was requested.
    """
    for thread in set(threading.enumerate()) - others:
        if thread not in _threads_queues:  # which wait for work until the interpreter ends
            thread.join(5)
            assert not thread.is_alive(), f"{what}: {thread.name} goes on"


def fault(service: Service, *page: Any) -> str:
    """Return the exception of the page, or of a thread that it started; empty if there is none."""
    failed: list[BaseException | None] = []
    with answering(service), pytest.MonkeyPatch.context() as patch:
        patch.setattr(threading, "excepthook", lambda told: failed.append(told.exc_value))
        try:
            request_twice(service, *page)
        except Exception as error:  # noqa: BLE001  # whatever it is, it is a fault
            failed.append(error)
    return _describe_error(failed[0]) if failed and failed[0] else ""


def _describe_error(error: BaseException) -> str:
    frames = [f for f in traceback.extract_tb(error.__traceback__) if "synthetic" not in f.filename]
    if "/botocore/" in frames[-1].filename:  # it would raise with AWS's answer, too
        return ""
    at = next(frame for frame in reversed(frames) if "/trainyard/" in frame.filename)
    return f"{type(error).__name__}: {error} at {at.filename[-60:]}:{at.lineno}"[:300]


def sweep(status: str) -> dict[str, list[str]]:
    """Return fault → place, with each member that a page reads left out once."""
    faults: dict[str, list[str]] = {}
    for page in addresses(console()):
        service = Service(status)
        assert not (found := fault(service, *page)), f"{page[2]}: {found}"
        for absent in sorted(service.read):
            if found := fault(Service(status, absent), *page):
                faults.setdefault(found, []).append(f"{page[0]} without {'.'.join(absent)}")
    return faults


@pytest.mark.parametrize("status", ["Failed", "Executing", "Succeeded"])
def test_every_page_renders_a_whole_answer(status: str):
    found = {page[2]: fault(Service(status), *page) for page in addresses(console())}
    assert [one for one in found.items() if one[1]] == [] and len(found) > 15


def test_every_page_renders_where_all_that_may_be_absent_is():
    found = {page[2]: fault(Service(absent=BARE), *page) for page in addresses(console())}
    assert [one for one in found.items() if one[1]] == []
