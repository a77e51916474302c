import pytest
from pydantic import ValidationError

from trainyard.foresight.setting import Setting

LLAMA = {"gpu": "H100-80", "layers": 32, "hidden": 4096}


def test_what_is_left_out_follows_from_the_rest():
    setting = Setting.model_validate(LLAMA | {"gpus": 64, "tensor": 8, "accumulation": 3})
    assert (setting.data_parallel, setting.nodes, setting.tokens) == (8, 8, 8 * 3 * 2048)
    assert Setting(**LLAMA, tensor=2, pipeline=2, data=4).gpus == 16
    assert Setting.model_validate(LLAMA).node_size == 1
    found = Setting.model_validate(LLAMA | {"gpu": "V100"})  # before Ampere
    assert (found.gpu, found.precision) == ("V100-16", "fp16")
    assert Setting.model_validate(LLAMA | {"gpu": "T4", "attention": "flash1"}).precision == "fp16"


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({"gpu": "H100-8"}, "nearest valid name: H100-80"),
        ({"gpus": 8, "tensor": 3}, "expected a multiple of tensor × pipeline × context, 3"),
        ({"gpus": 8, "tensor": 2, "data": 8}, "data 8 × tensor × pipeline × context is 16"),
        ({"layer": 2}, "layer"),
        ({"layers": 4, "gpus": 64, "pipeline": 64}, "is 64 stages: .* each of the 4 layers"),
        ({"layers": 4, "gpus": 4, "pipeline": 4, "interleave": 2}, "is 8 stages"),
        ({"gpu": "V100-16", "precision": "bf16"}, "precision bf16: V100-16 .* use fp16"),
        ({"gpu": "T4", "precision": "fp8"}, "precision fp8: T4 .* use fp16"),
        ({"gpu": "V100-16", "attention": "flash2"}, "attention flash2: does not run on V100-16"),
        ({"gpu": "T4", "attention": "flash2"}, "attention flash2: .* on T4"),
    ],
)
def test_a_setting_that_cannot_be_is_refused(given: dict, error: str):
    with pytest.raises(ValidationError, match=error):
        Setting.model_validate(LLAMA | given)
