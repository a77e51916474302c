"""Every page of the console, with each optional member of AWS's that it reads absent once."""

import pytest

from tests.trainyard.console.test_absent import sweep

pytestmark = pytest.mark.long


@pytest.mark.slow
@pytest.mark.parametrize("status", ["Failed", "Executing", "Succeeded", "Stopped"])
def test_whatever_a_page_reads_may_be_absent(status: str) -> None:
    assert sweep(status) == {}
