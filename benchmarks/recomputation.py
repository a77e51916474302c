"""Count what a block keeps for its backward pass under each policy, and computes anew.

python -m benchmarks.recomputation [--shape 8B]

In bfloat16 on fake tensors: no weight takes memory, and any shape goes. Bytes are those of the
storages that are alive between the passes, but for the block's own input, output and weights;
operations are those of products with weights, forward, backward and anew.
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import typer
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.harness import show_table
from training.config import TrainConfig
from training.strategies.block_wrapping import adapt_blocks
from training.workloads.language_model.config import LanguageModelConfig
from training.workloads.language_model.model import Block, rotary_angles

POLICIES = ("none", "selective", "full")
SHAPES: dict[str, dict[str, int]] = {
    "8B": {"dim": 4096, "heads": 32, "kv_heads": 8, "hidden_dim": 14336, "context_length": 8192},
    "70B": {"dim": 8192, "heads": 64, "kv_heads": 8, "hidden_dim": 28672, "context_length": 8192},
}
"""Llama 3's (Grattafiori et al. 2024, table 3)."""


class Made(TorchDispatchMode):
    """Remembers the storages that operators have made, without keeping them.

    Args:
        given: tensors that were there before; a view of one of them is nothing made.
    """

    def __init__(self, *given: Tensor) -> None:
        super().__init__()
        self._given = {one.untyped_storage()._cdata for one in given}
        self._made: dict[int, tuple[StorageWeakRef, int]] = {}

    def __torch_dispatch__(
        self, operator: Any, types: Any, args: tuple = (), kwargs: dict | None = None
    ) -> Any:
        results = operator(*args, **(kwargs or {}))
        for one in results if isinstance(results, tuple | list) else (results,):
            if isinstance(one, Tensor):
                storage = one.untyped_storage()
                if storage._cdata not in self._given:
                    self._made[storage._cdata] = StorageWeakRef(storage), storage.nbytes()
        return results

    def alive(self) -> int:
        """Bytes of what is still there."""
        gc.collect()
        return sum(size for storage, size in self._made.values() if not storage.expired())


def measured(block: nn.Module, x: Tensor, *more: Tensor) -> tuple[int, int, Tensor]:
    """(bytes that are kept besides the input, operations of both passes, the input's gradient)."""
    leaf = x.detach().requires_grad_()
    given = leaf, *more, *block.parameters(), *block.buffers()
    with FlopCounterMode(display=False) as operations, Made(*given) as made:
        out = block(leaf, *more)
        kept = made.alive() - out.untyped_storage().nbytes()
        out.sum().backward()
    return kept, operations.get_total_flops(), leaf.grad


def adapted(block: nn.Module, policy: str) -> nn.Module:
    """The block under a policy."""
    settings = {"max_steps": 1, "global_batch": 1, "micro_batch": 1, "learning_rate": 1.0}
    adapt_blocks([block], TrainConfig(**settings, activation_checkpointing=policy))
    return block


@contextmanager
def default_type(dtype: torch.dtype) -> Iterator[None]:
    """Inside, what is made has this type."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def of_shape(config: LanguageModelConfig, policy: str) -> tuple[float, float]:
    """(bytes that a block keeps a token, operations relative to one that keeps all)."""
    shape = 1, config.context_length, config.dim
    with FakeTensorMode(), torch.device("cpu"):
        places = rotary_angles(config.model_copy(update={"rope_scaling": None}))
        found = {}
        for one in ("none", policy):
            with default_type(torch.bfloat16):  # as FSDP2 gathers the weights
                block, x = Block(config), torch.empty(shape)
            found[one] = measured(adapted(block, one), x, *places)
    kept, operations, _ = found[policy]
    return kept / config.context_length, operations / found["none"][1]


def main(shape: str = "") -> None:
    rows = []
    for name, settings in SHAPES.items():
        if shape in name:
            config = LanguageModelConfig(layers=1, **settings)
            for policy in POLICIES:
                kept, operations = of_shape(config, policy)
                rows.append((name, policy, f"{kept / 1024:.1f}", f"{operations:.3f}"))
    columns = ("shape", "policy", "kept a token and block (KiB)", "products' operations")
    show_table(columns, rows)


if __name__ == "__main__":
    typer.run(main)
