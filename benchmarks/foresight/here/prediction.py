"""What counted work costs on this machine: measured prices, times what was calibrated.

Seconds are a sum over a step's calls. Each product, attention, element-wise call and optimizer's
step has the price that it has when it is made alone, each collective the probe's for its kind and
size, each fresh page the kernel's. What torch and the strategies do in Python between them is
proportional to counts: of calls, which cost more where each is chosen in Python (selective) or goes
through DTensor (split), of FSDP's units (sharded), and of steps. One factor for each of these is
fitted, none negative, on settings other than those that are predicted. Bytes are those
that are alive at the peak, and what a process has besides.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import nnls

from benchmarks.foresight.here.prices import Prices
from benchmarks.foresight.here.settings import Here
from benchmarks.foresight.here.work import Rank

PRICED = ("product", "attention", "other", "optimizer", "collective", "pages")
CALLS = 1000
"""A unit and a step cost as much as so many calls of torch, for each in the factor."""

TIGHT = 0.05
"""How strongly the factor of what has a price is drawn to 1, what was measured: a factor that is
off by 1 counts as a setting that is off by so much."""

COVERED = 0.8
"""Share of the settings that an interval is meant to hold."""


def seconds(setting: Here, ranks: Sequence[Rank], prices: Prices) -> dict[str, float]:
    """Priced parts of a step, all ranks together; what is counted is in calls' worth."""
    found = dict.fromkeys(PRICED, 0.0)
    calls = 0.0
    for call in (call for rank in ranks for call in rank.calls):
        calls += call.count * prices.call
        if call.kind != "free":
            found[call.kind] += call.count * prices.of(call, setting.ranks)
    found["pages"] = prices.page * sum(prices.fresh[setting.name])
    units = setting.layers * setting.micro_batches * setting.ranks * (setting.layout == "fsdp")
    return found | {
        "calls": calls,
        "selective": calls * (setting.recompute == "selective"),
        "split": calls * (setting.layout == "tensor"),
        "sharded": units * CALLS * prices.call,
        "steps": setting.ranks * CALLS * prices.call,
    }


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
