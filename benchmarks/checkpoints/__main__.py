"""Save and resume gigabytes on several processes, beside torch's DCP.

python -m benchmarks.checkpoints [--gb 1,2,4] [--ranks 2,4,8] [--rounds 1] [--no-peers] [--json F]

Real processes (gloo) save and resume the state of FSDP-sharded weights with AdamW's moments: bytes
read, CPU, memory, and how long the loop stands still. Exits with 1 when a tensor came back wrong,
or a rank of ours read more than 1.1 times its shard beside the metadata.
"""

import shutil
import statistics
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import typer
from rich.progress import track

from benchmarks.checkpoints.session import Act, session
from benchmarks.harness import Figure, JsonFile, keep, show_table

GB = 1e9
NEAR = 1.1
"""Times its shard, beside the metadata: what a rank may read of a checkpoint."""


def measured_rows(
    acts: Sequence[Any], found: Sequence[list[dict[str, Any]]]
) -> list[dict[str, Any]]:
    """A row for each act: medians over the ranks, sums where it says so."""
    return [_row(act, ranks) for act, ranks in zip(acts, found, strict=True)]


def _row(act: Any, ranks: list[dict[str, Any]]) -> dict[str, Any]:
    row: dict[str, Any] = {"contender": act.contender, "ranks": len(ranks)}
    row |= {"model": ranks[0]["model"], "shard": ranks[0]["shard"]}
    for number, name in ((0, "first"), (-1, "save")):
        if ranks[0]["saves"]:
            row |= {f"{name}_{what}": statistics.median(one["saves"][number][what] for one in ranks)
                    for what in ("stall", "stall_cpu", "seconds", "cpu", "peak")}  # fmt: skip
    if act.loads:
        loads = [one["load"] for one in ranks]
        row |= {f"load_{what}": statistics.median(one[what] for one in loads)
                for what in ("seconds", "cpu", "peak")}  # fmt: skip
        row["load_read"] = max(one["read"] for one in loads)
        row["metadata"] = ranks[0]["metadata"]
        row["right"] = all(one["right"] for one in ranks)
    return row


def read_over_shard(row: dict[str, Any]) -> float:
    """Bytes that the rank that read most did read, without the metadata, over its shard."""
    return (row["load_read"] - row["metadata"]) / row["shard"]


def slopes(rows: Sequence[dict[str, Any]], what: str) -> dict[str, tuple[float, float]]:
    """Least squares of a cost on the sizes of shard and model, both at once.

    Returns:
        ``shard``, ``model``: (units a GB, its standard error); ``constant`` likewise.
    """
    names = ("constant", "shard", "model")
    sizes = np.array([[1, row["shard"] / GB, row["model"] / GB] for row in rows])
    values = np.array([row[what] for row in rows])
    if np.linalg.matrix_rank(sizes) < len(names) or len(rows) <= len(names):
        return {}
    fitted, *_ = np.linalg.lstsq(sizes, values, rcond=None)
    variance = ((values - sizes @ fitted) ** 2).sum() / (len(rows) - len(names))
    errors = np.sqrt(variance * np.diag(np.linalg.inv(sizes.T @ sizes)))
    return {name: (float(f), float(e)) for name, f, e in zip(names, fitted, errors, strict=True)}


def ratios(rows: Sequence[dict[str, Any]], what: str, peer: str) -> tuple[float, ...]:
    """Ours over a peer's, case by case and round by round; equal cases in their order."""
    ours = [row for row in rows if row["contender"] == "ours" and row.get(what)]
    theirs = [row for row in rows if row["contender"] == peer and row.get(what)]
    found = []
    for case in dict.fromkeys((row["model"], row["ranks"]) for row in ours):
        both = [
            [row[what] for row in side if (row["model"], row["ranks"]) == case]
            for side in (ours, theirs)
        ]
        found += [a / b for a, b in zip(*both, strict=False)]
    return tuple(found)


MB = 1e6
SAVES = {"ours": 2, "DCP": 1, "DCP async": 2}
RESHARDED = ((4, 2), (2, 8))
"""Ranks that save and ranks that resume."""


def main(
    gb: str = "1,2,4",
    ranks: str = "2,4,8",
    rounds: int = 1,
    weight_mb: float = 32,
    peers: bool = True,
    small: bool = False,
    scratch: Path | None = None,
    json_file: JsonFile = None,
) -> None:
    sizes = [float(one) for one in ("0.01,0.02" if small else gb).split(",")]
    counts = [*map(int, ("1,2" if small else ranks).split(","))]
    with tempfile.TemporaryDirectory(dir=scratch) as folder:
        told = measure(Path(folder), sizes, counts, rounds, 0.5 if small else weight_mb,
                       ((2, 1),) if small else RESHARDED, peers)  # fmt: skip
    show(told)
    keep(json_file, told)
    raise typer.Exit(is_wrong(told))


def measure(
    scratch: Path,
    sizes: list[float],
    counts: list[int],
    rounds: int,
    weight_mb: float,
    resharded: tuple[tuple[int, int], ...],
    peers: bool,
) -> dict[str, list]:
    """Rows for each contender: ``same``, on as many ranks; ``other``, on others."""
    same: list[dict[str, Any]] = []
    cases = [(size, world) for size in sizes for world in counts for _ in range(rounds)]
    for number, (size, world) in enumerate(track(cases, "checkpoints", transient=True)):
        order = [*SAVES][number % len(SAVES) :] + [*SAVES][: number % len(SAVES)]
        order = [name for name in order if peers or name == "ours"]
        acts = [
            Act(one, scratch / one, size * GB, weight_mb * MB, SAVES[one], loads=True, removes=True)
            for one in order
        ]
        same += measured_rows(acts, _session(scratch, world, acts))
    other = []
    for before, after in resharded:
        names = ["ours", "DCP"] if peers else ["ours"]  # DCP async reads what DCP writes
        size = min(sizes) * GB
        acts = [Act(one, scratch / one, size, weight_mb * MB, 1) for one in names]
        _session(scratch, before, acts)
        acts = [Act(one, scratch / one, size, weight_mb * MB, loads=True, removes=True)
                for one in names]  # fmt: skip
        rows = measured_rows(acts, _session(scratch, after, acts))
        other += [row | {"before": before} for row in rows]
    return {"same": same, "other": other}


def _session(scratch: Path, world: int, acts: list[Act]) -> list[list[dict[str, Any]]]:
    """As ``session``, after each contender has done the same with next to nothing."""
    warm = scratch / "warm"
    first = [Act(name, warm / name, 1e6, 1e5, 1, loads=True) for name in SAVES]
    found = session(scratch, world, [*first, *acts])[len(first) :]
    shutil.rmtree(warm)
    return found


def is_wrong(told: dict[str, list]) -> bool:
    rows = [*told["same"], *told["other"]]
    ours = [read_over_shard(row) for row in rows if row["contender"] == "ours"]
    return not all(row["right"] for row in rows) or max(ours) > NEAR


def show(told: dict[str, list]) -> None:
    """A row for each act, by which size costs grow, and how they compare with torch's."""
    columns = ("GB", "ranks", "whose", "read ÷ shard", "metadata MB", "resume CPU s",
               "resume memory ÷ shard", "save CPU s", "save memory ÷ shard", "stall s",
               "stall CPU s", "first stall s", "same")  # fmt: skip
    show_table(columns, map(_cells, [*told["same"], *told["other"]]), "", 160)
    rows = list(_slopes(told["same"]))
    if rows:
        columns = ("grows, ± its standard error", "whose", "a GB of the shard", "a GB of the model")
        show_table(columns, rows, "", 160)
    if any(row["contender"] != "ours" for row in told["same"]):
        columns = ("ours ÷ theirs: median (smallest to largest)", "DCP", "DCP async")
        show_table(columns, _ratios(told["same"]), "", 160)


def _cells(row: dict[str, Any]) -> list[str]:
    saved = f"{row['before']} → {row['ranks']}" if "before" in row else str(row["ranks"])
    save = ["–"] * 5
    if "save_cpu" in row:
        stalls = (row[name] for name in ("save_stall", "save_stall_cpu", "first_stall"))
        save = [f"{row['save_cpu']:.2f}", f"{row['first_peak'] / row['shard']:.2f}",
                *(f"{stall:.3f}" for stall in stalls)]  # fmt: skip
    return [f"{row['model'] / GB:.2f}", saved, row["contender"], f"{read_over_shard(row):.3f}",
            f"{row['metadata'] / MB:.2f}", f"{row['load_cpu']:.2f}",
            f"{row['load_peak'] / row['shard']:.2f}", *save, "yes" if row["right"] else "NO",
            ]  # fmt: skip


def _slopes(rows: list[dict[str, Any]]) -> Iterator[list[str]]:
    costs = {"resume, CPU s": ("load_cpu", 1.0), "resume, memory GB": ("load_peak", GB),
             "save, CPU s": ("save_cpu", 1.0), "save, memory GB": ("first_peak", GB),
             "stall, CPU s": ("save_stall_cpu", 1.0)}  # fmt: skip
    for title, (what, unit) in costs.items():
        for name in SAVES:
            if found := slopes([row for row in rows if row["contender"] == name], what):
                pairs = (found[one] for one in ("shard", "model"))
                yield [title, name, *(f"{f / unit:.3f} ± {e / unit:.3f}" for f, e in pairs)]


def _ratios(rows: list[dict[str, Any]]) -> Iterator[list[str]]:
    costs = {"bytes read on resume": "load_read", "CPU of a resume": "load_cpu",
             "CPU of a save": "save_cpu", "stall, wall": "save_stall",
             "stall, CPU": "save_stall_cpu"}  # fmt: skip
    for title, what in costs.items():
        yield [title, *(Figure(ratios(rows, what, peer)).text() for peer in ("DCP", "DCP async"))]


if __name__ == "__main__":
    typer.run(main)
