"""What Evidently names, with its defaults, in the weeks that ``weeks`` draws; in its own Python.

python -m benchmarks.monitoring.evidently_peer WEEKS BASELINE SIZE DRIFT
prints the names of each week as a JSON list
"""

import json
import sys

import pandas as pd
from evidently import DataDefinition, Dataset, Report
from evidently.presets import DataDriftPreset

from benchmarks.monitoring.weeks import CATEGORIES, draw


def named(seed: int, sizes: tuple[int, int], drift: bool) -> list[str]:
    """Return the columns that Evidently calls drifted."""
    both = []
    numbers: list[str] = []
    for columns in draw(seed, sizes, drift):
        numbers = [name for name in columns if name not in CATEGORIES]
        frame = pd.DataFrame(columns).astype(dict.fromkeys(numbers, float))
        definition = DataDefinition(numerical_columns=numbers, categorical_columns=[*CATEGORIES])
        both.append(Dataset.from_pandas(frame, data_definition=definition))
    report = json.loads(Report([DataDriftPreset()]).run(both[1], both[0]).json())
    found = [(one["config"], one["value"]) for one in report["metrics"] if "column" in
             one["config"]]  # fmt: skip
    return [
        config["column"]
        for config, value in found
        if ("p_value" in config["method"]) == (value < config["threshold"])
    ]


if __name__ == "__main__":
    weeks, baseline, size, drift = map(int, sys.argv[1:])
    for seed in range(weeks):
        print(json.dumps(named(seed, (baseline, size), bool(drift))), flush=True)
