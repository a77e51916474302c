"""Following a run: in every tab, over one connection, without reloading a page."""

import itertools
import threading
import time
from collections import Counter
from dataclasses import dataclass
from functools import partial

import pytest
from flask import Blueprint, Flask

from benchmarks.console.__main__ import WATCH
from benchmarks.console.processes import Visitor
from tests.trainyard.console.looking import faults
from tests.trainyard.emulator.harness import Cloud, Gate, process_step, train_step, training
from trainyard.console import live_pages
from trainyard.console.account_cache import Account
from trainyard.console.web_server import serving

TABS = 8  # with one more they are more than the connections that a browser opens to a server

COME = """(names) => new Promise((done) => {
  const look = () => names.every((one) => one in seen) ? done() : setTimeout(look, 50);
  look();
})"""
"""Script that waits until the page has shown all texts: its Content-Security-Policy prevents
playwright's own ``wait_for_function``."""

HIDE = """(is) => {
  Object.defineProperty(document, "hidden", { get: () => is, configurable: true });
  document.dispatchEvent(new Event("visibilitychange"));
}"""


@dataclass
class Run:
    """A run whose training waits for a file between two values of its metric."""

    arn: str
    gate: Gate

    @property
    def path(self) -> str:
        return f"/runs/watched/{self.arn.rpartition('/')[2]}"


@pytest.fixture(scope="module")
def run(cloud: Cloud) -> Run:
    """A run whose last step continues until it is stopped."""
    gate = Gate(cloud)
    script = f"echo loss=2; {gate.wait}; echo loss=1"
    arguments = training(script)
    metric = {"Name": "loss", "Regex": r"loss=(\d)"}
    arguments["AlgorithmSpecification"]["MetricDefinitions"] = [metric]
    steps = [
        train_step("Train", script, arguments=arguments),
        process_step("Slow", "sleep 600", depends_on=("Train",)),
    ]
    cloud.create("watched", steps)
    return Run(cloud.start("watched"), gate)


@pytest.mark.sweep
def test_every_tab_follows_a_run(page, console: str, cloud: Cloud, run: Run):
    root = console.partition("/?")[0]
    tabs = [page, *(page.context.new_page() for _ in range(TABS - 1))]
    for tab in tabs:
        tab.goto(f"{root}{run.path}")
        tab.wait_for_selector("td.Executing")
        tab.evaluate(WATCH)
    training = page.context.new_page()
    training.goto(f"{root}{run.path}/Train")
    training.evaluate(WATCH)
    training.evaluate(COME, ["loss 1"])
    training.evaluate(HIDE, True)
    training.evaluate(HIDE, False)  # it is seen again, and follows as before
    run.gate.open()
    training.evaluate(COME, ["loss 2"])
    for tab in tabs:
        tab.evaluate(COME, ["Train Succeeded", "Slow Executing"])
    cloud.sm.stop_pipeline_execution(PipelineExecutionArn=run.arn, ClientRequestToken="t" * 32)
    for tab in tabs:
        tab.wait_for_selector("td.Stopped")
        assert _order(tab)[:2] == ["Train Executing", "Train Succeeded"]  # of one and the same page
    assert _order(training)[-2:] == ["loss 1", "loss 2"]
    assert faults(page) == faults(training) == []


def _order(tab) -> list[str]:
    """Return texts in the order in which the page itself recorded them."""
    return tab.evaluate("Object.keys(seen).sort((a, b) => seen[a] - seen[b])")


def test_a_page_that_nobody_sees_is_looked_at_rarely(monkeypatch):
    looks: Counter[str] = Counter()
    blueprint = Blueprint("counted", __name__)

    def stamp(name: str) -> int:
        looks[name] += 1
        return looks[name]

    @live_pages.page(blueprint, "/counted/<name>", template="", stamp=stamp)
    def fragments(name: str) -> live_pages.Fragments:
        return {"count": str(looks[name])}

    app = Flask(__name__)
    app.register_blueprint(blueprint)
    monkeypatch.setattr(live_pages, "UNSEEN", 3_600.0)
    hub = live_pages.Hub(app, 0.01)
    stream = hub.stream("browser")
    next(stream)
    hub.follow("browser", {"/counted/seen": True, "/counted/hidden": "hidden"})
    _until(lambda: looks["seen"] >= 5)
    assert looks["hidden"] == 1
    hub.follow("browser", {"/counted/hidden": True, "/counted/seen": "hidden"})
    _until(lambda: looks["hidden"] >= 5)
    stream.close()


def test_what_a_page_has_of_what_grows_is_not_made_again():
    made: Counter[int] = Counter()
    stamps = itertools.count(1)
    blueprint = Blueprint("grown", __name__)

    def make(number: int) -> str:
        made[number] += 1
        return str(number)

    @live_pages.page(blueprint, "/grown", template="", stamp=lambda: next(stamps))
    def fragments() -> live_pages.Fragments:
        items = [(number, partial(make, number)) for number in range(1, len(made) + 2)]
        return {"lines": live_pages.Growing("epoch", items)}

    app = Flask(__name__)
    app.register_blueprint(blueprint)
    hub = live_pages.Hub(app, 0.01)
    stream = hub.stream("browser")
    next(stream)
    hub.follow("browser", {"/grown": True})
    _until(lambda: len(made) >= 5)
    hub.close()
    assert set(made.values()) == {1}
    stream.close()


def test_a_console_that_ends_follows_nothing_any_more(cloud: Cloud):
    """A browser still has a page open, and listens."""
    others = {*threading.enumerate()}
    with serving(Account(), "key") as address:
        visitor = Visitor(address)
        stream = visitor.stream("/events/browser")
        next(stream)
        visitor.post("/events/browser", b'{"/runs": true}')
        _until(lambda: next(stream).startswith(b"data:"))
        assert _following(others)
    _until(lambda: not _following(others))
    list(stream)  # it has an end


def _following(others: set[threading.Thread]) -> list[threading.Thread]:
    """Return threads that follow pages, except for ``others``."""
    return [one for one in threading.enumerate() if one not in others and one.name == "following"]


def _until(is_so) -> None:
    while not is_so():  # pytest's own time limit ends it
        time.sleep(0.01)
