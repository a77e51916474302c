"""What the ranks send each other in a step, counted, beside the formulas of training.traffic.

python -m benchmarks.collectives [--only hybrid] [--real]

As rank 0 of a world whose other ranks are not there (torch's fake process group), or with --real
among real ones over gloo, up to 8. Exits with 1 where a count is not what the formula says.
"""

import json
import os
import tempfile
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from benchmarks.collectives.cases import CASES, MODEL, NOT_FAKED
from benchmarks.collectives.step import alike, config_of, count, expected, in_fake_world
from tests.training import worlds
from training.strategies.ranks import joined
from training.traffic import Traffic

MOST = 8  # real processes
SECONDS = 60  # that a rank waits for the others


def main(
    only: Annotated[str, typer.Option(help="Cases whose name has this.")] = "",
    real: Annotated[bool, typer.Option(help="Count among real ranks.")] = False,
) -> None:
    table = Table("layout", "ranks", "axis", "collective", "type", "messages", "bytes", "formula")
    wrong = 0
    for name, (world, settings, micro_batches, differs) in CASES.items():
        if only not in name or (real and world > MOST):
            continue
        case = world, settings, micro_batches, MODEL | differs
        counted = among_ranks(name) if real or name in NOT_FAKED else in_fake_world(*case)
        said, degrees = expected(*case)
        wrong += not alike(counted, said)
        for number, key in enumerate(sorted({*counted.rows, *said.rows})):
            first = (name, str(world)) if not number else ("", "")
            told, is_ = said.rows.get(key, (0, 0)), counted.rows.get(key, (0, 0))
            same = "=" if told == is_ else f"{told[0]}, {told[1]}"
            table.add_row(*first, *key, f"{is_[0]}", f"{is_[1]:,}", same)
        table.add_row("", "", "over the wire", "", "", "", f"{said.wire(degrees):,.0f}", "")
    Console(width=120).print(table)
    print(f"{wrong} layouts send something else than the formulas say")
    raise typer.Exit(bool(wrong))


def among_ranks(name: str) -> Traffic:
    """What rank 0 of real ranks has counted."""
    from benchmarks.collectives.__main__ import run_rank  # by a name that the ranks know, too

    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch)
        (root / "case").write_text(name)
        codes = worlds.finish(worlds.start(root, CASES[name][0], target=run_rank))
        if any(codes):
            raise RuntimeError((root / "rank-0.log").read_text())
        return read(root, name)


def read(root: Path, name: str) -> Traffic:
    """What rank 0 wrote of a case."""
    rows = json.loads((root / f"{name}.json").read_text())
    return Traffic({tuple(key): tuple(value) for key, value in rows})


def run_rank(given: list[str], environment: dict[str, str], root: Path, rank: int) -> None:
    """A rank that counts the cases that the folder's file ``case`` names, a line each."""
    os.environ.update(environment)
    with (root / f"rank-{rank}.log").open("a", buffering=1) as log:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
        with joined(SECONDS) as ranks:
            for name in (root / "case").read_text().splitlines():
                world, settings, micro_batches, differs = CASES[name]
                config = config_of(settings, world, micro_batches)
                found = count(config, MODEL | differs, ranks)
                if rank == 0:
                    rows = [[key, value] for key, value in found.rows.items()]
                    (root / f"{name}.json").write_text(json.dumps(rows))


if __name__ == "__main__":
    typer.run(main)
