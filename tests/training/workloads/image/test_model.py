"""The residual network."""

import pytest
import torch

from tests.training.workloads.image.pictures import CONFIG
from training.workloads.image.config import ImageConfig
from training.workloads.image.workload import ResNet


@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16, torch.float16])
def test_what_is_behind_frozen_weights_has_the_gradients_that_it_had(kind: torch.dtype):
    torch.manual_seed(0)
    model = ResNet(ImageConfig(**CONFIG), classes=3)
    pixels = torch.randint(0, 256, (2, 16, 16, 3), dtype=torch.uint8)

    def gradients() -> dict[str, torch.Tensor]:
        model.zero_grad()
        with torch.autocast("cpu", kind, enabled=kind != torch.float32):
            model(pixels).float().square().sum().backward()
        found = {name: one.grad for name, one in model.named_parameters()}
        return {name: one.clone() for name, one in found.items() if one is not None}

    before = gradients()
    model.stem.requires_grad_(False)  # torch's own GroupNorm ends the process here
    after = gradients()
    assert {*before} - {*after} == {"stem.weight"}
    for name, one in after.items():
        torch.testing.assert_close(one, before[name], rtol=0.05, atol=0.05 * one.abs().max().item())
