"""examples/ray: what partitions of another engine wrote is a dataset for the training's reader."""

import numpy as np
import pyarrow as pa

from examples.ray.shards import write_partition
from steps.shard.shard_plan import SPLITS
from training.data.dataset import Dataset


def test_partitions_form_one_dataset_and_one_that_runs_again_changes_nothing(tmp_path, run_python):
    """Ray reads its environment once, when it is imported: before the tests of Shard set it."""
    code = "import sys, examples.ray.shards; print('ray' in sys.modules)"
    assert run_python("-c", code).stdout == "False\n"
    texts = [f"document {number} has a text of its own\n" * 20 for number in range(300)]
    parts = [pa.table({"text": texts[start : start + 100]}) for start in (0, 100, 200)]
    found = []
    for part in (*parts, parts[1]):
        write_partition(part, str(tmp_path))
        found.append({split: Dataset(tmp_path / split).fingerprint for split in SPLITS})
    assert found[-1] == found[-2] != found[0]
    read = b""
    for split in SPLITS:
        data = Dataset(tmp_path / split)
        data.check_files()
        assert len(data)
        read += data.read(np.arange(len(data)))["tokens"][:, :-1].astype(np.uint8).tobytes()
    assert all(read.count(f"document {number} has".encode()) for number in range(300))
