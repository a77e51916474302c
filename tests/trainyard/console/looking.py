"""Helpers for tests of pages in a browser.

A click returns when a page starts to load, and followed contents arrive later. Functions that read
at once (``count``, ``all_inner_texts``, ``evaluate``, ``url``) are therefore used after ``goto``,
``visit`` or ``wait_for_url``, which wait for the whole page; followed contents are read by
``expect`` or ``shows``, which repeat the reading.
"""

import time
from collections.abc import Callable
from typing import Any, TypeVar

from tests.trainyard.emulator.harness import PATIENCE

Read = TypeVar("Read")

ROWS = "rows => rows.map(row => [...row.querySelectorAll('th, td')].map(cell => cell.innerText))"
"""Script that returns the texts of all cells of rows at one moment."""


def visit(where: Any, key: str = "") -> None:
    """Click a locator, or press a key on it, and wait for the whole page that it leads to."""
    with where.page.expect_navigation():
        where.press(key) if key else where.click()


def shows(read: Callable[[], Read], wanted: Read) -> None:
    """Wait until reading the page gives the expected value."""
    end = time.monotonic() + PATIENCE
    while (found := read()) != wanted and time.monotonic() < end:
        time.sleep(0.05)
    assert found == wanted


def faults(page: Any) -> list[str]:
    """Return the serious or critical findings of axe-core on the complete page."""
    from axe_playwright_python.sync_playwright import Axe

    page.wait_for_load_state()
    rules = {"label-content-name-mismatch": {"enabled": True}}  # which axe leaves out otherwise
    found = Axe().run(page, options={"rules": rules}).response["violations"]
    return [
        f"{one['impact']}: {one['id']}: {node['html']}"
        for one in found
        if one["impact"] in ("serious", "critical")
        for node in one["nodes"]
    ]
