r"""The shapes that memory and time estimates need: JSON for ``trainyard advise --shapes``.

python -m training.tools.shapes --workload my_package.my_workload --workload-config '{…}' \
    [--data train/] [--samples 8] > shapes.json

The model is traced without values, on one rank and on two that share its products, with each policy
of recomputation; no weight takes memory. A workload that learns from its data (columns, classes),
prepares its samples or has ragged ones needs a folder of its shards: ``--samples`` of them are the
batch. Figures are per token: per unit of the workload (what its loss is averaged over) if a sample
has several, otherwise per sample.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import torch
import typer
from torch import Tensor
from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException
from torch.distributed.device_mesh import init_device_mesh

from training.command_line import run
from training.data.dataset import Dataset
from training.data.loader import Preparation
from training.tools.forward_trace import ForwardTrace, act_as_rank, trace_forward
from training.workloads import Workload, load_workload, parse_settings
from trainyard.common.errors import TrainingError

POLICIES = ("none", "selective", "full")
TYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
DATA_DEPENDENT_ERRORS = (DataDependentOutputException, DynamicOutputShapeException)
"""torch's errors for a model that reads values, which do not exist in a trace."""


def main(
    workload: Annotated[str, typer.Option(help="Workload, as in a recipe.")] = "language_model",
    workload_config: Annotated[str, typer.Option(help="The workload's settings as JSON.")] = "{}",
    data: Annotated[Path | None, typer.Option(help="Shards of the train split.")] = None,
    samples: Annotated[int, typer.Option(min=1, help="Samples in the traced batch.")] = 2,
    precision: Annotated[
        Literal["bf16", "fp16", "fp32"], typer.Option(help="Type of the products.")
    ] = "bf16",
) -> None:
    """Print the model's units, their work and sizes, as JSON."""
    loaded_workload = load_workload(workload, parse_settings(workload_config), data)
    print(
        json.dumps(
            trace_shapes(
                loaded_workload, load_batch(loaded_workload, data, samples), samples, precision
            ),
            indent=1,
        )
    )


def load_batch(workload: Workload, data: Path | None, samples: int) -> dict[str, Tensor]:
    """Return the first samples of a folder of shards, or zeros if no folder is given.

    Raises:
        TrainingError: the folder is needed but not given.
    """
    if data is not None:
        dataset = Dataset(data)
        workload.fit(dataset)
        return Preparation.from_workload(workload).make_batch(dataset.read(range(samples)))
    fields = workload.packing.fields
    ragged_names = [name for name, field in fields.items() if field.shape is None]
    if ragged_names or hasattr(workload, "prepare"):
        reason = (
            f"{', '.join(ragged_names)} has no fixed width"
            if ragged_names
            else "it prepares its samples"
        )
        raise TrainingError(
            f"the workload's samples have no fixed shape: {reason}; give --data FOLDER"
        )
    return {
        name: torch.zeros(samples, *(field.shape or ()), dtype=getattr(torch, field.dtype))
        for name, field in fields.items()
    }


def trace_shapes(
    workload: Workload, batch: Mapping[str, Tensor], samples: int, precision: str = "bf16"
) -> dict[str, Any]:
    """Return the document that ``trainyard.foresight.model_shapes.parse_shapes`` reads.

    Raises:
        TrainingError: the model needs data that it was not fitted on.
    """
    sequence = max(1, round(float(workload.units(batch)) / samples))
    tokens = samples * sequence
    single_traces = {
        policy: _trace_single_rank(workload, batch, precision, policy) for policy in POLICIES
    }
    shared_traces = {
        policy: _trace_tensor_parallel_rank(workload, batch, precision, policy)
        for policy in POLICIES
    }
    first = single_traces["none"]
    units: list[dict[str, Any]] = []
    for number, part in enumerate(first.parts):
        half = shared_traces["none"].parts[number] if shared_traces["none"] else None
        unit = {
            "name": _build_unit_name(number, len(first.parts)),
            "parameters": part.parameters,
            "trained": part.trainable,
            "replicated": half.replicated_parameters if half else part.parameters,
            "matmul_flops": part.matmul_flops / tokens,
            "attention_flops": part.attention_flops / tokens,
            "elementwise_bytes": part.elementwise_bytes / tokens,
            "kept": {
                p: _split_kept_bytes(single_traces[p], shared_traces[p], number, tokens)
                for p in POLICIES
            },
            "output_bytes": part.output / tokens,
            "count": 1,
        }
        # Equal neighbours, as most blocks are, become one entry with their count.
        if units and unit | {"count": units[-1]["count"]} == units[-1]:
            units[-1]["count"] += 1
        else:
            units.append(unit)
    logits = max(1, first.outputs // tokens)
    return {"units": units, "sequence": sequence, "logits": logits, "tied": first.tied}


def _build_unit_name(number: int, count: int) -> str:
    """Return the name of part ``number`` of ``count``: model, embedding, block or head."""
    if count == 1:
        return "model"
    return "embedding" if number == 0 else "head" if number == count - 1 else "block"


def _split_kept_bytes(
    single_trace: ForwardTrace, shared_trace: ForwardTrace | None, number: int, tokens: int
) -> dict[str, float]:
    """Return the bytes per token that are replicated on two ranks (whole) and sharded (split).

    A single rank keeps the sum of both.
    """
    single_bytes = single_trace.parts[number].kept_bytes
    two = shared_trace.parts[number].kept_bytes if shared_trace else single_bytes
    # Each of two ranks keeps half of what is shared, so the other half is the difference.
    split = min(max(0, 2 * (single_bytes - two)), single_bytes)
    return {"whole": (single_bytes - split) / tokens, "split": split / tokens}


def _trace_single_rank(
    workload: Workload, batch: Mapping[str, Tensor], precision: str, policy: str
) -> ForwardTrace:
    """Trace the model on one rank; in real memory if it reads values."""
    type_ = TYPES[precision]
    try:
        return trace_forward(workload, batch, precision=type_, policy=policy)
    except DATA_DEPENDENT_ERRORS:
        torch.manual_seed(0)
        return trace_forward(workload, batch, real=True, precision=type_, policy=policy)


def _trace_tensor_parallel_rank(
    workload: Workload, batch: Mapping[str, Tensor], precision: str, policy: str
) -> ForwardTrace | None:
    """Trace one of two tensor-parallel ranks, or return None if the workload's model cannot be
    split.
    """
    with act_as_rank(0, 2):
        mesh = init_device_mesh("cpu", (2,), mesh_dim_names=("tensor",))
        try:
            return trace_forward(
                workload, batch, precision=TYPES[precision], policy=policy, mesh=mesh["tensor"]
            )
        except (TrainingError, *DATA_DEPENDENT_ERRORS):
            return None


if __name__ == "__main__":
    run(main)
