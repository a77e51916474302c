"""Write a dataset of documents with Ray Data: one partition, one manifest; see README.md.

python -m examples.ray.shards RAW.parquet … OUTPUT
"""

import hashlib
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa

from steps.shard.record_hashes import assign_splits, hash_column
from steps.shard.shard_plan import SPLITS
from training.data.shard_writer import write_dataset
from training.workloads import load_packing

WORKLOAD, CONFIG = "language_model", {"context_length": 256}


def write_partition(batch: pa.Table, output: str) -> pa.Table:
    """Pack the documents in column ``text``, write the shards, and return a count of documents."""
    packing = load_packing(WORKLOAD, CONFIG, None)
    [records] = batch.select(["text"]).combine_chunks().to_batches()
    hashes = hash_column(records.column("text"))
    splits = assign_splits(hashes, validation_share=0.05, test_share=0.05)
    name = hashlib.sha256(hashes.tobytes()).hexdigest()[:16]  # a task that runs again overwrites
    for number, split in enumerate(SPLITS):
        packer = packing.packer()
        pieces = [packer.add(records.filter(pa.array(splits == number))), packer.flush()]
        samples = {field: np.concatenate([p[field] for p in pieces]) for field in pieces[0]}
        write_dataset(
            Path(output, split), samples, packing.fields,
            shard_bytes=64_000_000, host=name, split=split, workload=packing.info,
        )  # fmt: skip
    return pa.table({"documents": [len(records)]})


def main(arguments: list[str]) -> None:
    """Write the documents of Parquet files as shards into a folder that all Ray nodes mount."""
    import ray  # write_partition runs without it, under any engine

    *raw, output = arguments
    ray.init(include_dashboard=False)
    documents = ray.data.read_parquet(raw)
    options = {"batch_size": None, "batch_format": "pyarrow", "fn_kwargs": {"output": output}}
    written = documents.map_batches(write_partition, **options)
    print(f"{output}: {written.sum('documents')} documents")


if __name__ == "__main__":
    main(sys.argv[1:])
