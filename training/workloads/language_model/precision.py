"""The type in which products are made, where autocast chooses it."""

import torch
from torch import Tensor


def narrowed(x: Tensor) -> Tensor:
    """In the type in which autocast multiplies: so it, and its gradient, travel between ranks."""
    device = x.device.type
    return x.to(torch.get_autocast_dtype(device)) if torch.is_autocast_enabled(device) else x
