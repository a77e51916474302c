"""Evaluating forty times the data takes no more memory: measured in a process of its own."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.conftest import CHECKOUT, clean_environment
from training.data.shard_writer import write_dataset
from training.workloads import load_packing

pytestmark = pytest.mark.slow

MEASURE = """
import json, re, sys
from pathlib import Path
import torch
from steps.evaluate import leaked_examples as leaks, score_table as scores
from training.data.dataset import Dataset
from training.workloads import load_workload
from training.workloads.tabular import baselines, scores as ranks

# What is held at once, smaller: so that less data is enough to see whether more is held.
scores.GROUP = ranks.WAITING = leaks.PIECE = 8192
torch.set_num_threads(1)
few, many = (Dataset(Path(sys.argv[1]) / name) for name in ("few", "many"))
workload = load_workload("tabular", json.loads(sys.argv[2]))
workload.fit(few)
model = workload.model().eval()
path = Path(sys.argv[1]) / "challenger.parquet"
for test in (few, many):
    scores.write_scores(path, workload.scores(model, test), {"metrics": {}})
    workload.metrics(scores.Scores(path))
    for blocks in workload.baseline_scores(few, test, 1000).values():
        scores.write_scores(path, blocks, {"metrics": {}})
    leaks.count_leakage(workload.examples(few), workload.examples(test))
    # Not getrusage: its peak is the parent's where that was higher when the process was made.
    status = Path("/proc/self/status").read_text()
    print(len(test), int(re.search(r"VmHWM:\\s+(\\d+) kB", status)[1]) // 1024)
"""
TABLE = {"categories": ["kind"], "numbers": ["a", "b", "c", "d"], "label": "late", "hidden": [8]}
NUMBER = {"count": 1, "mean": 0.0, "m2": 1.0}
STATISTICS = {
    "numbers": dict.fromkeys(TABLE["numbers"], NUMBER),
    "categories": {"kind": {"value": [], "hash": [], "count": []}},
}


def make(folder: Path, count: int) -> None:
    """A split of ``count`` rows in shards of 4 MB."""
    packing, random = load_packing("tabular", TABLE), np.random.default_rng(0)
    samples = {
        "categories": random.integers(0, 9, (count, 1)),
        "numbers": random.normal(0, 1, (count, 4)).astype(np.float32),
        "label": random.integers(0, 2, count).astype(np.uint8),
    }
    write_dataset(folder, samples, packing.fields, shard_bytes=4_000_000, workload=packing.info)
    manifest = folder / "manifest-algo-1.json"
    text = json.loads(manifest.read_text())
    text["sources"]["statistics"] = [STATISTICS]
    manifest.write_text(json.dumps(text))


@pytest.mark.sweep
def test_forty_times_the_data_takes_no_more_memory(tmp_path):
    """Keeping 60 bytes of every row would take 47 MB here."""
    make(tmp_path / "few", 20_000)
    make(tmp_path / "many", 800_000)
    done = subprocess.run(
        [sys.executable, "-c", MEASURE, str(tmp_path), json.dumps(TABLE)],
        cwd=CHECKOUT, env=clean_environment(), capture_output=True, text=True, check=True,
    )  # fmt: skip
    (_, before), (count, after) = (map(int, line.split()) for line in done.stdout.splitlines())
    print(done.stdout)
    assert count == 800_000
    assert after < before + 35
