"""Evaluating twenty times the data takes no more memory: measured in processes of their own."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.conftest import CHECKOUT, clean_environment
from training.data.writer import write_dataset
from training.workloads import load_packing

pytestmark = pytest.mark.slow

MEASURE = """
import json, re, sys
from pathlib import Path
import torch
from steps.evaluate import leakage as leaks, scores
from training.data.dataset import Dataset
from training.workloads import load
from training.workloads.tabular import scores as ranks

# What is held at once, smaller: so that less data is enough to see whether more is held.
scores.GROUP, ranks.WAITING, leaks.PIECE = 8192, 8192, 8192
torch.set_num_threads(1)
folder, settings = Path(sys.argv[1]), json.loads(sys.argv[2])
workload = load("tabular", settings)
train, test = (Dataset(folder / split) for split in ("train", "test"))
workload.fit(train)
model = workload.model().eval()
path = folder / "challenger.parquet"
scores.write(path, workload.scores(model, test), {"metrics": {}})
workload.metrics(scores.Scores(path))
leaks.leakage(workload, test, test)
# Not getrusage: its peak is the parent's where that was higher when the process was made.
status = Path("/proc/self/status").read_text()
print(len(test), int(re.search(r"VmHWM:\\s+(\\d+) kB", status)[1]) // 1024)
"""
TABLE = {"categories": ["kind"], "numbers": ["a", "b", "c", "d"], "label": "late", "hidden": [8]}


def rows(count: int) -> dict[str, np.ndarray]:
    random = np.random.default_rng(0)
    return {
        "categories": random.integers(0, 9, (count, 1)),
        "numbers": random.normal(0, 1, (count, 4)).astype(np.float32),
        "label": random.integers(0, 2, count).astype(np.uint8),
    }


def peak(folder: Path, samples: dict) -> tuple[int, int]:
    """(samples, MB at the worst moment) of scoring, metrics and leakage."""
    packing = load_packing("tabular", TABLE)
    numbers = {"count": 1, "mean": 0.0, "m2": 1.0}
    statistics = {
        "numbers": dict.fromkeys(TABLE["numbers"], numbers),
        "categories": {"kind": {"value": [], "hash": [], "count": []}},
    }
    few = {field: values[:10] for field, values in samples.items()}
    for split, part in (("train", few), ("test", samples)):
        write_dataset(folder / split, part, packing.fields, shard_bytes=4_000_000, split=split,
                      workload=packing.info)  # fmt: skip
        manifest = folder / split / "manifest-algo-1.json"
        text = json.loads(manifest.read_text())
        text["sources"]["statistics"] = [statistics]
        manifest.write_text(json.dumps(text))
    done = subprocess.run(
        [sys.executable, "-c", MEASURE, str(folder), json.dumps(TABLE)],
        cwd=CHECKOUT, env=clean_environment(), capture_output=True, text=True, check=True,
    )  # fmt: skip
    found, megabytes = map(int, done.stdout.split())
    return found, megabytes


def test_twenty_times_the_data_takes_no_more_memory(tmp_path):
    """What is kept of every row, 60 bytes of it, would be 23 MB here."""
    few, many = 20_000, 400_000
    (_, before), (count, after) = (peak(tmp_path / f"{n}", rows(n)) for n in (few, many))
    print(f"{few} rows: {before} MB, {count} rows: {after} MB")
    assert count == many
    assert after < before + 20
