"""Compare predicted memory with published peaks, each source by constants of the others.

python -m benchmarks.foresight.memories [--json FILE] [--fit]

``--fit`` writes the constants of memory, from all sources, into trainyard/foresight/constants.json.
A row whose source does not state what sets its peak is listed and not fitted (``SILENT``).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import mean, median
from typing import Annotated, Any

import numpy as np
import typer

from benchmarks.foresight.fitting import read_rows, write_constants
from benchmarks.harness import JsonFile, show_table, write_json
from trainyard.foresight import memory
from trainyard.foresight.memory import CONSTANTS, STAYS, Constants, Memory
from trainyard.foresight.setting import Setting

SILENT = {
    "aws": "neither samples nor recomputation stand with the figure",
    "torchtitan_other": "recomputation does not stand with the figure",
}
SHARES = [step / 200 for step in range(41)]
"""Values of ``reserve`` that are tried."""


@dataclass(frozen=True, slots=True)
class Peak:
    """A published peak of memory, in GiB."""

    source: str
    setting: Setting
    measured: float


def select_peaks(sources: Mapping[str, Sequence[Mapping[str, Any]]]) -> list[Peak]:
    """Return the peak memory of each row that states one, without the outliers."""
    return [
        Peak(name, Setting(**row["row"]), row["measured"]["memory_gib"])
        for name, rows in sources.items()
        for row in rows
        if "memory_gib" in row["measured"] and not row["outlier"]
    ]


def fit_constants(rows: Sequence[Peak]) -> Constants:
    """Return the constants of least mean error, capped at 20 % a row; all sources weigh the same.

    The interval's ends are deciles of measured over predicted memory that comes and goes.
    """
    weights = {one.source: 1 / sum(o.source == one.source for o in rows) for one in rows}
    reserve = min(SHARES, key=lambda share: _compute_loss(rows, weights, share))
    ratios, parts = [], []
    for one, found in _predict(rows, Constants(reserve, 1, 1, 1, 0)):
        stays = sum(found.categories[name].p50 for name in STAYS)
        ratios.append((one.measured - stays) / (found.peak.p50 - stays))
        parts.append(weights[one.source])
    low, high = (_compute_quantile(ratios, parts, share) for share in (0.1, 0.9))
    high = max(high, 1.05)
    low, high, worst = (round(end, 3) for end in (min(low, 0.95), high, max(high, *ratios)))
    return Constants(reserve, low, high, worst, CONSTANTS.states)


def _compute_loss(rows: Sequence[Peak], weights: Mapping[str, float], reserve: float) -> float:
    pairs = _predict(rows, Constants(reserve, 1, 1, 1, 0))
    return sum(min(abs(_compute_error(*pair)), 0.2) * weights[pair[0].source] for pair in pairs)


def _predict(rows: Sequence[Peak], constants: Constants) -> list[tuple[Peak, Memory]]:
    """Return each peak with its prediction."""
    return [(one, memory.predict_memory(one.setting, constants=constants)) for one in rows]


def _compute_quantile(values: Sequence[float], weights: Sequence[float], share: float) -> float:
    order = np.argsort(values)
    reached = np.cumsum(np.asarray(weights)[order]) / sum(weights)
    return float(np.asarray(values)[order][np.searchsorted(reached, share)])


def _compute_error(peak: Peak, predicted: Memory) -> float:
    return predicted.peak.p50 / peak.measured - 1


def predict_held_out_peaks(rows: Sequence[Peak]) -> list[tuple[Peak, Memory]]:
    """Return each peak with its prediction by constants that are fitted to other sources."""
    found = []
    for name in dict.fromkeys(one.source for one in rows):
        others = [one for one in rows if one.source != name and one.source not in SILENT]
        found += _predict([one for one in rows if one.source == name], fit_constants(others))
    return found


def count_verdicts(sources: Mapping[str, Sequence[Mapping[str, Any]]]) -> dict[str, dict[str, int]]:
    """Count the predicted ``fits`` of trainings that ran, and of those that ran out of memory."""
    counts = {kind: dict.fromkeys(("yes", "unsure", "no"), 0) for kind in ("ran", "oom")}
    for rows in sources.values():
        for row in rows:
            kind = "oom" if row["measured"].get("oom") else "ran"
            counts[kind][memory.predict_memory(Setting(**row["row"])).fits] += 1
    return counts


def score_peaks(name: str, pairs: Sequence[tuple[Peak, Memory]]) -> dict[str, Any]:
    """Return a source's row of the table: a summary of its errors."""
    errors = [_compute_error(one, found) for one, found in pairs]
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
    fit_: Annotated[bool, typer.Option("--fit_constants", help="Write the constants.")] = False,
) -> None:
    """Print the table of errors and verdicts."""
    sources = read_rows()
    rows = select_peaks(sources)
    if fit_:
        fitted = fit_constants([one for one in rows if one.source not in SILENT])
        write_constants("memory", fitted)
        print(f"wrote {fitted}")
        return
    pairs = predict_held_out_peaks(rows)
    names = list(dict.fromkeys(one.source for one in rows))
    lines = [
        score_peaks(name, [pair for pair in pairs if pair[0].source == name]) for name in names
    ]
    lines.append(score_peaks("stated", [pair for pair in pairs if pair[0].source not in SILENT]))
    lines.append(score_peaks("all", pairs))
    shown = ([f"{v:.1%}" if isinstance(v, float) else v for v in one.values()] for one in lines)
    show_table([*lines[0]], shown, "Peak, each source by the others' constants")
    answers = count_verdicts(sources)
    for kind, counts in answers.items():
        print(f"{kind}: " + ", ".join(f"{count} called {word}" for word, count in counts.items()))
    for name, why in SILENT.items():
        print(f"{name}: not fitted: {why}")
    write_json(json_file, {"errors": lines, "verdicts": answers})


if __name__ == "__main__":
    typer.run(main)
