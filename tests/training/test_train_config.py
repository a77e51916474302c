"""Settings of the loop: what cannot work is refused before anything runs."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from errors import TrainingError
from steps.train.job import parse, read_config
from training.config import TrainConfig
from training.loop import check_batches, learning_rate

GIVEN = {"max_steps": "10", "global_batch": "8", "micro_batch": "4", "learning_rate": "0.01"}


def from_arguments(**fields: str | None) -> TrainConfig:
    named = {name: value for name, value in (GIVEN | fields).items() if value is not None}
    arguments = [part for name, value in named.items() for part in (f"--{name}", value)]
    return read_config(parse(["--workload", "w", *arguments]))


def test_hyperparameters_are_strings_and_become_typed():
    config = from_arguments(precision="float32", seed="7")
    assert (config.max_steps, config.learning_rate, config.seed) == (10, 0.01, 7)
    every = {name: str(value) for name, value in config.model_dump(mode="json").items()}
    assert from_arguments(**every) == config


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"max_steps": "ten"}, "hyperparameter max_steps: is 'ten'; .*integer"),
        ({"max_steps": "0"}, "hyperparameter max_steps: is '0'; .*greater than or equal to 1"),
        ({"learning_rate": "nan"}, "hyperparameter learning_rate: is 'nan'; .*finite"),
        ({"precision": "fp8"}, "hyperparameter precision: is 'fp8'; .*'float32' or 'bfloat16'"),
        ({"micro_batch": "3"}, "^hyperparameters: global_batch 8 is no multiple of micro_batch 3"),
        ({"learning_rate": None}, "hyperparameter learning_rate: is missing; add --learning_rate"),
    ],
)
def test_a_wrong_hyperparameter_is_named_with_its_value(fields, expected):
    with pytest.raises(TrainingError, match=expected):
        from_arguments(**fields)


def test_an_impossible_batch_is_refused_with_the_arithmetic():
    config = from_arguments(global_batch="48", micro_batch="8")
    for world in (1, 2, 3, 6):
        check_batches(config, world)
    with pytest.raises(TrainingError, match=re.escape("8 × 4 = 32 does not divide it")):
        check_batches(config, 4)


@given(
    steps=st.integers(1, 2000),
    warmup=st.integers(0, 2500),
    peak=st.floats(1e-6, 1.0),
    ratio=st.floats(0, 1),
)
def test_the_rate_rises_to_its_peak_and_falls_to_its_floor(steps, warmup, peak, ratio):
    config = TrainConfig(
        max_steps=steps, global_batch=1, micro_batch=1, learning_rate=peak,
        warmup_steps=warmup, min_learning_rate_ratio=ratio,
    )  # fmt: skip
    rates = [learning_rate(config, step) for step in range(steps)]
    assert all(0 <= rate <= peak * (1 + 1e-12) for rate in rates)
    rising, falling = rates[:warmup], rates[warmup:]
    assert rising == sorted(rising)
    assert falling == sorted(falling, reverse=True)
    if rising:
        assert rising[0] == peak * 1 / warmup
    if len(falling) > 1:
        assert falling[0] == pytest.approx(peak)
        assert falling[-1] == pytest.approx(peak * ratio)
        middle = falling[(len(falling) - 1) // 2] + falling[len(falling) // 2]
        assert middle == pytest.approx(peak * (1 + ratio))  # a cosine is symmetric
