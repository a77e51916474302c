"""Settings of the loop: settings that cannot work are refused before anything runs."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steps.train.job import parse_arguments, read_config
from training.config import TrainConfig
from training.optimizers import SCHEDULES, compute_learning_rate
from trainyard.common.errors import TrainingError

GIVEN = {"max_steps": "10", "global_batch": "8", "micro_batch": "4", "learning_rate": "0.01"}


def from_arguments(**fields: str | None) -> TrainConfig:
    named = {name: value for name, value in (GIVEN | fields).items() if value is not None}
    arguments = [part for name, value in named.items() for part in (f"--{name}", value)]
    return read_config(parse_arguments(["--workload", "w", *arguments]))


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
        ({"precision": "fp8"}, "is 'fp8'; .*'float64', 'float32', 'bfloat16' or 'float16'"),
        ({"micro_batch": "3"}, "^hyperparameters: global_batch 8 is not a multiple of micro_batch"),
        ({"learning_rate": None}, "learning_rate: is missing; add --learning_rate"),
    ],
)
def test_a_wrong_hyperparameter_is_named_with_its_value(fields, expected):
    with pytest.raises(TrainingError, match=expected):
        from_arguments(**fields)


def test_an_impossible_batch_is_refused_with_the_arithmetic():
    config = from_arguments(global_batch="48", micro_batch="8")
    assert [config.count_micro_batches(world) for world in (1, 2, 3, 6)] == [6, 3, 2, 1]
    with pytest.raises(ValueError, match=re.escape("8 × 4 = 32 does not divide it")):
        config.count_micro_batches(4)


FSDP, TENSOR = {"strategy": "fsdp"}, {"tensor_parallel": "2"}


@pytest.mark.parametrize(
    ("fields", "world", "expected"),
    [
        ({"strategy": "single"}, 2, "strategy single cannot use 2 ranks; set train.loop.strategy"),
        (TENSOR, 3, "3 ranks cannot be shared by tensor_parallel 2 × pipeline"),
        (TENSOR | {"context_parallel": "2"}, 6,
         "tensor_parallel 2 × context_parallel 2 × pipeline_parallel 1 = 4: choose a multiple"),
        (FSDP | {"shard_degree": "3"}, 4,
         r"shard_degree 3 does not divide the 4 data-parallel ranks \(4 ranks / 1\)"),
        (FSDP | {"reshard_after_forward": "4"}, 4,
         "reshard_after_forward 4: weights are sharded over 4 ranks; choose a divisor"),
        ({"pipeline_parallel": "4", "micro_batch": "2"}, 8,
         r"4 ranks need at least as many .* 8 / \(micro_batch 2 × 2 data.*\) = 2: lower"),
        ({"pipeline_parallel": "8"}, 12, "12 ranks cannot be .*pipeline_parallel 8 = 8: choose"),
    ],
)  # fmt: skip
def test_an_impossible_world_is_refused_with_the_arithmetic(fields, world, expected):
    with pytest.raises(ValueError, match=expected):
        from_arguments(**fields).count_micro_batches(world)


DEEPSPEED, SMP = {"strategy": "deepspeed"}, {"strategy": "smp"}
FLOAT8 = FSDP | {"float8": "tensorwise", "float8_all_gather": "true"}


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        (DEEPSPEED | TENSOR, "set strategy to ddp or fsdp"),
        ({"strategy": "single", "context_parallel": "2"}, "set strategy to ddp or fsdp"),
        ({"strategy": "ddp", "shard_degree": "2"}, "2 is for strategies fsdp and smp, not ddp"),
        ({"cpu_offload": "true"}, "cpu_offload True is for strategy fsdp, not ddp; .* at False"),
        (FSDP | TENSOR | {"reshard_after_forward": "2"}, "fewer ranks"),
        (TENSOR | {"activation_checkpointing": "selective", "compile": "true"},
         "selective cannot be combined with compile under tensor_parallel 2"),
        (DEEPSPEED | {"optimizer": "lamb"}, "lamb cannot be used with .*deepspeed"),
        (SMP | {"optimizer": "lamb"}, "lamb cannot be used with strategy smp"),
        (DEEPSPEED | {"precision": "float64"}, "precision float64 cannot be used"),
        (DEEPSPEED | {"precision": "float16"}, "float16 cannot .* own loss scaling"),
        (SMP | {"precision": "float16"}, "float16 cannot .* machines have bfloat16"),
        (FSDP | {"precision": "float16", "param_dtype": "bfloat16"},
         "param_dtype bfloat16 does not go with precision float16"),
        (SMP | {"ema_decay": "0.9"}, "ema_decay 0.9 cannot .* strategy smp, which"),
        (DEEPSPEED | {"zero_stage": "3", "ema_decay": "0.9"}, "deepspeed zero_stage 3"),
        (SMP | {"float8": "rowwise"}, "strategy smp; set strategy to single or ddp"),
        ({"precision": "float64", "float8": "rowwise"}, "precision float64; .* to bfloat16"),
        (FLOAT8 | {"float8": "none"}, "tensorwise, but float8 is none"),
        (FLOAT8 | {"float8": "rowwise"}, "tensorwise, but float8 is rowwise"),
        (FLOAT8 | {"strategy": "ddp"}, "for strategy fsdp, not ddp"),
        (FLOAT8 | {"cpu_offload": "true"}, "cpu_offload keeps them on the host"),
        (FLOAT8 | {"reshard_after_forward": "2"}, "reshard_after_forward 2 cannot be combined"),
    ],
)  # fmt: skip
def test_settings_that_exclude_each_other(fields, expected):
    with pytest.raises(TrainingError, match=f"hyperparameters: .*{expected}"):
        from_arguments(**fields)


def test_the_worked_example_of_the_sagemaker_documentation():
    """From "SageMaker's Distributed Model Parallel", Introduction: 2-way data × 4-way model
    parallel on 8 GPUs, a global batch of 64 images.
    """
    config = from_arguments(pipeline_parallel="4", global_batch="64", micro_batch="8")
    assert config.count_data_parallel_ranks(world=8) == 2
    assert config.count_micro_batches(world=8) * config.micro_batch == 32


def test_ranks_that_share_sequences_take_the_same_samples():
    config = from_arguments(strategy="fsdp", context_parallel="4", tensor_parallel="2")
    assert [config.count_data_parallel_ranks(world) for world in (8, 16, 64)] == [1, 2, 8]
    assert config.count_micro_batches(16) == 8 // (4 * 2)


@given(
    steps=st.integers(1, 2000),
    left=st.integers(-2, 40),
    peak=st.floats(1e-6, 1.0),
    ratio=st.floats(0, 1),
    share=st.floats(1e-9, 1),
    schedule=st.sampled_from([*SCHEDULES]),
)
def test_the_rate_rises_to_its_peak_and_ends_at_its_floor(
    steps, left, peak, ratio, share, schedule
):
    """Also with a warm-up up to the last step, or beyond it, and a decay of one step."""
    warmup = max(0, steps - left if left < 20 else steps * left // 40)
    config = TrainConfig.model_construct(
        max_steps=steps, global_batch=1, learning_rate=peak, warmup_steps=warmup,
        min_learning_rate_ratio=ratio, schedule=schedule, decay_share=share, reference_batch=0,
    )  # fmt: skip
    rates = [compute_learning_rate(config, step) for step in range(steps)]
    assert rates[-1] == peak * ratio
    if steps == 1:
        return
    assert max(rates) == peak
    top = rates.index(peak)
    assert top == max(0, min(warmup, steps - 1) - 1)
    assert rates[0] == pytest.approx(peak / (top + 1))
    assert rates[: top + 1] == sorted(rates[: top + 1])
    assert rates[top:] == sorted(rates[top:], reverse=True)
    falling = rates[max(warmup, 0) :]
    if schedule == "cosine" and len(falling) > 1:
        middle = falling[(len(falling) - 1) // 2] + falling[len(falling) // 2]
        assert middle == pytest.approx(peak * (1 + ratio))  # a cosine is symmetric


@given(percent=st.integers(1, 100), hundreds=st.integers(1, 20))
def test_the_rate_falls_over_the_share_of_the_steps_that_is_asked_for(percent, hundreds):
    """Of 0.07 × 100 steps too: in binary that is a little more than 7."""
    steps = 100 * hundreds
    config = from_arguments(max_steps=str(steps), schedule="wsd", decay_share=str(percent / 100))
    found = [compute_learning_rate(config, step) for step in range(steps)]
    decay = percent * hundreds  # of several steps, the first is still at the peak
    assert found.count(max(found)) == steps - max(1, decay - 1)


def rates(**fields) -> list[float]:
    config = from_arguments(max_steps="100", **fields)
    return [compute_learning_rate(config, step) for step in range(100)]


def test_wsd_is_constant_until_it_falls_linearly():
    found = rates(schedule="wsd", decay_share="0.2", warmup_steps="10", learning_rate="1")
    assert found[9:81] == [1.0] * 72
    assert found[80:] == pytest.approx([1 - 0.9 * n / 19 for n in range(20)])


def test_the_linear_scaling_rule():
    assert rates(reference_batch="2") == pytest.approx([4 * rate for rate in rates()])
