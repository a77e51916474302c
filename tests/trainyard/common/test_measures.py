"""Names as Prometheus wants them, and a text that says what the samples are."""

import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from training.watching.metric_line import NAMES
from trainyard.common.measures import ALL, OF_SERVICE, TRAINING, Sample, render_metrics


def test_names_have_one_prefix_base_units_and_total_where_they_count():
    assert len({measure.name for measure in ALL}) == len(ALL)
    for measure in ALL:
        assert re.fullmatch(r"trainyard_[a-z_]+", measure.name)
        assert measure.name.endswith("_total") == (measure.kind == "counter")
        assert not re.search("_(mb|ms|milliseconds|minutes|percent)$", measure.name)


def test_no_label_has_a_value_for_each_execution_or_job():
    labels = {label for measure in ALL for label in measure.dimensions.values()}
    labels |= {name for measure in ALL for source in measure.sources for name in source.labels}
    assert labels == {"pipeline", "step", "endpoint", "variant", "outcome", "class", "part", "rule"}


def test_all_that_a_training_logs_is_in_the_list_under_sagemakers_name():
    listed = {s.name for m in ALL for s in m.sources if s.namespace == TRAINING}
    assert listed == NAMES.keys()
    assert render_metrics([(measure, []) for measure in ALL]) == ""


@given(st.text(), st.floats())
def test_what_is_written_is_read_again(label, value):
    measure = OF_SERVICE[0]
    written = render_metrics([(measure, [Sample({"pipeline": label}, value)])])
    line = written.split("\n", 2)[2].removesuffix("\n")
    match = re.fullmatch(r'trainyard_executions_total\{pipeline="(.*)"\} (\S+)', line, re.DOTALL)
    assert match and "\n" not in match[1]
    plain = re.sub(r"\\(.)", lambda m: {"n": "\n"}.get(m[1], m[1]), match[1])
    assert plain == label
    assert float(match[2]) == pytest.approx(value, nan_ok=True) or math.isinf(value)
