"""Tests that a job reads the settings that its step writes, whatever they are."""

import argparse

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steps.evaluate.config import EvaluateConfig
from steps.evaluate.settings import EvaluateSettings
from steps.job_arguments import parse_typed, read, words
from steps.shard.config import ShardConfig
from steps.shard.settings import ShardSettings

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
    told = words(config, kind)
    options = parse_typed(argparse.ArgumentParser(), told, kind)
    assert read(options, kind) == kind(**{n: getattr(config, n) for n in kind.model_fields})


def test_a_wrong_setting_is_named_with_its_value(capsys):
    for told, expected in (
        (["--max_bad_share", "2"], "argument max_bad_share: is '2'; expected: "),
        (["--validation_share", "0.4", "--test_share", "0.4"], "arguments: validation_share 0.4"),
    ):
        with pytest.raises(SystemExit):
            parse_typed(argparse.ArgumentParser(), told, ShardSettings)
        assert expected in capsys.readouterr().err
