"""What tests of pages do and ask on each.

A click returns when a page begins to come, and what a page follows comes when it comes. What reads
at once (``count``, ``all_inner_texts``, ``evaluate``, ``url``) is asked therefore after ``goto``,
``visit`` or ``wait_for_url``, which wait for the whole page, and of what a page follows by
``expect`` or ``shows``, which ask again.
"""

import time
from collections.abc import Callable
from typing import Any, TypeVar

from tests.trainyard.emulator.harness import PATIENCE

Read = TypeVar("Read")

ROWS = "rows => rows.map(row => [...row.querySelectorAll('th, td')].map(cell => cell.innerText))"
"""The texts of all cells of rows, as they are at one moment."""


def visit(where: Any, key: str = "") -> None:
    """Click that locator, or press a key on it, and wait for the whole page that it leads to."""
    with where.page.expect_navigation():
        where.press(key) if key else where.click()


def shows(read: Callable[[], Read], wanted: Read) -> None:
    """Wait until that is read of a page."""
    end = time.monotonic() + PATIENCE
    while (found := read()) != wanted and time.monotonic() < end:
        time.sleep(0.05)
    assert found == wanted


def faults(page: Any) -> list[str]:
    """What axe-core finds serious or critical on the page, when all of it is there."""
    from axe_playwright_python.sync_playwright import Axe

    page.wait_for_load_state()
    found = Axe().run(page).response["violations"]
    return [
        f"{one['impact']}: {one['id']}: {node['html']}"
        for one in found
        if one["impact"] in ("serious", "critical")
        for node in one["nodes"]
    ]
