"""Tests that a job reads the settings that its step writes, whatever they are."""

import argparse

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.advice.training_setting import derive_job_training
from steps.evaluate.config import EvaluateConfig
from steps.evaluate.settings import EvaluateSettings
from steps.job_arguments import format_arguments, parse_typed_arguments, read_typed_settings
from steps.shard.config import ShardConfig
from steps.shard.settings import ShardSettings
from steps.train.job import _read_session_fields, parse_arguments
from steps.workload_settings import PREFIX, overlay_settings, separate_settings
from trainyard.common.errors import ForesightError

columns = st.lists(st.from_regex(r"[a-z][a-z_]{0,8}", fullmatch=True), max_size=3).map(tuple)
shards = st.builds(
    ShardConfig,
    key=st.none() | st.just("day"),
    validation_share=st.floats(0.01, 0.3),
    shard_mb=st.floats(0.5, 4096),
    processes=st.none() | st.integers(1, 64),
    unique=st.none() | columns,
    by_folder=st.booleans(),
)
evaluations = st.builds(EvaluateConfig, baseline_units=st.integers(1), slices=columns)


@given(st.one_of(shards, evaluations))
def test_settings_survive_the_command_line(config):
    kind = ShardSettings if isinstance(config, ShardConfig) else EvaluateSettings
    told = format_arguments(config, kind)
    options = parse_typed_arguments(argparse.ArgumentParser(), told, kind)
    assert read_typed_settings(options, kind) == kind(
        **{n: getattr(config, n) for n in kind.model_fields}
    )


def test_a_wrong_setting_is_named_with_its_value(capsys):
    for told, expected in (
        (["--max_bad_share", "2"], "argument max_bad_share: is '2'; expected: "),
        (["--validation_share", "0.4", "--test_share", "0.4"], "arguments: validation_share 0.4"),
    ):
        with pytest.raises(SystemExit):
            parse_typed_arguments(argparse.ArgumentParser(), told, ShardSettings)
        assert expected in capsys.readouterr().err


# the workload's settings among a training's hyperparameters


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
    assert overlay_settings(before, found) == before | others


def test_the_job_reads_them_over_the_workloads_own():
    loop = ["--max_steps", "1", "--global_batch", "1", "--micro_batch", "1", "--learning_rate", "1"]
    own = ["--workload", "image", "--workload_config", '{"width": 16, "stem": "small", "flip": 0}']
    more = [f"--{PREFIX}width", "32", f"--{PREFIX}stem", "large", "--seed", "3"]
    asked = _read_session_fields(parse_arguments([*loop, *own, *more]))
    assert asked["settings"] == {"width": 32, "stem": "large", "flip": 0}
    assert overlay_settings({"rate": 0.5}, {f"{PREFIX}rate": "1e-05"}) == {"rate": 1e-05}
    assert asked["config"].seed == 3


def test_settings_that_are_not_json_are_an_error_of_ours_beside_a_searched_one():
    given = {"workload": "image", "workload_config": "{", f"{PREFIX}width": "32"}
    with pytest.raises(ForesightError, match="workload_config: is not JSON"):
        derive_job_training(given, "ml.m5.large", 1)
