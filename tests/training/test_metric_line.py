"""The metric line, read back with the expressions that the definition carries."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from training.metrics import METRICS, NAMES, metric_line

numbers = st.floats(allow_nan=False, allow_infinity=False) | st.integers(0, 10**9)


@given(st.dictionaries(st.sampled_from(sorted(NAMES.values())), numbers))
def test_every_expression_reads_its_own_number_and_no_other(metrics):
    line = metric_line(metrics)
    for name, pattern in METRICS:
        match = re.search(pattern, line)
        key = NAMES[name]
        assert (match is not None) == (key in metrics)
        if match:
            assert float(match[1]) == pytest.approx(metrics[key], rel=1e-5, abs=1e-300)


def test_the_line_that_is_documented():
    line = metric_line({"step": 120, "loss": 2.3456, "learning_rate": 3e-5})
    assert line == "step=120 loss=2.3456 learning_rate=3e-05"


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_what_is_not_finite_is_no_metric(value):
    line = metric_line({"loss": value})
    assert not any(re.search(pattern, line) for _, pattern in METRICS)
