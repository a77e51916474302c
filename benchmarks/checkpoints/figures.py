"""What the measures say: by which size a cost grows, and how it compares with torch's."""

import statistics
from collections.abc import Sequence
from typing import Any

import numpy as np

GB = 1e9
NEAR = 1.1
"""Times its shard, beside the metadata: what a rank may read of a checkpoint."""


def rows(acts: Sequence[Any], found: Sequence[list[dict[str, Any]]]) -> list[dict[str, Any]]:
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


def ratios(rows: Sequence[dict[str, Any]], what: str, peer: str) -> list[float]:
    """Ours over a peer's, case by case and round by round, sorted; equal cases in their order."""
    ours = [row for row in rows if row["contender"] == "ours" and row.get(what)]
    theirs = [row for row in rows if row["contender"] == peer and row.get(what)]
    found = []
    for case in dict.fromkeys((row["model"], row["ranks"]) for row in ours):
        both = [
            [row[what] for row in side if (row["model"], row["ranks"]) == case]
            for side in (ours, theirs)
        ]
        found += [a / b for a, b in zip(*both, strict=False)]
    return sorted(found)
