"""Compare memory's formulas with every allocation of our own strategies, counted.

python -m benchmarks.foresight.simulated [--only PP] [--json FILE]

Each layout is foreseen by ``trainyard.foresight.memory`` and simulated by ``training.simulate``,
which runs the strategy's code on tensors without contents. Nothing is fitted to it.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from statistics import mean
from typing import Annotated, Any

import typer

from benchmarks.harness import JsonFile, keep, show_figures
from trainyard.foresight import memory
from trainyard.foresight.setting import Setting

SHAPE = {
    "layers": 16,
    "heads": 16,
    "kv_heads": 4,
    "dim": 2048,
    "hidden_dim": 5632,
    "vocabulary": 32000,
    "context_length": 2048,
    "tie_embeddings": False,
}
MODEL = {
    "layers": 16,
    "heads": 16,
    "kv_heads": 4,
    "hidden": 2048,
    "ffn": 5632,
    "vocab": 32000,
    "gated": True,
    "sequence": 2048,
}
PAIRS = {
    "parameters": ("parameters",),
    "gradients": ("gradients",),
    "optimizer": ("optimizer",),
    "gathered": ("gathered",),
    "activations": ("activations", "logits", "buffers"),
}
"""The simulation's category → ours. What it calls temporary is with its activations here: logits
and a block's gradients are in both."""


@dataclass(frozen=True, slots=True)
class Layout:
    """One training, as the loop is told of it and as foresight is."""

    name: str
    world: int
    loop: dict[str, Any]
    setting: dict[str, Any]
    accumulation: int = 1


def _fsdp(name: str, world: int, accumulation: int = 1, **more: tuple[str, Any, Any]) -> Layout:
    """``more``: a field of a setting → the loop's name, the loop's value, ours."""
    loop = {name: value for name, value, _ in more.values()}
    setting = {field: value for field, (_, _, value) in more.items()}
    return Layout(
        name,
        world,
        {"strategy": "fsdp", **loop},
        {"shard": "full", "accumulation": accumulation, **setting},
        accumulation,
    )


def _samples(number: int) -> tuple[str, int, int]:
    return "micro_batch", number, number


def _again(policy: str) -> tuple[str, str, str]:
    return "activation_checkpointing", policy, policy


def _ranks(kind: str, number: int) -> tuple[str, int, int]:
    return f"{kind}_parallel", number, number


def layouts() -> Iterator[Layout]:
    """One of each kind, and some of two or three."""
    alone = {"strategy": "single", "micro_batch": 2}
    yield Layout("one GPU", 1, alone, {"micro_batch": 2})
    ddp = {"strategy": "ddp", "micro_batch": 2}
    yield Layout("DDP × 2", 8, ddp, {"micro_batch": 2, "accumulation": 2}, 2)
    yield _fsdp("FSDP", 8, micro_batch=_samples(4))
    yield _fsdp("FSDP × 4", 8, 4, micro_batch=_samples(4))
    yield _fsdp("FSDP full", 8, micro_batch=_samples(4), recompute=_again("full"))
    yield _fsdp("FSDP selective", 64, micro_batch=_samples(4), recompute=_again("selective"))
    tensor: dict[str, Any] = {
        "tensor": _ranks("tensor", 4),
        "sequence_parallel": ("sequence_parallel", True, True),
        "micro_batch": _samples(8),
    }
    yield _fsdp("FSDP TP", 32, **tensor)
    yield _fsdp("FSDP TP full", 32, **tensor, recompute=_again("full"))
    yield _fsdp("FSDP CP", 16, context=_ranks("context", 2), micro_batch=_samples(4))
    pipeline: dict[str, Any] = {"pipeline": _ranks("pipeline", 4), "micro_batch": _samples(2)}
    yield _fsdp("FSDP PP × 8", 16, 8, **pipeline)
    yield _fsdp("FSDP PP full × 8", 16, 8, **pipeline, recompute=_again("full"))


def compared(layout: Layout) -> dict[str, Any]:
    """Both figures of one layout, GiB: what is allocated on the fullest rank."""
    from training.simulate import configured, simulate

    config = configured(layout.world, layout.accumulation, layout.loop)
    found = simulate(config, "language_model", SHAPE, layout.world)
    most = max(found, key=lambda one: one["peak_bytes"])
    fields = {"gpus": layout.world, **MODEL, **layout.setting}
    return beside(layout.name, most, Setting(gpu="H100-80", **fields))


def beside(name: str, most: Mapping[str, Any], setting: Setting) -> dict[str, Any]:
    """What is simulated of the fullest rank, bytes, with what is foreseen."""
    told = {category: size / memory.GIB for category, size in most["peak"].items()}
    told["activations"] += told.pop("temporary")
    ours = memory.foresee(setting)
    sizes = {category: one.p50 for category, one in ours.categories.items()}
    return {
        "layout": name,
        "stage": [most["stage"], ours.stage],
        "simulated": told,
        "foreseen": {one: sum(sizes[part] for part in parts) for one, parts in PAIRS.items()},
        "reserved": [most["reserved"] / memory.GIB, ours.peak.p50],
        "parts": {"when": ours.when, **sizes},
    }


def main(
    only: Annotated[str, typer.Option(help="Layouts: a part of their names.")] = "",
    json_file: JsonFile = None,
) -> None:
    """Compare, and print a row for each layout."""
    found = [compared(layout) for layout in layouts() if only in layout.name]
    rows, errors = [], []
    for one in found:
        told, ours = one["simulated"], one["foreseen"]
        errors.append(sum(ours.values()) / sum(told.values()) - 1)
        cells = [f"{told[name]:.2f} / {ours[name]:.2f}" for name in PAIRS]
        cells.append(f"{sum(told.values()):.2f} / {sum(ours.values()):.2f}")
        cells += [f"{errors[-1]:+.1%}", "{:.2f} / {:.2f}".format(*one["reserved"])]
        rows.append((one["layout"], *cells))
    columns = ("layout", *PAIRS, "allocated", "error", "reserved")
    show_figures(columns, rows, "GiB simulated / foreseen", 200)
    print(f"allocated: mean error {mean(map(abs, errors)):.1%}, worst {max(map(abs, errors)):.1%}")
    keep(json_file, found)


if __name__ == "__main__":
    typer.run(main)
