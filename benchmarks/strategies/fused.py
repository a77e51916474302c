"""Asynchronous tensor parallel where there is no GPU: what is fused, and does it compute the same?

python -m benchmarks.strategies.fused     # half a minute: what torch's pass fuses, and with ours

torch has fused products for CUDA alone, and beside them what they compute, for a product and a
collective that do not overlap (``_symmetric_memory``, as implementations for meta tensors).
``on_processors`` lets processors take those. What the compiler makes of a model is then what it
makes on GPUs; how it is exchanged is not.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist

MODEL = {"context_length": 32, "layers": 2, "heads": 4, "dim": 32}
CASES: dict[str, tuple[int, dict[str, Any]]] = {
    "several samples": (2, {}),
    "one sample": (1, {}),
    "several samples, biases of queries, keys, values": (2, {"attention_bias": "qkv"}),
    "several samples, all biases": (2, {"attention_bias": "all"}),
}
"""Name → (samples, what differs from ``MODEL``)."""

Counts = tuple[int, int]
"""Of a graph: (collectives that are one with their products, other collectives)."""


def on_processors() -> None:
    """Once in a process, before it trains; where there are GPUs, theirs are taken."""
    if torch.cuda.is_available():
        return
    from torch.distributed import _symmetric_memory as memory

    from training.strategies import asynchronous

    library = torch.library.Library("symm_mem", "IMPL")
    library.impl("fused_all_gather_matmul", memory._fused_all_gather_matmul_fallback, "CPU")
    library.impl("fused_matmul_reduce_scatter", memory._fused_matmul_reduce_scatter_fallback, "CPU")
    _kept.append(library)
    dist.is_nccl_available = lambda: True  # without it torch's pass does nothing
    asynchronous.check = lambda *given: None


_kept: list[torch.library.Library] = []
"""What is registered goes when its library does."""


@contextmanager
def as_graphs() -> Iterator[list[Counts]]:
    """Inside, the compiler stops behind its passes, and what they have made is run as it is.

    Writing kernels of it would take a minute. Gives the list that gets each graph's counts.
    """
    from torch._inductor import compile_fx

    found: list[Counts] = []
    until = partial(compile_fx.compile_fx, inner_compile=partial(_passed, found))
    with mock.patch.object(compile_fx, "compile_fx", until):
        yield found


def _passed(found: list[Counts], graph: torch.fx.GraphModule, inputs: Any, **_: Any) -> Callable:
    from torch._dynamo.utils import detect_fake_mode
    from torch._inductor import compile_fx
    from torch._inductor.virtualized import V

    from training.strategies import asynchronous

    compile_fx.view_to_reshape(graph)
    with V.set_fake_mode(detect_fake_mode(inputs)):
        compile_fx._recursive_post_grad_passes(graph, False)
    graph.recompile()
    found.append(asynchronous.counted(graph.graph))

    def run(given: list) -> Sequence[Any]:
        taken = [*given]
        given.clear()
        return graph(*taken)

    run._boxed_call = True  # type: ignore[attr-defined]
    return run


def counts(samples: int, differs: dict[str, Any], *, ours: bool) -> list[Counts]:
    """Of the blocks' graphs, forward and backward, as rank 0 of two that are not there."""
    from torch.distributed.device_mesh import init_device_mesh

    from training.config import TrainConfig
    from training.simulation.world import standing_for
    from training.strategies import asynchronous, tensor
    from training.strategies.blocks import adapt_blocks
    from training.workloads import load

    split = {"tensor_parallel": 2, "compile": True, "async_tensor_parallel": True}
    batches = {"max_steps": 1, "global_batch": samples, "micro_batch": samples}
    config = TrainConfig(**batches, learning_rate=1e-3, **split)
    torch._dynamo.reset()
    with standing_for(0, 2), as_graphs() as found:
        mesh = init_device_mesh("cpu", (2,), mesh_dim_names=("tensor",))
        workload = load("language_model", MODEL | differs)
        model = workload.model()
        tensor.split(model, workload, mesh, True)
        options = asynchronous.options(mesh.get_group())
        if not ours:
            options = {key: one for key, one in options.items() if key.startswith("_")}
        adapt_blocks(workload.blocks(model), config, options)
        with torch.autocast("cpu", torch.bfloat16):
            tokens = torch.zeros(samples, MODEL["context_length"], dtype=torch.long)
            model(tokens).to_local().float().sum().backward()
    return found


def main() -> None:
    from rich.console import Console
    from rich.table import Table

    on_processors()
    table = Table("fused of a block's 4 + 4", "torch's pass", "with ours", box=None)
    for name, (samples, differs) in CASES.items():
        told = [counts(samples, differs, ours=ours) for ours in (False, True)]
        table.add_row(name, *(" + ".join(str(done) for done, _ in one) for one in told))
    Console(width=100).print(table)


if __name__ == "__main__":
    main()
