"""Does the strategy change the curve? Every one against a single process, on real ranks (gloo).

python -m benchmarks.strategies [--precision float64] [--steps 100] [--only DDP]
    [--json F]    keep each curve there when it is there; those it has are not trained again
    [--documents] samples of several documents, across which nothing attends
    [--seed N]    other initial weights and another order: what one seed has to one side is chance
                  where others have it to the other
    [--golden]    write the single process's losses where the tests find them

In float32 a difference can be rounding or an error; in float64 rounding is a billion times smaller
and an error is not. In bfloat16 the layouts round at other places: what counts is that a curve lies
neither above nor below the other one, so its bias has a column. Exits with 1 when a strategy is off
by more than the tolerance, or, in bfloat16, to one side.
"""

import json
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from benchmarks import resumed
from benchmarks.strategies.bias import BATCHES, bias
from benchmarks.strategies.cases import CASES, MODEL, SETTINGS, container, write_data
from tests.fakes import launch
from tests.training import worlds
from tests.training.trainings import losses

COMPILING = 900  # seconds that a training may take which compiles on busy cores
GOLDEN = Path(__file__).with_name("golden.json")
CURVES = {"losses": "loss", "validation_losses": "validation_loss"}
"""A curve's name here → in the training's history."""
TOLERANCE = {"float64": 1e-13, "float32": 1e-6, "bfloat16": 5e-3}


def main(
    precision: str = "float32",
    steps: int = SETTINGS["max_steps"],
    only: str = "",
    json_file: Annotated[Path | None, typer.Option("--json")] = None,
    golden: bool = False,
    documents: bool = False,
    seed: int = 0,
) -> None:
    settings = SETTINGS | {"precision": precision, "max_steps": steps}
    if seed:
        settings |= {"seed": seed}
    if documents:
        settings |= {"workload_config": json.dumps(MODEL | {"attend": "document"})}
    chosen = {n: case for n, case in CASES.items() if only in n or n == "single"}
    if precision == "float64":  # DeepSpeed keeps its weights in float32
        chosen = {n: case for n, case in chosen.items() if not n.startswith("ZeRO")}
    columns = "strategy", "ranks", "largest difference", "validation", "mean, signed", "seconds"
    table, worst, wrong = Table(*columns, box=None, pad_edge=False), 0.0, []
    console = Console(width=None if sys.stdout.isatty() else 130)
    found: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory() as scratch:
        data = Path(scratch) / "data"
        write_data(data, packed=documents)

        def trained(name: str) -> dict[str, Any]:
            return curves(name, container(data, Path(scratch) / name.replace(" ", "_")), settings)

        for name, found[name] in resumed.each(chosen, trained, json_file, settings):
            if "failed" in found[name]:
                wrong.append(f"{name} failed: {found[name]['failed']}")
                continue
            pairs = [(_steps(found[name][key]), _steps(found["single"][key])) for key in CURVES]
            off = [distance(*pair) for pair in pairs]
            mean = bias(*pairs[0]) if steps >= BATCHES else None
            worst = max(worst, *off)
            if mean and mean.found and precision == "bfloat16":
                wrong.append(f"{name} is to one side by more than chance")
            numbers = (*(f"{one:.1e}" for one in off), str(mean), f"{found[name]['seconds']:.0f}")
            table.add_row(name, str(CASES[name][0]), *numbers)
            console.print(" | ".join((name, *numbers)), highlight=False)
    console.print(table)
    limit = TOLERANCE[precision]
    print(f"largest relative difference {worst:.1e}, {precision}, {steps} steps; limit {limit:.0e}")
    print("\n".join(wrong), end="")
    if golden:
        kept = {key: found["single"][key] for key in CURVES}
        GOLDEN.write_text(json.dumps(kept, indent=1) + "\n")
    raise typer.Exit(worst > limit or bool(wrong))


def curves(name: str, root: Path, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Train a case in a container's folders; its losses by step, and how long it took."""
    began = time.perf_counter()
    world, differs = CASES[name]
    try:
        if "mpirun" in name:
            launch.mpirun(root, **(settings | differs))
        else:
            worlds.train(root, world, seconds=COMPILING, **(settings | differs))
    except AssertionError as error:
        return {"failed": reason(root) or str(error)}
    found = {key: losses(root, line) for key, line in CURVES.items()}
    return found | {"seconds": time.perf_counter() - began}


def reason(root: Path) -> str:
    """What a training has left of why it failed; or the last line of rank 0."""
    for place in (root / "output/failure", root / "rank-0.log"):
        if place.is_file() and (lines := place.read_text().splitlines()):
            return lines[-1]
    return ""


def _steps(curve: Mapping[str, float]) -> dict[int, float]:
    """A curve out of JSON, whose keys are text."""
    return {int(step): loss for step, loss in curve.items()}


def distance(curve: dict[int, float], reference: dict[int, float]) -> float:
    """The largest relative difference over the steps, which have to be the same ones."""
    if curve.keys() != reference.keys():
        raise ValueError(f"steps {sorted(curve)} are not those of the reference")
    return max(abs(curve[step] / reference[step] - 1) for step in curve)


if __name__ == "__main__":
    typer.run(main)
