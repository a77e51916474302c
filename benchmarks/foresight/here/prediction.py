"""What counted work costs on this machine: the probe's prices, times what was calibrated.

Seconds are a sum over a step's calls. Each product, attention, moved tensor, optimizer's step and
collective has the price that ``training.probe`` measured for its type and size; what torch and the
strategies do in Python between them is proportional to counts: of blocks whose operators are chosen
one by one (selective), that are FSDP's units, or that are split over tensor-parallel ranks, and of
steps. One factor for each of these is fitted, none negative, on settings other than those that are
predicted. Bytes are those that are alive at the peak, and what a process has besides.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.interpolate import RegularGridInterpolator
from scipy.optimize import nnls

from benchmarks.foresight.here.settings import Here
from benchmarks.foresight.here.work import Call, Rank

PRICED = ("product", "attention", "other", "optimizer", "collective")
TYPES = ("float32", "bfloat16")
CALLS = 1000
"""What is counted costs as much as so many calls of torch, for each in the factor."""

TIGHT = 0.05
"""How strongly the factor of what has a price is drawn to 1, what the probe says: a factor that is
off by 1 counts as a setting that is off by so much."""

COVERED = 0.8
"""Share of the settings that an interval is meant to hold."""


class Prices:
    """Seconds of a call on one thread, from the JSON that ``python -m training.probe`` prints."""

    def __init__(self, probe: Mapping[str, Any]) -> None:
        ranks = probe["measured"]
        self.call = float(np.mean([one["call"]["forward_seconds"] for one in ranks]))
        self._products = {kind: _grid(ranks, kind) for kind in TYPES}
        self._attention = {kind: _line(ranks, "attention", "flops", kind) for kind in TYPES}
        self._moved = _line(ranks, "moved", "bytes")
        steps = [one["optimizer"] for one in ranks]
        self._weight = float(np.mean([one["seconds"] / one["weights"] for one in steps]))
        self._sent = _line(ranks, "collective", "bytes")

    def of(self, call: Call) -> float:
        """Of one call; 0 where nothing is computed or moved."""
        kind = call.dtype if call.dtype in TYPES else "float32"
        match call.kind:
            case "product" if call.sizes:
                return call.flops * self._products[kind](call.sizes)
            case "product" | "attention":
                return self._attention[kind](call.flops)
            case "other":
                return self._moved(max(call.bytes, 1))
            case "optimizer":
                return call.bytes / 16 * self._weight  # weight, gradient and two moments: 16 bytes
            case "collective":
                return self._sent(max(call.bytes, 1))
        return 0.0


def _grid(ranks: Sequence[Mapping[str, Any]], kind: str) -> Callable[[Sequence[int]], float]:
    """(rows, inner width, columns) of a product → seconds an operation."""
    seconds: dict[tuple[int, ...], list[float]] = {}
    for row in (row for one in ranks for row in one["matmul"] if row["dtype"] == kind):
        size = row["rows"], row["inner"], row["columns"]
        seconds.setdefault(size, []).append(row["seconds"] / (2 * np.prod(size)))
    axes = [np.log(sorted({size[axis] for size in seconds})) for axis in range(3)]
    values = np.log([np.mean(seconds[size]) for size in sorted(seconds)])
    found = RegularGridInterpolator(axes, values.reshape([len(axis) for axis in axes]))

    def priced(size: Sequence[int]) -> float:
        inside = [np.clip(np.log(n), axis[0], axis[-1]) for n, axis in zip(size, axes, strict=True)]
        return float(np.exp(found(inside)[0]))

    return priced


def _line(
    ranks: Sequence[Mapping[str, Any]], table: str, size: str, kind: str = ""
) -> Callable[[float], float]:
    """Size → seconds, between measured sizes by a power law, beyond them in proportion."""
    rows = [row for one in ranks for row in one[table] if not kind or row["dtype"] == kind]
    sizes = sorted({row[size] for row in rows})
    means = [np.mean([row["seconds"] for row in rows if row[size] == one]) for one in sizes]
    x, y = np.log(sizes), np.log(means)

    def priced(asked: float) -> float:
        beyond = max(0.0, float(np.log(asked)) - x[-1])
        return float(np.exp(np.interp(np.log(asked), x, y) + beyond))

    return priced


def seconds(setting: Here, ranks: Sequence[Rank], prices: Prices) -> dict[str, float]:
    """Priced parts of a step, all ranks together; what is counted is in calls' worth."""
    found = dict.fromkeys(PRICED, 0.0)
    for call in (call for rank in ranks for call in rank.calls):
        if call.kind in found:
            found[call.kind] += call.count * prices.of(call)
    # Pipeline ranks share the blocks; of any other layout each has all of them, whole or in part.
    blocks = setting.layers * setting.micro_batches
    blocks *= 1 if setting.layout == "pipeline" else setting.ranks
    counts = {
        "selective": blocks * (setting.recompute == "selective"),
        "sharded": blocks * (setting.layout == "fsdp"),
        "split": blocks * (setting.layout == "tensor"),
        "steps": setting.ranks,
    }
    return found | {name: count * CALLS * prices.call for name, count in counts.items()}


def size(setting: Here, ranks: Sequence[Rank], prices: Prices) -> dict[str, float]:
    """Parts of the fullest rank's memory, bytes; what a process has besides is fitted by layout."""
    mib = float(2**20)
    several = 100 * mib * (setting.ranks > 1)
    alive = float(max(rank.peak_bytes for rank in ranks))
    return {"alive": alive, "process": 100 * mib, "ranks": several}


@dataclass(frozen=True)
class Model:
    """Fitted factors, and how far settings are off that had no part in their fit.

    Attributes:
        off: the natural logarithm by which ``COVERED`` of them are off at most.
    """

    factors: Mapping[str, float]
    off: float

    def of(self, parts: Mapping[str, float]) -> float:
        """The prediction for these parts."""
        return sum(factor * parts[name] for name, factor in self.factors.items())


def fitted(parts: Sequence[Mapping[str, float]], measured: Sequence[float]) -> Model:
    """Factors by least squares of relative errors; ``off`` by leaving each setting out in turn."""
    names = list(parts[0])
    a, y = np.array([[one[name] for name in names] for one in parts]), np.array(measured)
    off = []
    for number in range(len(y)):
        others = np.arange(len(y)) != number
        off.append(abs(np.log(a[number] @ _factors(a[others], y[others], names) / y[number])))
    rank = min(len(off) - 1, int(np.ceil(COVERED * (len(off) + 1))) - 1)
    found = _factors(a, y, names)
    factors = {name: float(one) for name, one in zip(names, found, strict=True)}
    return Model(factors, float(sorted(off)[rank]))


def _factors(a: np.ndarray, y: np.ndarray, names: Sequence[str]) -> np.ndarray:
    priced = [n for n, name in enumerate(names) if name in PRICED or name == "alive"]
    drawn = TIGHT * np.eye(len(names))[priced]
    rows, wanted = np.vstack([a / y[:, None], drawn]), np.ones(len(y) + len(priced))
    wanted[len(y) :] = TIGHT
    return nnls(rows, wanted)[0]
