"""Train each strategy on this machine's GPUs over NCCL: its curve, speed and memory.

python -m benchmarks.gpu_strategies [--json FILE] [--only FSDP2] [--minutes 10]

Each layout that has enough GPUs trains twice: a small ragged model in float64 beside one process
(as ``benchmarks.strategies`` does it over gloo), then a model of 150 million weights in bfloat16,
for its speed and memory, beside what ``training.simulate`` foresees. What has not begun after
``--minutes`` is named and left out. Without a GPU it says so and exits with status 0; ``--smoke``
runs it all on two processes over gloo with tiny models. Exits with 1 when a curve is off.
"""

import json
import statistics
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import torch
import typer

from benchmarks import resumed
from benchmarks.harness import show_figures
from benchmarks.strategies.cases import CASES, SETTINGS, TOLERANCE, container, write_data
from benchmarks.strategies.runs import distance, reason
from tests.training import worlds
from tests.training.trainings import history, losses
from training.config import TrainConfig
from training.scaling import synthetic
from training.simulate import simulate

SECONDS = 240  # that one training may take: compiled ones are in it
LIMITS = {name: TOLERANCE[name] for name in ("float64", "bfloat16")}
TIMED = ("units_per_second", "step_seconds", "mfu")
FLOAT8 = {"float8": "tensorwise"}
MORE: dict[str, tuple[int, dict[str, Any]]] = {
    "single, compiled": (1, {"strategy": "single", "compile": True}),
    "single, selective": (1, {"strategy": "single", "activation_checkpointing": "selective"}),
    "single, full": (1, {"strategy": "single", "activation_checkpointing": "full"}),
    "single, float8": (1, {"strategy": "single"} | FLOAT8),
    "single, float8, compiled": (1, {"strategy": "single", "compile": True} | FLOAT8),
    "FSDP2 × 1": (1, {"strategy": "fsdp"}),
    "FSDP2 × 1, offloaded": (1, {"strategy": "fsdp", "cpu_offload": True}),
    "FSDP2 × 8": (8, {"strategy": "fsdp"}),
    "FSDP2 × 8, compiled": (8, {"strategy": "fsdp", "compile": True}),
    "FSDP2 × 8, float8 gathered, compiled": (
        8,
        {"strategy": "fsdp", "compile": True, "float8_all_gather": True} | FLOAT8,
    ),
}
SHOWN = (
    *("DDP × 2", "DDP × 4", "FSDP2 × 2", "FSDP2 × 4", "FSDP2 × 2, prefetch"),
    *("FSDP2 × 2, weights kept", "FSDP2 × 4, resharded to 2", "FSDP2 × 2, offloaded"),
    *("FSDP2 × 2, unsharded gradients", "hybrid 2 × 2", "tensor × 2", "tensor × 2, compiled"),
    *("pipeline × 2", "pipeline × 2, interleaved_1f1b", "context × 2", "FSDP2 × 2, tensor × 2"),
    *("FSDP2 × 2, context × 2, tensor × 2", "FSDP2 × 2, tensor × 2, pipeline × 2"),
)
LAYOUTS = {"single": CASES["single"], **MORE, **{name: CASES[name] for name in SHOWN}}
"""Name → (ranks, what differs), in the order in which they run: the first ones need one GPU."""
SMOKE = ("single", "DDP × 2", "FSDP2 × 2", "single, float8")


@dataclass(frozen=True, slots=True)
class Sizes:
    """The two trainings of each layout."""

    steps: int
    """Steps of the small model in float64."""
    model: Mapping[str, Any]
    """The larger one."""
    warm_up: int
    measured: int
    """Steps of it that are not timed, and that are."""
    micro_batch: int
    global_batch: int


FULL = Sizes(
    steps=20,
    model={"context_length": 1024, "layers": 12, "heads": 16, "dim": 1024},
    warm_up=10,
    measured=20,
    micro_batch=4,
    global_batch=32,
)
TINY = Sizes(
    steps=2,
    model={"context_length": 16, "layers": 2, "heads": 2, "dim": 16},
    warm_up=1,
    measured=2,
    micro_batch=2,
    global_batch=8,
)

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def main(
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Keep every figure here, as it comes.")
    ] = None,
    only: Annotated[str, typer.Option(help="Layouts: a part of their names.")] = "",
    minutes: Annotated[float, typer.Option(help="After which no layout begins.")] = 10,
    smoke: Annotated[bool, typer.Option(help="Tiny, over gloo: does it run?")] = False,
) -> None:
    """Train under each strategy that this machine has the GPUs for."""
    gpus = torch.cuda.device_count()
    if not smoke and not gpus:
        print("no CUDA device here: nothing is measured (--smoke runs it on CPUs)")
        return
    names = SMOKE if smoke else [name for name, (world, _) in LAYOUTS.items() if world <= gpus]
    chosen = [name for name in names if only in name or name == "single"]
    sizes = TINY if smoke else FULL
    device = torch.cuda.get_device_name() if gpus else "CPU"
    setting = {"device": device, "gpus": gpus, "torch": torch.__version__, "smoke": smoke}
    found, until = {}, time.monotonic() + 60 * minutes
    with tempfile.TemporaryDirectory(prefix="gpu-strategies-") as folder:
        scratch = Path(folder)
        write_data(scratch / "small")
        synthetic(scratch / "large", "language_model", json.dumps(sizes.model))

        def measured(name: str) -> dict[str, Any]:
            if time.monotonic() > until:
                return {"failed": f"not begun within {minutes:g} minutes"}
            try:
                return curve(name, scratch, sizes) | speed(name, scratch, sizes)
            except AssertionError as error:
                where = max(scratch.glob("*/rank-0.log"), key=lambda one: one.stat().st_mtime)
                return {"failed": reason(where.parent) or str(error)}

        for name, found[name] in resumed.each(chosen, measured, json_file, setting):
            print(f"{name}: {found[name].get('failed', 'done')}", flush=True)
            if "failed" in found["single"]:  # nothing to hold the others to
                raise typer.Exit(1)
    show(found, f"{gpus or 2} × {device}")
    wrong = [n for n, one in found.items() if "failed" in one or beyond(one, found["single"])]
    if wrong:
        print(f"failed, left out, or off by more than {LIMITS}: {', '.join(wrong)}")
    raise typer.Exit(bool(wrong))


def curve(name: str, scratch: Path, sizes: Sizes) -> dict[str, Any]:
    """The losses of the small model; float64 does not go with float8, which is left out of it."""
    world, differs = LAYOUTS[name]
    root = container(scratch / "small", scratch / f"{name} in float64")
    exact = {"precision": "float64", "max_steps": sizes.steps, "warmup_steps": 1}
    wide = {key: value for key, value in differs.items() if not key.startswith("float8")}
    worlds.train(root, world, seconds=SECONDS, **(SETTINGS | exact | wide))
    return {"float64": losses(root)}


def speed(name: str, scratch: Path, sizes: Sizes) -> dict[str, Any]:
    """Losses, speed and memory of the larger model, and what is foreseen of its memory."""
    world, differs = LAYOUTS[name]
    root = container(scratch / "large", scratch / f"{name} in bfloat16")
    steps = sizes.warm_up + sizes.measured
    loop = {
        "precision": "bfloat16",
        "learning_rate": 3e-4,
        "max_steps": steps,
        "micro_batch": sizes.micro_batch,
        "global_batch": sizes.global_batch,
        "log_interval": 1,
        "validation_interval": steps,
        "validation_samples": 1,
        "checkpoint_interval": steps,
        **differs,
    }
    workload = {"workload": "language_model", "workload_config": json.dumps(sizes.model)}
    worlds.train(root, world, seconds=SECONDS, **loop, **workload)
    lines = [one for one in history(root) if "loss" in one and one["step"] > sizes.warm_up]
    found = {
        key: statistics.median(line[key] for line in lines) for key in TIMED if key in lines[0]
    }
    if not loop.get("cpu_offload"):  # the simulation knows one memory
        config = TrainConfig.model_validate(loop)
        stages = simulate(config, "language_model", dict(sizes.model), world)
        found["simulated_mb"] = max(one["peak_bytes"] for one in stages) / 1e6
    memory = max(line["memory_mb"] for line in lines)
    return found | {"bfloat16": losses(root), "memory_mb": memory}


def beyond(one: Mapping[str, Any], single: Mapping[str, Any]) -> bool:
    """Return whether a curve differs from that of one process."""
    return any(o > most for o, most in zip(off(one, single), LIMITS.values(), strict=True))


def off(one: Mapping[str, Any], single: Mapping[str, Any]) -> tuple[float, float]:
    """How far the losses are from those of one process: in float64, and in bfloat16."""
    exact, loose = (distance(one[key], single[key]) for key in LIMITS)
    return exact, loose


def show(found: Mapping[str, Mapping[str, Any]], title: str) -> None:
    """A row for each layout that has trained."""
    columns = ("layout", "ranks", "off, float64", "off, bfloat16", "tokens/s", "ms a step", "MFU",
               "MB", "MB foreseen")  # fmt: skip
    rows = []
    for name, one in found.items():
        if "failed" in one:
            continue
        exact, loose = off(one, found["single"])
        rows.append((
            name, LAYOUTS[name][0], f"{exact:.1e}", f"{loose:.1e}",
            f"{one['units_per_second']:,.0f}", f"{1000 * one['step_seconds']:.1f}",
            f"{one['mfu']:.1%}" if "mfu" in one else "–", f"{one['memory_mb']:,.0f}",
            f"{one['simulated_mb']:,.0f}" if "simulated_mb" in one else "–",
        ))  # fmt: skip
    show_figures(columns, rows, title, 130)


if __name__ == "__main__":
    app()
