"""Compare every strategy's curve with a single process's, on real ranks (gloo).

python -m benchmarks.strategies [--precision float64] [--steps 100] [--only DDP] [--json F]
    [--golden]     write the single process's losses where the tests find them

In float32 a difference can be rounding or an error; in float64 rounding is a billion times smaller
and an error is not. Exits with 1 when a strategy is off by more than the tolerance.
"""

import json
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import typer

from benchmarks.harness import JsonFile, show_table, track_steps, write_json
from tests.fakes import launch
from tests.training import worlds
from tests.training.strategies.cases import (
    CASES,
    GOLDEN,
    SETTINGS,
    TOLERANCE,
    container,
    distance,
    write_data,
)
from tests.training.trainings import losses

COMPILING = 900  # seconds that a training may take which compiles on busy cores
CURVES = {"losses": "loss", "validation_losses": "validation_loss"}
"""Name of a curve → its key in the training's history."""
Curves = dict[str, dict[int, float]]


def main(
    precision: str = "float32",
    steps: int = SETTINGS["max_steps"],
    only: str = "",
    golden: bool = False,
    json_file: JsonFile = None,
) -> None:
    """Train each layout, and print how far its losses are from one process's."""
    settings = SETTINGS | {"precision": precision, "max_steps": steps}
    rows, found, wrong = [], {}, []
    for layout, curves in train_layouts(choose_layouts(only, precision), settings):
        if "failed" in curves:
            wrong.append(f"{layout} failed: {curves['failed']}")
            if layout == "single":  # nothing to hold the others to
                break
            continue
        found[layout] = curves
        until, *apart = compare_curves(curves, found["single"])
        shown = [f"{one:.1e}" for one in apart]
        rows.append((layout, CASES[layout][0], *shown, f"to step {until}" if until else ""))
        if max(apart) > TOLERANCE[precision]:
            wrong.append(f"{layout} is off by {max(apart):.1e}")
    show_table(("strategy", "ranks", "largest difference", "validation", "compared"), rows)
    worst = max((float(cell) for row in rows for cell in row[2:4]), default=0.0)
    limit = TOLERANCE[precision]
    print(f"largest relative difference {worst:.1e}, {precision}, {steps} steps; limit {limit:.0e}")
    print("\n".join(wrong))
    write_json(json_file, {"setting": settings, "curves": found})
    if golden:
        kept = {key: found["single"][key] for key in CURVES}
        GOLDEN.write_text(json.dumps(kept, indent=1) + "\n")
    raise typer.Exit(bool(wrong))


def choose_layouts(only: str, precision: str) -> list[str]:
    """Return the layouts whose name contains ``only``, one process first.

    DeepSpeed's weights are float32, and it scales float16's losses by itself.
    """
    fit = [n for n in CASES if not (n.startswith("ZeRO") and precision in ("float64", "float16"))]
    return ["single", *(name for name in fit if name != "single" and only in name)]


def train_layouts(names: list[str], settings: Mapping[str, Any]) -> Iterator[tuple[str, Curves]]:
    """Train each layout; yield its name and its curves (losses by step), or why it ``failed``."""
    with tempfile.TemporaryDirectory() as scratch:
        data = Path(scratch) / "data"
        write_data(data)
        for layout in track_steps("layouts", names):
            root, (world, differs) = container(data, Path(scratch) / "root"), CASES[layout]
            began, given, why = time.perf_counter(), {**settings, **differs}, ""
            try:
                if "mpirun" in layout:
                    launch.mpirun(root, **given)
                else:
                    worlds.train_each({root: given}, world, seconds=COMPILING)
            except AssertionError as error:
                why = str(error)
            yield layout, read_curves(root, why) | {"seconds": time.perf_counter() - began}
            root.rename(Path(scratch) / f"done-{time.monotonic_ns()}")


def read_curves(root: Path, why: str) -> dict[str, Any]:
    """Return the curves of a training that ended in a folder; ``why``: cause of its failure."""
    if not (root / "model/history.jsonl").is_file():
        return {"failed": find_failure_reason(root) or why or "it did not end"}
    found = {key: losses(root, line) for key, line in CURVES.items()}
    return found | {"skipped": losses(root, "skipped_steps")}


def find_failure_reason(root: Path) -> str:
    """Return why a training failed: the last line of its failure file, or of rank 0's log."""
    for place in (root / "output/failure", root / "rank-0.log"):
        if place.is_file() and (lines := place.read_text().splitlines()):
            return lines[-1]
    return ""


def compare_curves(mine: Curves, single: Curves) -> tuple[int | None, float, float]:
    """Return the first step that only one training skipped, and the largest relative differences.

    Only float16 skips steps (None: neither did). The differences are of losses and of validation
    losses that the updates before that step shape: a validation comes after its step's update.
    """
    left_out = [one["skipped"] for one in (mine, single)]
    steps = {*left_out[0], *left_out[1]}
    parted = [n for n in steps if left_out[0].get(n, 0) != left_out[1].get(n, 0)]
    until = min(parted, default=None)
    found = []
    for key, after in zip(CURVES, (False, True), strict=True):
        both = [{n: x for n, x in one[key].items() if until is None or n + after <= until}
                for one in (mine, single)]  # fmt: skip
        found.append(distance(*both) if both[0] else 0.0)
    return until, found[0], found[1]


if __name__ == "__main__":
    typer.run(main)
