"""Do norms' weights in bfloat16 put a curve to one side? One process, its types changed in turn.

python -m benchmarks.strategies.norms [--seeds 6] [--steps 10]

Beside one process under autocast: the same with the norms' weights rounded to bfloat16 in each
forward pass; one that computes in bfloat16 throughout, as a rank does under FSDP2 where the model
follows its weights; and that one with norms that keep float32 weights. All update float32 weights.
"""

import contextlib
import logging
import os
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

import torch
import typer
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.strategies.bias import bias, signed
from benchmarks.strategies.cases import SETTINGS, container, write_data
from steps.train import job
from tests.training.trainings import arguments, losses
from training.strategies.single import Batch, Single

WINDOWS = (1, 1), (2, 5), (6, 10), (11, 100)
"""First and last step of what is told by itself."""


@dataclass(frozen=True, slots=True)
class Types:
    """What is rounded to bfloat16 before it is used: which weights, and whether not by autocast."""

    rounded: Callable[[str], bool]
    throughout: bool = False


CASES = {
    "autocast": Types(lambda name: False),
    "autocast, norms' weights in bfloat16": Types(lambda name: "norm" in name),
    "bfloat16 throughout": Types(lambda name: True, throughout=True),
    "bfloat16 throughout, norms' weights in float32": Types(
        lambda name: "norm" not in name, throughout=True
    ),
}


def main(seeds: int = 6, steps: int = 10) -> None:
    torch.set_num_threads(1)
    windows = [(first, last) for first, last in WINDOWS if last <= steps]
    table = Table("types", *(f"steps {a} to {b}" for a, b in windows), box=None, pad_edge=False)
    reference: list[dict[int, float]] = []
    with tempfile.TemporaryDirectory() as scratch:
        write_data(Path(scratch) / "data")
        for name, types in CASES.items():
            with typed(types):
                curves = [curve(Path(scratch), f"{name} {n}", n, steps) for n in range(seeds)]
            reference = reference or curves
            table.add_row(name, *(str(told(curves, reference, *one)) for one in windows))
    Console().print(table)


def told(curves: list[dict[int, float]], others: list[dict[int, float]], a: int, b: int) -> object:
    """The bias of the curves beside others between two steps."""
    pairs = zip(curves, others, strict=True)
    return bias([signed(one, {n: other[n] for n in range(a, b + 1)}) for one, other in pairs])


def curve(scratch: Path, name: str, seed: int, steps: int) -> dict[int, float]:
    """Train in this process; the losses by step."""
    root = container(scratch / "data", scratch / name)
    differs = {"seed": seed, "strategy": "single", "precision": "bfloat16", "max_steps": steps}
    ends = {"validation_interval": steps, "checkpoint_interval": steps}
    logging.getLogger().handlers.clear()
    with Path(os.devnull).open("w") as nowhere, contextlib.redirect_stdout(nowhere):
        job.main(arguments(root, SETTINGS | differs | ends))
    return losses(root)


@contextlib.contextmanager
def typed(types: Types) -> Iterator[None]:
    """Inside, a single process trains in these types; validation is in float32 as ever."""
    whole = Single.outputs

    def outputs(self: Single, model: nn.Module, batch: Batch) -> Tensor:
        if not torch.is_grad_enabled():
            return whole(self, model, batch)
        weights = {
            name: weight.bfloat16() if types.rounded(name) else weight
            for name, weight in model.named_parameters()
        }
        return torch.func.functional_call(model, weights, self.workload.inputs(batch))

    def normalised(self: nn.RMSNorm, x: Tensor) -> Tensor:
        """As torch's own, in float32, whatever the types of stream and weight."""
        wide = F.rms_norm(x.float(), self.normalized_shape, self.weight.float(), self.eps)
        return wide.to(x.dtype)

    changes = [mock.patch.object(Single, "outputs", outputs)]
    changes.append(mock.patch.object(nn.RMSNorm, "forward", normalised))
    if types.throughout:
        changes.append(mock.patch.object(Single, "autocast", lambda self: contextlib.nullcontext()))
    with contextlib.ExitStack() as stack:
        for change in changes:
            stack.enter_context(change)
        yield


if __name__ == "__main__":
    typer.run(main)
