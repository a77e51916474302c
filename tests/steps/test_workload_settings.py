"""The workload's settings among a training's hyperparameters."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.advice.training_setting import of_job
from steps.train.job import _read_session_fields, parse
from steps.workload_settings import PREFIX, overlaid, separate_settings
from trainyard.common.errors import ForesightError

NAMES = st.from_regex(r"[a-z]+(_[a-z]+)*", fullmatch=True)
VALUES = st.integers() | st.floats(allow_nan=False) | st.booleans() | st.text()


@given(before=st.dictionaries(NAMES, VALUES), data=st.data())
def test_a_value_arrives_with_the_type_of_the_one_it_replaces(before, data):
    """``str`` is how the search and the train step write it."""
    others = {
        name: data.draw(st.text() if isinstance(value, str) else st.from_type(type(value)))
        for name, value in before.items()
        if not isinstance(value, float)
    }
    arguments = ["--seed", "1", "--flag"]
    for name, value in others.items():
        arguments[2:2] = [f"--{PREFIX}{name}", str(value)]
    rest, found = separate_settings(arguments)
    assert rest == ["--seed", "1", "--flag"]
    assert overlaid(before, found) == before | others


def test_the_job_reads_them_over_the_workloads_own():
    loop = ["--max_steps", "1", "--global_batch", "1", "--micro_batch", "1", "--learning_rate", "1"]
    own = ["--workload", "image", "--workload_config", '{"width": 16, "stem": "small", "flip": 0}']
    more = [f"--{PREFIX}width", "32", f"--{PREFIX}stem", "large", "--seed", "3"]
    asked = _read_session_fields(parse([*loop, *own, *more]))
    assert asked["settings"] == {"width": 32, "stem": "large", "flip": 0}
    assert overlaid({"rate": 0.5}, {f"{PREFIX}rate": "1e-05"}) == {"rate": 1e-05}
    assert asked["config"].seed == 3


def test_settings_that_are_not_json_are_an_error_of_ours_beside_a_searched_one():
    given = {"workload": "image", "workload_config": "{", f"{PREFIX}width": "32"}
    with pytest.raises(ForesightError, match="workload_config: is not JSON"):
        of_job(given, "ml.m5.large", 1)
