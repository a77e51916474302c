"""Leave equal texts out, order by a hash, write: by Daft, in an interpreter that has it.

PYTHON benchmarks/shards/engine.py RAW OUTPUT
"""

import sys

import daft

raw, output = sys.argv[1:]
frame = daft.read_json(f"{raw}/*.jsonl").distinct("text")
frame = frame.with_column("order", daft.col("text").hash()).sort("order")
frame.write_parquet(output)
print(f"{daft.read_parquet(output).count_rows():,} records")
