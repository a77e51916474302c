"""What strangers call fields, values and devices."""

import pytest

from trainyard.foresight import field_aliases
from trainyard.foresight.cloud_machines import GPUS
from trainyard.foresight.setting import Setting

MODEL = {"gpu": "H100-80", "layers": 2, "hidden": 256, "lora_rank": 8}


@pytest.mark.parametrize(
    ("called", "name"),
    [
        ("H100", "H100-80"),
        ("H100-80GB", "H100-80"),
        ("NVIDIA H100 80GB HBM3", "H100-80"),
        ("H100 SXM5 80GB", "H100-80"),
        ("NVIDIA A100-SXM4-40GB", "A100-40"),
        ("a100_40gb", "A100-40"),
        ("H200-141GB", "H200"),
        ("L40S 48GB", "L40S"),
        ("rtx 4090", "RTX4090"),
        ("RTX A6000", "A6000"),
        *((name, name) for name in GPUS),
    ],
)
def test_devices(called: str, name: str):
    assert Setting(**{**MODEL, "gpu": called}).gpu == name


@pytest.mark.parametrize(
    ("field", "value", "ours"),
    [
        ("master", "fp32", True),
        ("master", "bf16", False),
        ("master", None, False),
        ("optimizer", "adam", "adamw"),
        ("optimizer", "paged_adamw_8bit", "adamw_8bit"),
        ("shard", "FSDP", "full"),
        ("shard", 3, "full"),
        ("shard", 1, "optimizer"),
        ("recompute", True, "full"),
        ("recompute", False, "none"),
        ("recompute", "SAC", "selective"),
        ("precision", "bfloat16", "bf16"),
        ("quantization", "4bit", "nf4"),
        ("offload", False, "none"),
        ("dropout", True, 0.1),
        ("lora_rank", None, 0),
        ("sequence_parallel", "true", True),
    ],
)
def test_values(field: str, value: object, ours: object):
    assert getattr(Setting(**{**MODEL, field: value}), field) == ours


def test_every_other_word_means_a_value_that_is_valid():
    for field, values in field_aliases.TABLE["values"].items():
        for ours, words in values.items():
            for word in words:
                found = Setting(**{**MODEL, field: word})
                assert getattr(found, field) == getattr(Setting(**{**MODEL, field: ours}), field)


def test_every_other_name_is_a_field():
    assert {*field_aliases.NAMES.values()} <= {*Setting.model_fields}


def test_devices_follow_from_the_degrees():
    assert Setting(**MODEL, tp=2, pipeline=2, data=4).gpus == 16


def test_two_names_for_one_field_are_refused():
    with pytest.raises(ValueError, match="num_layers: another field gives the same value"):
        Setting(**MODEL, num_layers=3)
