"""Does the strategy change the curve? Every one against a single process, on real ranks (gloo).

python -m benchmarks.strategies [--precision float64] [--steps 100] [--only DDP] [--json F]
    [--documents] samples of several documents, across which nothing attends
    [--golden]    write the single process's losses where the tests find them

In float32 a difference can be rounding or an error; in float64 rounding is a billion times smaller
and an error is not. In bfloat16 the layouts round at other places: what counts is that a curve lies
neither above nor below the other one, so its bias has a column. Exits with 1 when a strategy is off
by more than the tolerance, or, in bfloat16, to one side.
"""

import json
import tempfile
import time
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import track
from rich.table import Table

from benchmarks.strategies.bias import BATCHES, bias
from benchmarks.strategies.cases import CASES, MODEL, SETTINGS, container, write_data
from tests.fakes import launch
from tests.training import worlds
from tests.training.trainings import losses

COMPILING = 900  # seconds that a training may take which compiles on busy cores
GOLDEN = Path(__file__).with_name("golden.json")
TOLERANCE = {"float64": 1e-13, "float32": 1e-6, "bfloat16": 5e-3}


def main(
    precision: str = "float32",
    steps: int = SETTINGS["max_steps"],
    only: str = "",
    json_file: Annotated[Path | None, typer.Option("--json")] = None,
    golden: bool = False,
    documents: bool = False,
) -> None:
    settings = SETTINGS | {"precision": precision, "max_steps": steps}
    if documents:
        settings |= {"workload_config": json.dumps(MODEL | {"attend": "document"})}
    columns = "strategy", "ranks", "largest difference", "validation", "mean, signed", "seconds"
    table, found, worst, biased = Table(*columns), {}, 0.0, []
    with tempfile.TemporaryDirectory() as scratch:
        data = Path(scratch) / "data"
        write_data(data, packed=documents)
        chosen = {n: case for n, case in CASES.items() if only in n or n == "single"}
        if precision == "float64":  # DeepSpeed keeps its weights in float32
            chosen = {n: case for n, case in chosen.items() if not n.startswith("ZeRO")}
        for name, (world, differs) in track(chosen.items(), "training", transient=True):
            began = time.perf_counter()
            root = container(data, Path(scratch) / name.replace(" ", "_"))
            if "mpirun" in name:
                launch.mpirun(root, **(settings | differs))
            else:
                worlds.train(root, world, seconds=COMPILING, **(settings | differs))
            curves = losses(root), losses(root, "validation_loss")
            found[name] = {"losses": curves[0], "validation_losses": curves[1]}
            reference = found["single"]["losses"], found["single"]["validation_losses"]
            off = [distance(*pair) for pair in zip(curves, reference, strict=True)]
            worst = max(worst, *off)
            mean = bias(curves[0], reference[0]) if steps >= BATCHES else None
            biased += [name] if mean and mean.found and precision == "bfloat16" else []
            seconds = f"{time.perf_counter() - began:.0f}"
            table.add_row(name, str(world), *(f"{one:.1e}" for one in off), str(mean), seconds)
    Console().print(table)
    limit = TOLERANCE[precision]
    print(f"largest relative difference {worst:.1e}, {precision}, {steps} steps; limit {limit:.0e}")
    if biased:
        print(f"to one side by more than chance: {', '.join(biased)}")
    if json_file:
        json_file.write_text(json.dumps(found, indent=1))
    if golden:
        GOLDEN.write_text(json.dumps(found["single"], indent=1) + "\n")
    raise typer.Exit(worst > limit or bool(biased))


def distance(curve: dict[int, float], reference: dict[int, float]) -> float:
    """The largest relative difference over the steps, which have to be the same ones."""
    if curve.keys() != reference.keys():
        raise ValueError(f"steps {sorted(curve)} are not those of the reference")
    return max(abs(curve[step] / reference[step] - 1) for step in curve)


if __name__ == "__main__":
    typer.run(main)
