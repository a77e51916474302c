"""A console over this module's emulator, and a real browser that opens it."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.trainyard.emulator.harness import PATIENCE, Cloud
from trainyard.console.account_cache import Account
from trainyard.console.web_server import create_console_app, serve_console
from trainyard.emulator.client_environment import apply_environment

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
FLAGS = """
--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking
--disable-component-update --disable-sync
""".split()


@pytest.fixture(scope="module")
def cloud(emulator, state: Path) -> Iterator[Cloud]:
    """The module's emulator, with an empty account; this process uses it as AWS."""
    with apply_environment(emulator.env):
        yield Cloud(emulator, state)


@pytest.fixture(scope="module")
def console(cloud: Cloud) -> Iterator[str]:
    """Address, with its key, of a console that shows the module's emulator."""
    with serve_console(Account(may_write=True), "the-key") as address:
        yield address


@pytest.fixture
def client(cloud: Cloud):
    """Flask's client of such a console, without a server or a browser in between."""
    app = create_console_app(Account(may_write=True), "key")
    asking = app.test_client()
    asking.get("/?key=key")
    return asking


@pytest.fixture(scope="session")
def chromium():
    """Debian's chromium under playwright; tests that need it are skipped if it is missing."""
    if CHROMIUM is None:
        pytest.skip("no chromium here: apt install chromium")
    from playwright.sync_api import expect, sync_playwright

    expect.set_options(timeout=PATIENCE * 1000)

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture
def page(chromium, console: str):
    """A tab that has the key and shows the list of runs.

    Errors in its console or on a page are errors of the test.
    """
    context = chromium.new_context(viewport={"width": 1280, "height": 900})
    tab, complaints = context.new_page(), []
    tab.set_default_timeout(PATIENCE * 1000)
    tab.on("console", lambda said: said.type == "error" and complaints.append(said.text))
    tab.on("pageerror", lambda error: complaints.append(str(error)))
    tab.goto(console)
    yield tab
    context.close()
    assert not complaints
