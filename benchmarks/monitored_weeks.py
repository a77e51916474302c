"""Draw a baseline and a week of ten features, and answers with their truths, by NumPy alone.

python -m benchmarks.monitored_weeks WEEKS BASELINE SIZE DRIFT
prints what Evidently names in each week, with its defaults, in a Python that has it
"""

import json
import sys

import numpy as np

DRIFTED = ("amount", "carrier")
"""Features that drift: the first by half a standard deviation, the second by one value, whose
share grows from 18 to 40 %."""
CATEGORIES = {"carrier": 8, "country": 60, "device": 3, "product": 400}
"""Category → its number of values, of frequencies as 1 / rank."""
Columns = dict[str, np.ndarray]
FAULTS = {
    "product: every value another": "product",
    "price: x 1000 in 8 %": "price",
    "speed: -999 in 5 %": "speed",
}
"""Fault of what sends a week's requests → the feature that it changes."""


def draw_weeks(seed: int, sizes: tuple[int, int], drift: bool) -> tuple[Columns, Columns]:
    """Draw baseline and week: feature → object array of floats or texts, None where missing.

    Args:
        sizes: numbers of requests of both.
    """
    random = np.random.default_rng((seed, drift))
    return _draw_requests(random, sizes[0], False), _draw_requests(random, sizes[1], drift)


def inject_fault(columns: Columns, fault: str, seed: int) -> Columns:
    """Return a week's features with a fault of what sends the requests, one of ``FAULTS``."""
    name = FAULTS[fault]
    values = columns[name].copy()
    share = np.random.default_rng((seed, 13)).random(len(values))
    if name == "product":
        values = np.array([f"new {value}" for value in values], object)
    elif name == "price":
        values[share < 0.08] *= 1000
    else:
        values[share < 0.05] = -999.0
    return {**columns, name: values}


def _draw_requests(random: np.random.Generator, size: int, drift: bool) -> Columns:
    shared = random.normal(size=size)  # three features depend on each other
    found: Columns = {
        "amount": random.normal(size=size) + 0.5 * drift,
        "price": np.exp(random.normal(size=size)),
        "age": random.integers(18, 90, size).astype(float),
        "clicks": random.poisson(1.0, size).astype(float),
        "speed": shared + 0.3 * random.normal(size=size),
        "power": shared + 0.3 * random.normal(size=size),
    }
    for name, number in CATEGORIES.items():
        shares = 1 / np.arange(1, number + 1)
        if drift and name in DRIFTED:
            shares[1] *= 3
        found[name] = random.choice([f"v{i}" for i in range(number)], size, p=shares / shares.sum())
    columns = {name: values.astype(object) for name, values in found.items()}
    for name in ("power", "device"):
        columns[name][random.random(size) < 0.1] = None
    return columns


def draw_answers(
    seed: int, size: int, worse: bool, groups: int | None = None
) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """Draw probabilities of a calibrated model, their truths, and the group of each.

    Args:
        worse: adds a normal of deviation 2 to the log-odds of the truths.
        groups: number of groups whose truths have a common normal part in their log-odds, of
            deviation 0.5, which the model does not know; None: truths are independent.
    """
    random = np.random.default_rng((seed, worse, 7))
    odds = random.normal(-1, 1.2, size)
    names = None if groups is None else np.arange(size) % groups
    shift = np.zeros(size) if names is None else random.normal(0, 0.5, groups)[names]
    true = odds + shift + worse * random.normal(0, 2, size)
    return 1 / (1 + np.exp(-odds)), (random.random(size) * (1 + np.exp(-true)) < 1) * 1.0, names


def list_evidently_drifts(seed: int, sizes: tuple[int, int], drift: bool) -> list[str]:
    """Return the columns that Evidently calls drifted."""
    import pandas as pd
    from evidently import DataDefinition, Dataset, Report
    from evidently.presets import DataDriftPreset

    both = []
    for columns in draw_weeks(seed, sizes, drift):
        numbers = [name for name in columns if name not in CATEGORIES]
        frame = pd.DataFrame(columns).astype(dict.fromkeys(numbers, float))
        definition = DataDefinition(numerical_columns=numbers, categorical_columns=[*CATEGORIES])
        both.append(Dataset.from_pandas(frame, data_definition=definition))
    metrics = json.loads(Report([DataDriftPreset()]).run(both[1], both[0]).json())["metrics"]
    found = [(one["config"], one["value"]) for one in metrics if "column" in one["config"]]
    return [config["column"] for config, value in found
            if ("p_value" in config["method"]) == (value < config["threshold"])]  # fmt: skip


if __name__ == "__main__":
    weeks, baseline, size, drift = map(int, sys.argv[1:])
    for seed in range(weeks):
        print(",".join(list_evidently_drifts(seed, (baseline, size), bool(drift))), flush=True)
