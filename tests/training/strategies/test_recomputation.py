"""Recomputed values equal the first ones; and a policy keeps exactly what it declares."""

import gc
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

from tests.training.trainings import config
from training.dropout import Dropout, assign_name_hashes, derive_sample_keys
from training.strategies.block_wrapping import adapt_blocks

pytestmark = pytest.mark.long
POLICIES = ("none", "selective", "full")


class LiveStorages(TorchDispatchMode):
    """Records the storages that operators allocate, without keeping them alive.

    Args:
        inputs: tensors that were there before; a view of one of them allocates nothing.
    """

    def __init__(self, *inputs: Tensor) -> None:
        super().__init__()
        self._inputs = {tensor.untyped_storage()._cdata for tensor in inputs}
        self._storages: dict[int, tuple[StorageWeakRef, int]] = {}

    def __torch_dispatch__(
        self, operator: Any, types: Any, args: tuple = (), kwargs: dict | None = None
    ) -> Any:
        results = operator(*args, **(kwargs or {}))
        for tensor in results if isinstance(results, tuple | list) else (results,):
            if isinstance(tensor, Tensor):
                storage = tensor.untyped_storage()
                if storage._cdata not in self._inputs:
                    self._storages[storage._cdata] = StorageWeakRef(storage), storage.nbytes()
        return results

    def alive_bytes(self) -> int:
        gc.collect()
        return sum(size for storage, size in self._storages.values() if not storage.expired())


def count_recomputation(block: nn.Module, x: Tensor, *more: Tensor) -> tuple[int, int, Tensor]:
    """Return the bytes kept beside the input, both passes' operations, the input's gradient."""
    leaf = x.detach().requires_grad_()
    inputs = leaf, *more, *block.parameters(), *block.buffers()
    with FlopCounterMode(display=False) as operations, LiveStorages(*inputs) as storages:
        out = block(leaf, *more)
        kept = storages.alive_bytes() - out.untyped_storage().nbytes()
        out.sum().backward()
    return kept, operations.get_total_flops(), leaf.grad


def apply_policy(block: nn.Module, policy: str) -> nn.Module:
    adapt_blocks([block], config(activation_checkpointing=policy))
    return block


class Layer(nn.Module):
    """A layer with two products, attention, and parts that must be the same in the second pass."""

    def __init__(self) -> None:
        super().__init__()
        self.wide, self.narrow = nn.Linear(16, 64, bias=False), nn.Linear(64, 16)
        self.dropout, self.norm = Dropout(0.5), nn.BatchNorm1d(16)

    def forward(self, x: Tensor) -> Tensor:
        heads = x[:, None]
        x = x + nn.functional.scaled_dot_product_attention(heads, heads, heads)[:, 0]
        hidden = self.dropout(torch.relu(self.wide(x)))
        return self.norm(self.narrow(hidden).flatten(0, 1)).square()


@pytest.fixture(scope="module")
def recomputation_by_policy() -> dict[str, tuple]:
    """Return policy → what ``count_recomputation`` returns, and the batch norm's mean."""
    results = {}
    for policy in POLICIES:
        torch.manual_seed(0)
        layer = Layer()
        (dropout,) = assign_name_hashes(layer)
        dropout.samples = derive_sample_keys(1, 0, 4)
        apply_policy(layer, policy)
        results[policy] = (
            *count_recomputation(layer, torch.randn(4, 8, 16)),
            layer.norm.running_mean,
        )
    return results


@pytest.mark.parametrize("policy", POLICIES)
def test_gradients_and_buffers_are_bitwise_the_same(recomputation_by_policy, policy):
    for mine, kept in zip(
        recomputation_by_policy[policy][2:], recomputation_by_policy["none"][2:], strict=True
    ):
        assert torch.equal(mine, kept)


def test_selective_keeps_attention_and_every_second_product(recomputation_by_policy):
    kept, operations = (
        {policy: one[n] for policy, one in recomputation_by_policy.items()} for n in (0, 1)
    )
    tokens, size = 4 * 8, 4
    attention = tokens * (16 + 1) * size  # its result, and the logarithm of the sum at each token
    selective = kept["selective"] - kept["full"]  # which keeps states of random numbers
    assert selective == attention + tokens * 64 * size  # and the first of two products
    assert kept["none"] - kept["full"] > 2 * selective
    product = 2 * tokens * 16 * 64  # operations; attention's on a CPU are not counted
    assert operations["full"] - operations["none"] == 2 * product
    assert operations["selective"] - operations["none"] == product
