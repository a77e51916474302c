"""Run one contender: commands are lines of JSON on stdin, answers lines of JSON on stdout.

python -m benchmarks.shards.worker MODULE
"""

import gc
import json
import os
import pickle
import shutil
import sys
import time
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.shards.contenders import WIDTH, load_contender


class Worker:
    """Executes commands on one contender: each method is one, with JSON arguments and results."""

    def __init__(self, module: str) -> None:
        self._contender = load_contender(module)

    def write(self, corpus: str, folder: str, samples: int) -> dict[str, Any]:
        """Write the first ``samples`` of the corpus into a new folder."""
        path = Path(folder)
        shutil.rmtree(path, ignore_errors=True)
        path.mkdir(parents=True)
        source, began = _open_corpus(corpus)[:samples], time.perf_counter()
        self._contender.write(source, path)
        return {"bytes_per_second": source.nbytes / (time.perf_counter() - began)}

    def check(self, corpus: str, folder: str) -> dict[str, Any]:
        """Check that ordered batches are the corpus, and that shuffled ones repeat no sample."""
        samples = _open_corpus(corpus)
        ordered = np.concatenate(_take_first(self._contender.batches(Path(folder), False), 3))
        begin = int(np.flatnonzero((samples[:, :4] == ordered[0, :4]).all(axis=1))[0])
        if not np.array_equal(ordered, samples[begin : begin + len(ordered)]):
            return {"wrong": "the first batches in order are not consecutive samples of the corpus"}
        shuffled = np.concatenate(_take_first(self._contender.batches(Path(folder), True), 8))
        # Four tokens of 16 bits name a sample of random tokens.
        known = {row.tobytes() for row in samples[:, :4]}
        seen = {row.astype(np.uint16).tobytes() for row in shuffled[:, :4]}
        if not seen <= known or len(seen) != len(shuffled):
            return {"wrong": "shuffled batches hold samples that are repeated or not in the corpus"}
        return {"wrong": None}

    def read(self, folder: str, shuffled: bool, seconds: float) -> dict[str, Any]:
        """Return tokens a second from the second batch on, over epochs until the time is over."""
        batches = self._contender.batches(Path(folder), shuffled)
        iterator = iter(batches)
        next(iterator)  # opening and filling the prefetch queues is not what is measured here
        tokens, began = 0, time.perf_counter()
        while True:
            for batch in iterator:
                tokens += batch.numel()
                if (now := time.perf_counter()) - began > seconds:
                    return {"tokens_per_second": tokens / (now - began)}
            iterator = iter(batches)

    def save(self, folder: str, batches: list[int], states: str) -> dict[str, Any]:
        """Write the states after each number of batches, and the batches that follow."""
        saved = [
            (pickle.dumps(state), following.numpy().copy())
            for state, following in self._contender.save(Path(folder), batches)
        ]
        Path(states).write_bytes(pickle.dumps(saved))
        return {"state_bytes": max(len(state) for state, _ in saved)}

    def resume(self, folder: str, point: int, states: str) -> dict[str, Any]:
        """Return the seconds from a saved state to its next batch, and if that is ``exact``."""
        pickled, following = pickle.loads(Path(states).read_bytes())[point]
        state = pickle.loads(pickled)
        began = time.perf_counter()
        batch = self._contender.resume(Path(folder), state)
        seconds = time.perf_counter() - began
        return {"seconds": seconds, "exact": bool(np.array_equal(batch.numpy(), following))}


def _open_corpus(path: str) -> np.ndarray:
    return np.memmap(path, np.uint16, "r").reshape(-1, WIDTH)


def _take_first(batches: Any, count: int) -> list[np.ndarray]:
    return [batch.numpy() for batch in islice(batches, count)]


def main() -> None:
    # Libraries print. What they print goes to stderr; the answers keep the real stdout.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    worker = Worker(sys.argv[1])
    for line in sys.stdin:
        command = json.loads(line)
        answer = getattr(worker, command.pop("do"))(**command)
        gc.collect()
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
