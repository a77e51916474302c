"""What of a tensor a rank has, and what no checkpoint can hold of it."""

import pytest
import torch

from training.checkpoints.image import part_of
from training.checkpoints.table import Part
from trainyard.common.errors import TrainingError


def test_a_tensor_is_all_of_it():
    part = part_of("w", torch.zeros(2, 3, dtype=torch.bfloat16))
    assert part == Part("BF16", (2, 3), (0, 0), (2, 3))


def test_a_type_that_safetensors_lacks_is_refused():
    with pytest.raises(TrainingError, match="w: safetensors has no type torch.complex64"):
        part_of("w", torch.zeros(2, dtype=torch.complex64))


def test_a_part_that_torch_places_elsewhere_than_it_lies_is_refused():
    """As a DTensor of an older torch, which does not say where its part lies."""

    class Elsewhere(torch.Tensor):
        _local_tensor = torch.zeros(1, 3)

    with pytest.raises(TrainingError, match=r"w: this rank has \[1, 3\] .* says \[4, 3\]; take"):
        part_of("w", torch.zeros(4, 3).as_subclass(Elsewhere))
