"""The pytest plugin with the changes of ``changes.yaml``.

``SDK_TESTS_FIXTURES`` names a JSON file with fixtures' values, ``SDK_TESTS_IDLE`` a file that is
there while nothing runs in the emulator.
"""

import json
import os
import time

import pytest

with open(os.environ["SDK_TESTS_FIXTURES"]) as file:
    VALUES = json.load(file)
IDLE = os.environ.get("SDK_TESTS_IDLE", "")
_sleep = time.sleep


@pytest.hookimpl(tryfirst=True)
def pytest_fixture_setup(fixturedef, request):
    """Return the value here of a fixture for something that only AWS's accounts have."""
    if fixturedef.argname not in VALUES:
        return None
    value = VALUES[fixturedef.argname]
    fixturedef.cached_result = (value, fixturedef.cache_key(request), None)
    return value


def sleep(seconds):
    """Sleep, but end a sleep of minutes between two polls as soon as nothing runs any more."""
    end = time.monotonic() + seconds
    shortest = time.monotonic() + 1.5  # what was started just now may not run yet
    while (left := end - time.monotonic()) > 0:
        if seconds >= 5 and time.monotonic() > shortest and os.path.exists(IDLE):
            return
        _sleep(min(left, 0.25) if seconds >= 5 else left)


if IDLE:
    time.sleep = sleep
