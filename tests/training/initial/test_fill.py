"""A model that went to meta comes back as it was."""

import torch
from torch import nn

from training.initial import fill


class Odd(nn.Module):
    """Tied, frozen and listed weights, buffers that are saved and that are not."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(3, 5), nn.Linear(3, 5)
        self.second.weight = self.first.weight
        self.first.bias.requires_grad_(False)
        self.norm, self.listed = nn.BatchNorm1d(5), [self.first.weight]
        self.register_buffer("table", torch.arange(4.0), persistent=False)


def test_a_model_comes_back_from_meta_with_its_ties_and_objects():
    model = Odd()
    before = {name: tensor.clone() for name, tensor in fill.named(model).items()}
    fill.emptied(model)
    assert all(tensor.is_meta for tensor in fill.named(model).values())
    fill.fill(model, fill.of(model), torch.device("cpu"))
    now = fill.named(model)
    assert now.keys() == before.keys()
    assert all(torch.equal(now[name], before[name]) for name in now)
    assert model.second.weight is model.first.weight is model.listed[0]
    assert not model.first.bias.requires_grad and model.second.bias.requires_grad
