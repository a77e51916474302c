"""One contender, one number of workers, in a process of its own; a line of JSON.

python -m benchmarks.images.worker CONTENDER FOLDER WORKERS IMAGES
"""

import json
import resource
import sys
import time
from pathlib import Path

import torch

from benchmarks.images.contenders import BATCH, CONTENDERS


def processor_seconds() -> float:
    """Of this process and of its children that have ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def main(name: str, folder: str, workers: int, images: int) -> None:
    torch.set_num_threads(1)
    batches = CONTENDERS[name]().batches(Path(folder), workers)
    began, used = time.perf_counter(), processor_seconds()
    first = next(batches)
    waited = time.perf_counter() - began
    taken = len(first)
    while taken < images:
        taken += len(next(batches))
    seconds = time.perf_counter() - began - waited
    batches.close()
    del batches  # a DataLoader's workers end, and are counted
    found = {
        "images_per_second": (taken - BATCH) / seconds,
        "images_per_processor_second": taken / (processor_seconds() - used),
        "first_batch_seconds": waited,
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
