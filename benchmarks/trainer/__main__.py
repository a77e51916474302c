"""Others' loops on our shards: losses, interruptions.

python -m benchmarks.trainer [--only losses|kills] [--quick] [--json FILE]

losses: Hugging Face's Trainer beside the native loop, on the same shards, from the same weights, in
one process and in two: the largest relative difference of any step's loss. Over the native module
float32 has to agree within 1e-6 where both loops add up in the same order. Where they do not, only
rounding may differ, so there float64 has to agree within 1e-12: an error in samples, weights or
means would be as large in it as in float32. Beside it stands the native loop's own difference
between one process and two. Then, with no limit, transformers' Llama (examples/llama), which
computes the same in another order.
kills: Trainer, Accelerate and Lightning, killed at random steps and started again; the final
weights have to be the uninterrupted training's, bit for bit.
"""

import random
import tempfile
from pathlib import Path
from typing import Annotated, Any

import typer

from benchmarks.harness import JsonFile, keep, screen
from benchmarks.trainer import curve
from benchmarks.trainer.loops import LOOPS, interrupted, run, same_model

WORLDS = (1, 2)
HALVES = curve.Setting(world=2, micro=curve.BATCH // 2)
"""Two processes that have the same samples in both loops, so the same sums."""
DEALT = curve.Setting(world=2)
"""Two processes with other samples in each loop: their sums round in another way."""
LIMITS: dict[curve.Setting, float | None] = {
    curve.Setting(): 1e-6,
    HALVES: 1e-6,
    DEALT: None,  # the same in float64 is held to a limit instead
    curve.Setting(precision="float64"): 1e-12,
    curve.Setting(world=2, precision="float64"): 1e-12,
}
"""The largest relative difference of a loss that the native module may have in the Trainer."""
Losses = dict[int, float]
console = screen()


def main(
    only: Annotated[str, typer.Option(help="losses or kills; default: both.")] = "",
    quick: Annotated[bool, typer.Option(help="Few steps: does it run?")] = False,
    kills: Annotated[int, typer.Option(min=1, max=14, help="Of each training, of 60 steps.")] = 3,
    seed: Annotated[int, typer.Option(help="Of the moments of the kills.")] = 0,
    json_file: JsonFile = None,
) -> None:
    """Exit status 1 if a loss is off by more than its limit, or a model is another."""
    random.seed(seed)
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="benchmarks-trainer-") as scratch:
        root = Path(scratch)
        curve.write_data(root / "data")
        if only in ("", "losses"):
            found["losses"] = losses(root, 10 if quick else 100)
        if only in ("", "kills"):
            found["kills"] = killed(root, 1 if quick else kills, 16 if quick else 60)
    keep(json_file, found)
    close = all(line["within"] for line in found.get("losses", {}).values())
    raise typer.Exit(int(not close or not all(found.get("kills", {}).values())))


def losses(root: Path, steps: int) -> dict[str, dict[str, Any]]:
    """What was compared → the largest relative difference of a step's loss, and its limit."""
    found: dict[str, dict[str, Any]] = {}

    def compared(name: str, one: Losses, other: Losses, limit: float | None = None) -> None:
        off = curve.difference(one, other)
        found[name] = {"off": off, "limit": limit, "within": limit is None or off <= limit}
        held = f", of {limit:.0e} allowed" if limit else ""
        console.print(f"losses: {name}: off by {off:.1e} at most{held}", highlight=False)

    data, ours = root / "data", {}
    for number, (setting, limit) in enumerate(LIMITS.items()):
        ours[setting] = curve.native(data, root / f"native-{number}", steps, setting)
        theirs = curve.trainers(data, root / f"trainer-{number}", steps, setting)
        compared(f"the native module in the Trainer, {setting}", theirs, ours[setting], limit)
    one, two = (curve.Setting(world) for world in WORLDS)
    compared("the native loop with two processes and with one, float32", ours[two], ours[one])
    curve.initial(root / "base")
    for setting in (one, two):
        out = root / f"llama-{setting.world}"
        theirs = curve.trainers(data, out, steps, setting, root / "base")
        compared(f"transformers' Llama in the Trainer, {setting}", theirs, ours[setting])
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


if __name__ == "__main__":
    typer.run(main)
