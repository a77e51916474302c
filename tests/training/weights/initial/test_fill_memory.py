"""Memory allocation for a model on meta."""

import torch
from torch import nn

from training.weights.initial.build_model import build_on_meta, real
from training.weights.initial.initial_values import named_tensors


class Odd(nn.Module):
    """A model with tied, frozen and listed weights, and buffers that are saved or not."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(3, 5), nn.Linear(3, 5)
        self.second.weight = self.first.weight
        self.first.bias.requires_grad_(False)
        self.norm, self.listed = nn.BatchNorm1d(5), [self.first.weight]
        self.memory = nn.LSTM(5, 5)
        self.register_buffer("table", torch.arange(4.0), persistent=False)


def test_ties_objects_and_tables_are_there_afterwards():
    model = build_on_meta(Odd, 0)
    assert all(tensor.is_meta for tensor in named_tensors(model).values())
    weight = model.first.weight
    real(model)
    assert not any(tensor.is_meta for tensor in named_tensors(model).values())
    assert model.second.weight is model.first.weight is model.listed[0] is weight
    assert not model.first.bias.requires_grad and model.second.bias.requires_grad
    assert model.table.tolist() == [0, 1, 2, 3] and model.norm.running_var.eq(1).all()
    assert model.memory(torch.ones(2, 1, 5))[0].isfinite().all()
