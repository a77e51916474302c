"""The benchmarks' own tests run at night: they guard figures, not what users run."""

import pytest

DAILY = ("test_console_absent",)
"""What guards more than a benchmark: what make test skips by name."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "tests/benchmarks/" in str(item.path) and item.path.stem not in DAILY:
            item.add_marker(pytest.mark.sweep)
