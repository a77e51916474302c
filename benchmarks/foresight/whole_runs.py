"""GPU hours of whole published runs: what is foreseen must be less.

The published hours (meta-llama/llama-models, MODEL_CARD.md) have interruptions, evaluation and
restarts in them. The layouts are assumed.
"""

import re
from dataclasses import dataclass
from typing import Any

from rich.table import Table

from benchmarks.foresight.models import MODELS
from benchmarks.foresight.published import lines
from trainyard.foresight import time
from trainyard.foresight.setting import Setting

FSDP = {"gpus": 1024, "micro_batch": 1, "shard": "full"}
MEGATRON = {
    "gpus": 4096,
    "tensor": 8,
    "sequence_parallel": True,
    "pipeline": 4,
    "interleave": 5,
    "accumulation": 16,
    "shard": "optimizer",
}
LLAMA2 = {"gpu": "A100-80", "node_gbps": 1600.0, "sequence": 4096}
LLAMA3 = {"gpu": "H100-80", "sequence": 8192}
LAYOUTS: dict[str, dict[str, Any]] = {
    "Llama2-13B": {**LLAMA2, **FSDP},
    "Llama2-70B": {**LLAMA2, **FSDP, "recompute": "full"},
    "Llama3-8B": {**LLAMA3, **FSDP, "recompute": "selective"},
    "Llama3-70B": {**LLAMA3, **MEGATRON},
}


@dataclass(frozen=True)
class Run:
    """A model trained to its end."""

    model: str
    published_hours: float
    foreseen_hours: float
    """Of training alone."""


def predicted() -> list[Run]:
    """Each published run."""
    found = []
    pattern = r"Llama (\d) (\w+) on \S+, (\d+)T tokens: ([\d,]+)"
    for line in lines("whole_runs"):
        match = re.fullmatch(pattern, line)
        if match is None:
            raise ValueError(f"{line!r}: expected a line like {pattern}")
        model = f"Llama{match[1]}-{match[2]}"
        setting = Setting(**{**MODELS[model], **LAYOUTS[model]})
        rate = time.foresee(setting).tokens_per_second_per_gpu.p50
        hours = int(match[3]) * 1e12 / rate / 3600
        found.append(Run(model, float(match[4].replace(",", "")), round(hours)))
    return found


def table(runs: list[Run]) -> Table:
    shown = Table("run", "GPU hours published", "foreseen", "share", title="whole runs")
    for run in runs:
        share = f"{run.foreseen_hours / run.published_hours:.0%}"
        hours = f"{run.published_hours:,.0f}", f"{run.foreseen_hours:,.0f}"
        shown.add_row(run.model, *hours, share)
    return shown
