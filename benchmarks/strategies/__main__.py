"""Compare every strategy's curve with a single process's, on real ranks (gloo).

python -m benchmarks.strategies [--precision float64] [--steps 100] [--only DDP]
    [--json F]     keep each curve there when it is there; those it has are not trained again
    [--seeds N]    that many initial weights and orders: from two on, a bias is told from chance
    [--seed N]     the first of them
    [--mechanisms] a layout or two of each kind, so that many seeds can be had
    [--optimizer lamb]  in AdamW's place
    [--float8 tensorwise]  products of linear layers in float8, emulated; also rowwise
    [--documents]  samples of several documents, across which nothing attends
    [--golden]     write the single process's losses where the tests find them

In float32 a difference can be rounding or an error; in float64 rounding is a billion times smaller
and an error is not. In bfloat16 and float16 the layouts round at other places: what counts is that
their curves lie neither above nor below (see ``rows``). Exits with 1 when a strategy is off by more
than the tolerance, or, in 16 bits, to one side.
"""

import json
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import typer

from benchmarks import resumed
from benchmarks.harness import screen
from benchmarks.strategies.cases import (
    BESIDE,
    BESIDE_FLOAT8,
    CASES,
    FLOAT8,
    GOLDEN,
    JUDGED,
    MECHANISMS,
    MODEL,
    SETTINGS,
    TOLERANCE,
    write_data,
)
from benchmarks.strategies.rows import Row, biased, table
from benchmarks.strategies.runs import CURVES, Found, Run, Runs


def main(
    precision: str = "float32",
    steps: int = SETTINGS["max_steps"],
    only: str = "",
    json_file: Annotated[Path | None, typer.Option("--json")] = None,
    golden: bool = False,
    documents: bool = False,
    seed: int = 0,
    seeds: Annotated[int, typer.Option(min=1)] = 1,
    mechanisms: bool = False,
    optimizer: str = "adamw",
    float8: str = "none",
) -> None:
    settings = SETTINGS | {"precision": precision, "max_steps": steps}
    if optimizer != "adamw":
        settings |= {"optimizer": optimizer}
    if float8 != "none":
        settings |= {"float8": float8}
    if documents:
        settings |= {"workload_config": json.dumps(MODEL | {"attend": "document"})}
    names = [*(MECHANISMS if mechanisms else CASES)]
    layouts = chosen(names, only, precision, optimizer, float8)
    runs = [Run(layout, s) for layout in layouts for s in range(seed, seed + seeds)]
    console = screen(130)
    rows, wrong, single = list[Row](), list[str](), list[Found]()
    for layout, found in trained(runs, settings, documents, json_file):
        if failed := {one["failed"] for one in found if "failed" in one}:
            wrong.append(f"{layout} failed: {'; '.join(failed)}")
            if layout == "single":  # nothing to hold the others to
                break
            continue
        single = single or found
        rows.append(Row.of(layout, found, single))
        console.print(" | ".join(rows[-1].cells), highlight=False)
    console.print(table(rows))
    worst = max((row.worst for row in rows if row.layout in JUDGED), default=0.0)
    limit = TOLERANCE[precision if float8 == "none" else "float8"]
    print(f"largest relative difference {worst:.1e}, {precision}, {steps} steps; limit {limit:.0e}")
    if precision in ("bfloat16", "float16") or float8 != "none":
        wrong += [f"{name} is to one side by more than chance" for name in biased(rows)]
    print("\n".join(wrong))
    if golden:
        GOLDEN.write_text(json.dumps({key: single[0][key] for key in CURVES}, indent=1) + "\n")
    raise typer.Exit(worst > limit or bool(wrong))


def chosen(
    names: Iterable[str], only: str, precision: str, optimizer: str, float8: str
) -> Iterator[str]:
    """Of these layouts those that are asked for, one process first."""
    yield "single"
    if float8 != "none":
        yield from BESIDE_FLOAT8
        names = [*(n for n in names if _multiplies(n)), *(FLOAT8 if float8 == "tensorwise" else ())]
    elif precision == "bfloat16":
        yield from BESIDE
    for name in names:
        # Its weights are float32, it scales float16's losses by itself, and knows no layers.
        other = precision in ("float64", "float16") or optimizer != "adamw"
        apart = other and name.startswith("ZeRO")
        if name != "single" and only in name and not apart:
            yield name


def _multiplies(name: str) -> bool:
    """Whether a layout can in float8: a rank's part of a layer of 32 columns has 16 of them."""
    return name != "tensor × 4" and "ZeRO" not in name


def trained(
    runs: Sequence[Run], settings: Mapping[str, Any], packed: bool, json_file: Path | None
) -> Iterator[tuple[str, list[Found]]]:
    """Each layout with what its runs gave, in their order; what the file has is taken from it."""
    known = resumed.kept(json_file, settings)
    with tempfile.TemporaryDirectory() as scratch:
        data = Path(scratch) / "data"
        write_data(data, packed=packed)
        missing = [run for run in runs if str(run) not in known]
        made = Runs(data, Path(scratch), settings, missing)
        found = resumed.each(map(str, runs), made.found, json_file, settings)
        for layout, count in Counter(run.layout for run in runs).items():
            yield layout, [one for _, one in islice(found, count)]


if __name__ == "__main__":
    typer.run(main)
