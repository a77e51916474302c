"""Host reads of a training step, for each strategy: on a GPU each is a wait for the device.

python -m benchmarks.host_reads [--only DDP] [--before CHECKOUT] [--json F]

Counted on real ranks (gloo) in two steps that are not logged, by ``reads``; beside
them those of another checkout of Trainyard, if one is named. Exits with 1 when there is any here.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import track
from rich.table import Table

from benchmarks.host_reads import rank as script
from benchmarks.strategies.cases import CASES, SETTINGS, container, write_data
from tests.training.trainings import arguments
from tests.training.worlds import free_port

HERE = Path(__file__).parents[2]
STEPS = {"max_steps": 6, "log_interval": 100, "validation_interval": 100,
         "checkpoint_interval": 100, "precision": "float32"}  # fmt: skip
SHOWN = (
    *("single", "accumulation 8", "DDP × 2", "FSDP2 × 2", "hybrid 2 × 2", "tensor × 2"),
    *("pipeline × 2", "context × 2"),
)
MORE = {
    "LAMB, averages": (1, {"strategy": "single", "optimizer": "lamb", "ema_decay": 0.9}),
    "LAMB, averages, FSDP2 × 2": (2, {"strategy": "fsdp", "optimizer": "lamb", "ema_decay": 0.9}),
    "AdamW, averages, FSDP2 × 2": (2, {"strategy": "fsdp", "ema_decay": 0.9}),
    "float16, DDP × 2": (2, {"strategy": "ddp", "precision": "float16"}),
    "float16, FSDP2 × 2": (2, {"strategy": "fsdp", "precision": "float16"}),
    "float8, single": (1, {"strategy": "single", "float8": "rowwise"}),
    "float8 gathered, FSDP2 × 2": (
        2,
        {"strategy": "fsdp", "float8": "tensorwise", "float8_all_gather": True},
    ),
}


def main(
    only: str = "",
    before: Path | None = None,
    json_file: Annotated[Path | None, typer.Option("--json")] = None,
) -> None:
    cases = {name: CASES[name] for name in SHOWN if name in CASES} | MORE
    checkouts = {"before": before.resolve()} if before else {}
    checkouts["here"] = HERE
    found: dict[str, dict[str, list]] = {}
    with tempfile.TemporaryDirectory() as scratch:
        write_data(Path(scratch) / "data")
        chosen = [name for name in cases if only in name]
        for name in track(chosen, "training", transient=True):
            for which, checkout in checkouts.items():
                root = container(Path(scratch) / "data", Path(scratch) / f"{which} {name}")
                found.setdefault(name, {})[which] = counted(checkout, root, *cases[name])
    table = Table("strategy", *(f"reads a step, {which}" for which in checkouts), "which")
    for name, told in found.items():
        numbers = [f"{len(told[which]) / len(script.STEPS):g}" for which in checkouts]
        table.add_row(name, *numbers, "\n".join(sorted({" ".join(one) for one in told["here"]})))
    Console(width=160).print(table)
    if json_file:
        json_file.write_text(json.dumps(found, indent=1))
    raise typer.Exit(any(told["here"] for told in found.values()))


def counted(checkout: Path, root: Path, world: int, differs: dict) -> list:
    """The reads of rank 0, in both steps."""
    file, given = root / "reads.json", arguments(root, SETTINGS | STEPS | differs)
    port, processes = str(free_port()), []
    for rank in range(world):
        environment = os.environ | {
            "PYTHONPATH": str(checkout), "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo",
            "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": str(world),
            "RANK": str(rank), "LOCAL_RANK": str(rank),
        }  # fmt: skip
        reads = Path(__file__).with_name("reads.py")
        out = file if rank == 0 else file.with_name(f"reads-{rank}.json")
        command = [sys.executable, script.__file__, str(checkout), str(reads), str(out), *given]
        with (root / f"rank-{rank}.log").open("w") as log:
            processes.append(subprocess.Popen(command, env=environment, stdout=log, stderr=log))
    codes = [process.wait(600) for process in processes]
    if any(codes):
        raise RuntimeError(f"{root}: ranks ended with {codes}: {(root / 'rank-0.log').read_text()}")
    return [read for step in json.loads(file.read_text()) for read in step]


if __name__ == "__main__":
    typer.run(main)
