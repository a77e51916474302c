"""What tests of pages ask of each."""

from typing import Any


def faults(page: Any) -> list[str]:
    """What axe-core finds serious or critical on the page as it is now."""
    from axe_playwright_python.sync_playwright import Axe

    found = Axe().run(page).response["violations"]
    return [
        f"{one['impact']}: {one['id']}: {node['html']}"
        for one in found
        if one["impact"] in ("serious", "critical")
        for node in one["nodes"]
    ]
