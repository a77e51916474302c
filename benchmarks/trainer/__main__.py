"""Others' loops on our shards: losses, interruptions, cost.

python -m benchmarks.trainer [--only losses|kills|cost] [--quick] [--json FILE]

losses: Hugging Face's Trainer beside the native loop, on the same shards, from the same weights, in
one process and in two: the largest relative difference of any step's loss. Once over the native
module, once over transformers' Llama (examples/llama), which computes the same in another order.
kills: Trainer, Accelerate and Lightning, killed at random steps and started again; the final
weights have to be the uninterrupted training's, bit for bit. cost: CPU seconds of a Trainer's step
over our shards, over that of the usual datasets, round by round.
"""

import importlib.util
import json as json_format
import os
import random
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from benchmarks.shards.figures import Figure
from benchmarks.trainer import curve
from benchmarks.trainer.loops import LOOPS, interrupted, run, same_model

CLOSE = 1e-6
OURS = "the native module"
WORLDS = (1, 2)
console = Console(width=None if sys.stdout.isatty() else 120)


def main(
    only: Annotated[str, typer.Option(help="losses, kills or cost; default: all.")] = "",
    quick: Annotated[bool, typer.Option(help="Few steps, one round: does it run?")] = False,
    rounds: Annotated[int, typer.Option(min=1, help="Of cost.")] = 5,
    kills: Annotated[int, typer.Option(min=1, help="Of each training.")] = 3,
    seed: Annotated[int, typer.Option(help="Of the moments of the kills.")] = 0,
    json: Annotated[Path | None, typer.Option(help="Write every figure to this file.")] = None,
) -> None:
    """Exit status 1 if the native module's loss is off by more than 1e-6, or a model is another."""
    random.seed(seed)
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="benchmarks-trainer-") as scratch:
        root = Path(scratch)
        curve.write_data(root / "data")
        if only in ("", "losses"):
            found["losses"] = losses(root, 10 if quick else 100)
        if only in ("", "kills"):
            found["kills"] = killed(root, 1 if quick else kills, 16 if quick else 60)
        if only in ("", "cost"):
            found["cost"] = cost(root, 1 if quick else rounds, 10 if quick else 60)
    if json:
        json.write_text(json_format.dumps(found, indent=1))
    differences = found.get("losses", {}).items()
    off = max((off for name, off in differences if name.startswith(OURS)), default=0.0)
    raise typer.Exit(int(off > CLOSE or not all(found.get("kills", {}).values())))


def losses(root: Path, steps: int) -> dict[str, float]:
    """Model and ranks → the largest relative difference between the Trainer's and our losses."""
    curve.initial(root / "base")
    found = {}
    for world in WORLDS:
        batch = 2 * world * curve.MICRO  # two micro-batches of each rank
        ours = curve.native(root / "data", root / f"native-{world}", world, steps, batch)
        for model, base in ((OURS, None), ("transformers' Llama", root / "base")):
            out = root / f"trainer-{world}-{base is None}"
            theirs = curve.trainers(root / "data", out, world, steps, batch, base)
            off = found[f"{model}, {world} ranks"] = curve.difference(theirs, ours)
            told = f"losses: {model}, {world} ranks, {steps} steps: off by {off:.1e} at most"
            console.print(told, highlight=False)
    return found


def killed(root: Path, kills: int, steps: int) -> dict[str, bool]:
    """Loop and ranks → whether the model is the uninterrupted one's."""
    found, save = {}, 3
    for loop in LOOPS:
        extra = ["--dropout=0.1"] if loop.dropout else []
        for world in WORLDS:
            plain, torn = root / f"{loop.name}-{world}", root / f"{loop.name}-{world}-killed"
            arguments = [*loop.arguments(steps, save, plain / "checkpoints"), *extra]
            run(loop.script, arguments, root / "data", plain, world)
            after = interrupted(loop, root / "data", torn, world, steps, save, kills, *extra)
            same = found[f"{loop.name}, {world} ranks"] = same_model(plain, torn)
            console.print(
                f"kills: {loop.name}, {world} ranks, killed after {after} further steps of "
                f"{steps}: {'bitwise the uninterrupted model' if same else 'ANOTHER MODEL'}",
                highlight=False,
            )
    return found


def cost(root: Path, rounds: int, steps: int) -> dict[str, Any]:
    """CPU seconds of a step, and the ratio of ours to each usual dataset's, in turns."""
    kinds = ["ours", "memory", *(["datasets"] if importlib.util.find_spec("datasets") else [])]
    taken: dict[str, list[float]] = {kind: [] for kind in kinds}
    for number in range(rounds):
        turn = number % len(kinds)
        for kind in kinds[turn:] + kinds[:turn]:
            taken[kind].append(_step_cpu(kind, root, root / f"{kind}-{number}", steps))
    figures = {kind: Figure(tuple(values)) for kind, values in taken.items()}
    for kind, figure in figures.items():
        ratio = figures["ours"].over(figure).text()
        told = f"cost: {kind}: {figure.text(1e-3, 1)} ms of CPU a step; ours ÷ it {ratio}"
        console.print(told, highlight=False)
    return {kind: figure.data() for kind, figure in figures.items()}


def _step_cpu(kind: str, root: Path, out: Path, steps: int) -> float:
    out.mkdir()
    module = ["-m", "benchmarks.trainer.step_cpu", kind, str(root / "data/train")]
    done = subprocess.run(
        [sys.executable, *module, str(out), str(steps)],
        env=os.environ | {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    [line] = [line for line in done.stdout.splitlines() if line.startswith("cpu ")]
    return float(line.split()[1])


if __name__ == "__main__":
    typer.run(main)
