"""Numbers that packages come with."""

import io
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pytest

from trainyard.runs.run_values import read_report_numbers

WRITTEN = datetime(2026, 11, 23, 10, tzinfo=UTC)


@pytest.mark.parametrize(
    ("registered", "found"),
    [
        (None, {"mse": 1.5}),
        (WRITTEN - timedelta(seconds=1), {"mse": 1.5}),
        (WRITTEN - timedelta(minutes=1), {}),
        (WRITTEN + timedelta(minutes=1), {"mse": 1.5}),
    ],
)
def test_a_report_that_was_written_again_is_another_versions(registered, found):
    text = b'{"regression_metrics": {"mse": {"value": 1.5}}}'
    answer = {"LastModified": WRITTEN, "ContentLength": len(text)}
    s3 = SimpleNamespace(get_object=lambda **where: {**answer, "Body": io.BytesIO(text)})
    assert read_report_numbers(s3, "s3://b/evaluation.json", registered) == found
