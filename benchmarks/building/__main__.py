"""How much host memory and time does a rank take to build its part of a model? Real ranks, fsdp.

python -m benchmarks.building [--ranks 1,2,4,8] [--layers 8] [--dim 768] [--ways ours,pretrained]
    [--json FILE]

ours        on meta, sharded, filled element by element (``training.initial``)
pretrained  as ours, then the weights of a safetensors folder, each rank reading its part
torchtitan  on meta, fully_shard, to_empty, init_weights: torch draws, other numbers on other meshes
whole       every rank builds the whole model first, as this was before

Memory is the largest growth of a rank's anonymous memory over what it had before, against its part
of weights and buffers. Time is of its processor. Over several numbers of ranks a line is laid by
least squares: so much for each MB of the part, and so much besides.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from rich.console import Console
from rich.table import Table
from safetensors.torch import save_file

from tests.training.worlds import free_port
from training.initial.build_model import built, real
from training.workloads import load

WAYS = ("ours", "pretrained", "torchtitan", "whole")


def main(
    ranks: str = "1,2,4,8",
    layers: int = 8,
    dim: int = 768,
    ways: str = ",".join(WAYS),
    json_file: Annotated[Path | None, typer.Option("--json")] = None,
) -> None:
    settings = {
        "context_length": 64,
        "layers": layers,
        "heads": 8,
        "dim": dim,
        "norm_eps": 1e-6,
        "vocabulary": 4096,
    }
    found: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as scratch:
        base = Path(scratch) / "base"
        write_base(base, settings)
        for world in map(int, ranks.split(",")):
            for way in ways.split(","):
                out = Path(scratch) / f"{way}-{world}"
                found[f"{way}, {world}"] = run(way, world, settings, base, out)
    table = Table("way, ranks", "shard MB", "peak MB", "peak / shard", "CPU s a rank")
    for name, one in found.items():
        share = one["peak_mb"] / one["shard_mb"]
        numbers = (one["shard_mb"], one["peak_mb"], share, one["seconds"])
        table.add_row(name, *(f"{number:.2f}" for number in numbers))
    Console().print(table)
    if "," in ranks:
        for way in ways.split(","):
            parts = [one for name, one in found.items() if name.startswith(f"{way}, ")]
            sizes = [[one[key] for one in parts] for key in ("shard_mb", "peak_mb")]
            slope, besides = np.polyfit(*sizes, 1)
            print(f"{way}: {slope:.2f} MB for each MB of a rank's part, and {besides:.1f} MB")
    if json_file:
        json_file.write_text(json.dumps(found, indent=1))


def write_base(folder: Path, settings: dict) -> None:
    """A pretrained model in Hugging Face's layout."""
    workload = load("language_model", settings)
    weights, config = workload.export(real(built(workload.model, 1)).state_dict())
    folder.mkdir()
    save_file({n: t.contiguous() for n, t in weights.items()}, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(config))


def run(way: str, world: int, settings: dict, base: Path, out: Path) -> dict[str, float]:
    """The rank with the largest peak."""
    meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    given = [way, json.dumps(settings), str(base) if way == "pretrained" else "", str(out)]
    command = [sys.executable, "-m", "benchmarks.building.rank", *given]
    processes = [
        subprocess.Popen(
            command,
            env=os.environ
            | meeting
            | {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", "WORLD_SIZE": str(world)}
            | {"RANK": str(rank), "LOCAL_RANK": str(rank)},
        )
        for rank in range(world)
    ]
    if any(process.wait() for process in processes):
        raise typer.Exit(1)
    parts = [json.loads(Path(f"{out}.{rank}").read_text()) for rank in range(world)]
    return max(parts, key=lambda part: part["peak_mb"])


if __name__ == "__main__":
    typer.run(main)
