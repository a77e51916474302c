"""Save and resume gigabytes on several processes, beside torch's DCP.

python -m benchmarks.checkpoints [--gb 1,2,4] [--ranks 2,4,8] [--rounds 1] [--small] [--json F]

Real processes (gloo) save and resume the state of FSDP-sharded weights with AdamW's moments: bytes
read, CPU, memory, and how long the loop stands still. ``DCP`` and ``DCP async`` are torch's. Exits
with 1 when a tensor came back wrong, or a rank of ours read more than 1.1 times its shard beside
the metadata.
"""

import itertools
import shutil
import statistics
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import typer

from benchmarks.checkpoints.session import Act, run_acts
from benchmarks.harness import Figure, JsonFile, show_table, track_steps, write_json

GB, MB = 1e9, 1e6
NEAR = 1.1
"""What a rank may read of a checkpoint beside the metadata, over the size of its shard."""
SAVES = {"ours": 2, "DCP": 1, "DCP async": 2}
RESHARDED = ((4, 2), (2, 8))
"""(number of ranks that save, number of ranks that resume)."""
COSTS = {"read": "bytes read on resume", "load_cpu": "CPU of a resume", "save_cpu": "CPU of a save",
         "stall": "stall, wall", "stall_cpu": "stall, CPU"}  # fmt: skip
Row = dict[str, Any]


def summarize_act(act: Act, ranks: Sequence[Row]) -> Row:
    """Return an act's table row: median costs over the ranks, and the most bytes any rank read."""
    row: Row = {"whose": act.contender, "ranks": len(ranks), "model": ranks[0]["model"]}
    if ranks[0]["saves"]:
        last = [one["saves"][-1] for one in ranks]
        costs = {"save_cpu": "cpu", "stall": "stall", "stall_cpu": "stall_cpu", "save_peak": "peak"}
        row |= {name: statistics.median(one[key] for one in last) for name, key in costs.items()}
    if act.loads:
        loads = [one["load"] for one in ranks]
        row |= {f"load_{what}": statistics.median(one[what] for one in loads)
                for what in ("cpu", "peak")}  # fmt: skip
        row["read"] = max(one["read"] for one in loads)
        row["over_shard"] = (row["read"] - ranks[0]["metadata"]) / ranks[0]["shard"]
        row["right"] = all(one["right"] for one in ranks)
    return row


def measure_acts(scratch: Path, world: int, acts: list[Act]) -> list[Row]:
    """Run the acts on ``world`` ranks, after tiny ones that warm up; return their rows."""
    warm = scratch / "warm"
    first = [Act(name, warm / name, 1e6, 1e5, 1, loads=True) for name in SAVES]
    found = run_acts(scratch, world, [*first, *acts])[len(first) :]
    shutil.rmtree(warm)
    return [summarize_act(act, ranks) for act, ranks in zip(acts, found, strict=True)]


def main(
    gb: str = "1,2,4",
    ranks: str = "2,4,8",
    rounds: int = 1,
    small: bool = False,
    json_file: JsonFile = None,
) -> None:
    """Measure checkpoints on as many ranks as saved them, and on others."""
    sizes = [float(one) * GB for one in ("0.01,0.02" if small else gb).split(",")]
    counts = [*map(int, ("1,2" if small else ranks).split(","))]
    weight, resharded = (0.5 * MB, ((2, 1),)) if small else (32 * MB, RESHARDED)
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        cases = itertools.product(sizes, counts, range(rounds))
        for size, world, turn in track_steps("bytes, ranks, round", cases):
            order = [*SAVES][turn % len(SAVES) :] + [*SAVES][: turn % len(SAVES)]
            acts = [Act(one, place / one, size, weight, SAVES[one], loads=True, removes=True)
                    for one in order]  # fmt: skip
            rows += measure_acts(place, world, acts)
        for before, after in track_steps("ranks that save and resume", resharded):
            names = ["ours", "DCP"]  # DCP async reads what DCP writes
            saved = [Act(one, place / one, min(sizes), weight, 1) for one in names]
            measure_acts(place, before, saved)
            acts = [Act(one, place / one, min(sizes), weight, loads=True, removes=True)
                    for one in names]  # fmt: skip
            rows += [row | {"before": before} for row in measure_acts(place, after, acts)]
    show_rows(rows)
    write_json(json_file, rows)
    raise typer.Exit(is_wrong(rows))


def is_wrong(rows: Sequence[Row]) -> bool:
    """Return whether a tensor came back wrong, or a rank of ours read more than its limit."""
    ours = [row["over_shard"] for row in rows if row["whose"] == "ours"]
    return not all(row["right"] for row in rows) or max(ours) > NEAR


def compute_ratios(rows: Sequence[Row], cost: str, peer: str) -> Figure:
    """Return our cost over a peer's for each case and round; ``cost``: its key in a row."""
    sides = [[row for row in rows if row["whose"] == whose and cost in row and "before" not in row]
             for whose in ("ours", peer)]  # fmt: skip
    keyed = [sorted(side, key=lambda row: (row["model"], row["ranks"])) for side in sides]
    return Figure(tuple(mine[cost] / its[cost] for mine, its in zip(*keyed, strict=True)))


def show_rows(rows: Sequence[Row]) -> None:
    """Print a row for each act, and the ratios of our costs to those of torch's DCP."""
    names = ("over_shard", "load_cpu", "save_cpu", "stall", "stall_cpu")
    cells = [
        (f"{row['model'] / GB:.2f}", f"{row.get('before', '')} {row['ranks']}", row["whose"],
         *(f"{row[name]:.3f}" if name in row else "" for name in names),
         "yes" if row["right"] else "NO")
        for row in rows
    ]  # fmt: skip
    columns = ("GB", "ranks", "whose", "read ÷ shard", "resume CPU s", "save CPU s", "stall s",
               "stall CPU s", "same")  # fmt: skip
    show_table(columns, cells)
    table = [(title, *(compute_ratios(rows, what, peer).text() for peer in ("DCP", "DCP async")))
            for what, title in COSTS.items()]  # fmt: skip
    show_table(("ours ÷ theirs: median (smallest–largest)", "DCP", "DCP async"), table)


if __name__ == "__main__":
    typer.run(main)
