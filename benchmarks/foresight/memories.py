"""Compare foreseen memory with what was published, each source by constants of the others.

python -m benchmarks.foresight.memories [--json FILE] [--fit]

``--fit`` writes the constants of memory, from all sources, into trainyard/foresight/constants.json.
A row whose source does not state what sets its peak is listed and not fitted (``SILENT``).
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import mean, median
from typing import Annotated, Any

import numpy as np
import typer

from benchmarks.foresight.fitting import read
from benchmarks.harness import JsonFile, keep, show_table
from trainyard.common import atomic_file
from trainyard.foresight import memory
from trainyard.foresight.memory import CONSTANTS, STAYS, Constants, Memory
from trainyard.foresight.setting import Setting

FILE = Path(memory.__file__).with_name("constants.json")
SILENT = {
    "aws": "neither samples nor recomputation stand with the figure",
    "torchtitan_other": "recomputation does not stand with the figure",
}
SHARES = [step / 200 for step in range(41)]
"""Values of ``reserve`` that are tried."""


@dataclass(frozen=True, slots=True)
class Peak:
    """One published peak, GiB."""

    source: str
    setting: Setting
    measured: float


def peaks(sources: Mapping[str, Sequence[Mapping[str, Any]]]) -> list[Peak]:
    """The rows that state one."""
    return [
        Peak(name, Setting(**row["row"]), row["measured"]["memory_gib"])
        for name, rows in sources.items()
        for row in rows
        if "memory_gib" in row["measured"] and not row["outlier"]
    ]


def fit(rows: Sequence[Peak]) -> Constants:
    """The constants with the least median error; each source weighs as much as another.

    The interval's ends are deciles of what was measured of what comes and goes, over the foreseen.
    """
    weights = {one.source: 1 / sum(o.source == one.source for o in rows) for one in rows}
    reserve = min(SHARES, key=lambda share: _loss(rows, weights, share))
    tried = Constants(reserve, 1, 1, 1, 0)
    ratios, parts = [], []
    for one in rows:
        found = memory.predict_memory(one.setting, constants=tried)
        stays = sum(found.categories[name].p50 for name in STAYS)
        ratios.append((one.measured - stays) / (found.peak.p50 - stays))
        parts.append(weights[one.source])
    low, high = (_quantile(ratios, parts, share) for share in (0.1, 0.9))
    high = max(high, 1.05)
    return Constants(
        reserve=reserve,
        low=round(min(low, 0.95), 3),
        high=round(high, 3),
        worst=round(max(high, *ratios), 3),
        states=CONSTANTS.states,
    )


def _loss(rows: Sequence[Peak], weights: Mapping[str, float], reserve: float) -> float:
    constants = Constants(reserve, 1, 1, 1, 0)
    errors = [
        abs(_error(one, memory.predict_memory(one.setting, constants=constants))) for one in rows
    ]
    return sum(min(e, 0.2) * weights[one.source] for e, one in zip(errors, rows, strict=True))


def _quantile(values: Sequence[float], weights: Sequence[float], share: float) -> float:
    order = np.argsort(values)
    reached = np.cumsum(np.asarray(weights)[order]) / sum(weights)
    return float(np.asarray(values)[order][np.searchsorted(reached, share)])


def _error(one: Peak, found: Memory) -> float:
    return found.peak.p50 / one.measured - 1


def held_out(rows: Sequence[Peak]) -> list[tuple[Peak, Memory]]:
    """Each row by constants of the other sources."""
    found = []
    for name in dict.fromkeys(one.source for one in rows):
        others = [one for one in rows if one.source != name and one.source not in SILENT]
        constants = fit(others)
        found += [
            (one, memory.predict_memory(one.setting, constants=constants))
            for one in rows
            if one.source == name
        ]
    return found


def verdicts(sources: Mapping[str, Sequence[Mapping[str, Any]]]) -> dict[str, dict[str, int]]:
    """What is said of trainings that ran, and of those that ran out of memory."""
    counts = {kind: dict.fromkeys(("yes", "unsure", "no"), 0) for kind in ("ran", "oom")}
    for rows in sources.values():
        for row in rows:
            kind = "oom" if row["measured"].get("oom") else "ran"
            counts[kind][memory.predict_memory(Setting(**row["row"])).fits] += 1
    return counts


def line(name: str, pairs: Sequence[tuple[Peak, Memory]]) -> dict[str, Any]:
    """A source's errors."""
    errors = [_error(one, found) for one, found in pairs]
    inside = [found.peak.p10 <= one.measured <= found.peak.p90 for one, found in pairs]
    return {
        "source": name,
        "rows": len(pairs),
        "within 10 %": mean(abs(error) <= 0.1 for error in errors),
        "mean": mean(map(abs, errors)),
        "bias": median(errors),
        "worst": max(map(abs, errors)),
        "in the interval": mean(inside),
    }


def main(
    json_file: JsonFile = None,
    fit_: Annotated[bool, typer.Option("--fit", help="Write the constants.")] = False,
) -> None:
    """Print the table of errors and verdicts."""
    sources = read()
    rows = peaks(sources)
    if fit_:
        fitted = fit([one for one in rows if one.source not in SILENT])
        tree = json.loads(FILE.read_text(encoding="utf-8"))
        atomic_file.write_file(FILE, json.dumps(tree | {"memory": asdict(fitted)}, indent=2) + "\n")
        print(f"wrote {fitted}")
        return
    pairs = held_out(rows)
    names = list(dict.fromkeys(one.source for one in rows))
    lines = [line(name, [pair for pair in pairs if pair[0].source == name]) for name in names]
    lines.append(line("stated", [pair for pair in pairs if pair[0].source not in SILENT]))
    lines.append(line("all", pairs))
    shown = ([f"{v:.1%}" if isinstance(v, float) else v for v in one.values()] for one in lines)
    show_table([*lines[0]], shown, "Peak, each source by the others' constants")
    said = verdicts(sources)
    for kind, counts in said.items():
        print(f"{kind}: " + ", ".join(f"{count} called {word}" for word, count in counts.items()))
    for name, why in SILENT.items():
        print(f"{name}: not fitted: {why}")
    keep(json_file, {"errors": lines, "verdicts": said})


if __name__ == "__main__":
    typer.run(main)
