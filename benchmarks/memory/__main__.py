"""How much memory a GPU needs for Llama's shapes on 32 to 512 ranks, and what others have measured.

python -m benchmarks.memory [--only "70B on 512"] [--json FILE] [--plot memory.png]

Each layout is simulated by ``training.simulate``: the training's own code on tensors without
contents. Nothing in it is fitted to the published figures beside it. A layout of 405B takes
minutes: each is said when it is there, and those that FILE has are not simulated again.
"""

from pathlib import Path
from statistics import mean
from typing import Annotated, Any

import typer
from matplotlib.figure import Figure
from rich.table import Table

from benchmarks import resumed
from benchmarks.harness import screen
from benchmarks.memory.cases import ELSEWHERE, OURS, PUBLISHED, SHAPES, Case
from training.simulate import configured, simulate
from training.simulation.allocations import CATEGORIES
from training.simulation.simulation_report import COLOURS, GIB


def main(
    only: Annotated[str, typer.Option(help="Layouts: a part of their names.")] = "",
    json_: Annotated[
        Path | None, typer.Option("--json", help="Keep all figures here, as they come.")
    ] = None,
    plot: Annotated[Path | None, typer.Option(help="A picture of the layouts.")] = None,
) -> None:
    """Simulate every layout, and compare where somebody has measured."""
    cases = {case.title: case for case in (*PUBLISHED, *OURS) if only in case.title}
    if not cases:
        raise typer.BadParameter(f"--only {only}: no layout's name has it, like '70B on 512'")
    console = screen(150)
    found = []
    for title, one in resumed.each(cases, lambda title: fullest(cases[title]), json_, {}):
        found.append((cases[title], one))
        console.print(f"{title}: {one['reserved'] / GIB:.1f} GiB, CPU {one['cpu_seconds']:.0f} s")
    if ours := [pair for pair in found if pair[0].published is None]:
        console.print(layouts(ours))
    compared = [pair for pair in found if pair[0].published is not None]
    if compared:
        console.print(comparison(compared))
        errors = [abs(error(*pair)) for pair in compared]
        print(f"mean error {mean(errors):.1%} of {len(errors)} rows")
        if stated := [abs(error(*pair)) for pair in compared if pair[0].stated]:
            print(f"mean error {mean(stated):.1%} of the {len(stated)} whose settings are stated")
        for rows, why in ELSEWHERE.items():
            console.print(f"not simulated: {rows}: {why}", highlight=False)
    if plot:
        draw(found, plot)


def fullest(case: Case) -> dict[str, Any]:
    """What is simulated of the pipeline stage that needs most."""
    settings = {"strategy": "fsdp", **case.settings}
    config = configured(case.world, case.accumulation, settings)
    shape = SHAPES[case.shape] | case.model
    found = simulate(config, "language_model", shape, case.world)
    most = max(found, key=lambda one: one["reserved"])
    sizes = {name: value for name, value in most.items() if name != "moments"}
    return sizes | {"cpu_seconds": sum(one["cpu_seconds"] for one in found)}


def error(case: Case, one: dict[str, Any]) -> float:
    """Simulated over published, less 1: of what the allocator reserves, as it is published."""
    return one["reserved"] / GIB / case.published - 1


def layouts(found: list[tuple[Case, dict[str, Any]]]) -> Table:
    """A row for each layout of ours; GiB of the fullest rank."""
    made = Table(box=None, pad_edge=False, title="GiB a GPU, fullest stage", title_justify="left")
    for name in ("shape", "ranks", "layout", *CATEGORIES, "peak", "reserved"):
        made.add_column(name, justify="left" if name in ("shape", "layout") else "right")
    for case, one in found:
        numbers = (*one["peak"].values(), one["peak_bytes"], one["reserved"])
        sizes = (f"{number / GIB:,.1f}" for number in numbers)
        made.add_row(case.shape, str(case.world), case.name, *sizes)
    return made


def comparison(found: list[tuple[Case, dict[str, Any]]]) -> Table:
    """A row for each published figure."""
    made = Table(
        box=None, pad_edge=False, title="\nagainst published figures", title_justify="left"
    )
    for name in ("shape", "ranks", "layout", "published", "simulated", "error", "note"):
        made.add_column(name)
    for case, one in found:
        numbers = (
            f"{case.published:.1f}",
            f"{one['reserved'] / GIB:.1f}",
            f"{error(case, one):+.1%}",
        )
        made.add_row(case.shape, str(case.world), case.name, *numbers, case.note)
    return made


def draw(found: list[tuple[Case, dict[str, Any]]], path: Path) -> None:
    """A bar for each layout, by what memory is for; a mark where somebody has measured."""
    figure = Figure(figsize=(10, 0.42 * len(found) + 1.4), layout="constrained")
    axes = figure.subplots()
    names = [case.title for case, _ in found]
    left = [0.0] * len(found)
    rest = [(one["reserved"] - one["peak_bytes"]) / GIB for _, one in found]
    sizes = {name: [one["peak"][name] / GIB for _, one in found] for name in CATEGORIES}
    colours = dict(zip(CATEGORIES, COLOURS, strict=True)) | {"reserved besides": "#e2e8f0"}
    for name, widths in (sizes | {"reserved besides": rest}).items():
        axes.barh(names, widths, left=left, label=name, color=colours[name])
        left = [a + b for a, b in zip(left, widths, strict=True)]
    measured = [(case.published, n) for n, (case, _) in enumerate(found) if case.published]
    if measured:
        axes.plot(*zip(*measured, strict=True), "D", color="black", label="published")
    axes.invert_yaxis()
    axes.set(xlabel="GiB a GPU")
    axes.grid(axis="x", color="#cbd5e1")
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside lower center", ncols=4, frameon=False)
    figure.savefig(path, dpi=150)


if __name__ == "__main__":
    typer.run(main)
