"""The pytest plugin that replaces ``moto.mock_aws`` by a fresh emulator.

It must be loaded before a test module imports moto: ``-p benchmarks.moto_tests.plugin``. It adds a
line with the outcome of each test to the file that ``MOTO_TESTS_RESULTS`` names.
"""

import json
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import boto3
import moto
import pytest

from trainyard.emulator.client_environment import apply_environment
from trainyard.emulator.server import serve_emulator

RESULTS = "MOTO_TESTS_RESULTS"
_REFUSALS = {"NotImplemented", "UnknownOperationException", "InvalidAction"}
_NAMED = re.compile(
    "emulator|(runs?|implemented|supported|told|reported|evaluated) here", re.IGNORECASE
)
_TEXT = re.compile(r"Message|match=|str\(|\.value|\bmsg\b", re.IGNORECASE)
_refused = pytest.StashKey[list[str]]()


class _Nothing:
    """Replacement of mock_aws's result that does nothing, because the endpoint exists already."""

    def __call__(self, decorated: Any) -> Any:
        return decorated

    def __enter__(self) -> "_Nothing":
        return self

    def __exit__(self, *exception: object) -> None:
        pass

    def start(self, reset: bool = True) -> None:
        pass

    stop = start


def _mock_aws(decorated: Any = None, config: Any = None) -> Any:
    return _Nothing() if decorated is None else decorated


moto.mock_aws = _mock_aws


@pytest.fixture(autouse=True)
def _emulator(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[None]:
    """Serve an emulator for each test, in the environment and as boto3's default session."""
    with (
        serve_emulator(tmp_path_factory.mktemp("aws")) as endpoint,
        apply_environment(endpoint.env),
    ):
        boto3.setup_default_session()
        seen = request.node.stash[_refused] = []
        boto3.DEFAULT_SESSION.events.register("after-call.*.*", _make_refusal_recorder(seen))
        yield
        boto3.DEFAULT_SESSION = None


def _make_refusal_recorder(seen: list[str]) -> Callable[..., None]:
    """Return a handler of boto3's events that adds refused operations to ``seen``."""

    def watch(parsed: dict, model: Any, **_: Any) -> None:
        error = parsed.get("Error", {})
        if error.get("Code") in _REFUSALS or _NAMED.search(str(error.get("Message", ""))):
            seen.append(f"{model.name}: {error['Message']}")

    return watch


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo) -> Iterator[None]:
    report = yield
    if report.when == "call" or (report.when == "setup" and not report.passed):
        outcome, why = _judge_outcome(item, call, report.outcome)
        line = {"test": item.nodeid, "outcome": outcome, "why": why}
        with Path(os.environ[RESULTS]).open("a") as file:
            file.write(json.dumps(line) + "\n")
    return report


def _judge_outcome(item: pytest.Item, call: pytest.CallInfo, outcome: str) -> tuple[str, str]:
    """Return the outcome and its reason; ``refused``: by name, ``text``: a message differs."""
    if call.excinfo is None:
        return "passed", ""
    why = " ".join(str(call.excinfo.value).split())[:300]
    if outcome == "skipped":
        return "skipped", why
    if refused := item.stash.get(_refused, []):
        return "refused", refused[-1][:300]
    last = call.excinfo.traceback[-1]
    if call.excinfo.errisinstance(AssertionError) and _TEXT.search(str(last.statement)):
        return "text", why
    return "wrong", f"{call.excinfo.typename}: {why}"
