"""One rank of ``benchmarks.building``: how much its memory grows while a model is built."""

import ctypes
import json
import os
import sys
import threading
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor

from training.config import TrainConfig
from training.finetuning import base_model
from training.loop import fresh
from training.strategies import kind, started
from training.strategies.ranks import Ranks
from training.workloads import Workload, load


def mb_now() -> float:
    """Memory that is not shared with files, in MB: a mapped file's pages go when others need it."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(float(x.split()[1]) / 1024 for x in lines if x.startswith("RssAnon"))


class Peak:
    """The largest of ``mb_now``, looked at while another thread works."""

    def __enter__(self) -> "Peak":
        self.most, self._on = mb_now(), True
        self._thread = threading.Thread(target=self._look)
        self._thread.start()
        return self

    def _look(self) -> None:
        while self._on:
            self.most = max(self.most, mb_now())
            time.sleep(0.001)

    def __exit__(self, *_: object) -> None:
        self._on = False
        self._thread.join()


def held_mb(model: torch.nn.Module) -> float:
    """What this rank holds of parameters and buffers."""
    every = {id(t): t for t in (*model.parameters(), *model.buffers())}.values()
    parts = [t.to_local() if isinstance(t, DTensor) else t for t in every]
    return sum(part.nbytes for part in parts) / 2**20


def trim() -> None:
    """Give back what the imports have freed, so that the base is what is in use."""
    ctypes.CDLL("libc.so.6").malloc_trim(0)


def build(way: str, settings: dict, base: str) -> dict[str, float]:
    """Megabytes and processor seconds of one rank, of one way to build."""
    config = TrainConfig(
        max_steps=1, global_batch=64, micro_batch=1, learning_rate=1e-3, strategy="fsdp"
    )
    workload = load("language_model", settings)
    small = load("language_model", settings | {"layers": 1, "dim": 32, "vocabulary": 300})
    with started(config, workload) as strategy:
        _warm(config, small)
        trim()
        before, began = mb_now(), time.process_time()
        with Peak() as peak:
            if way == "whole":
                torch.manual_seed(0)
                strategy.prepare(workload.model())
            elif way == "torchtitan":
                model = _as_torchtitan(workload)
            else:
                model = fresh(config, workload)
                if base:
                    base_model.fill(model, workload, "language_model", Path(base), base)
                strategy.prepare(model)
        model = model if way == "torchtitan" else strategy.model
        found = {"peak_mb": peak.most - before, "shard_mb": held_mb(model)}
        found["seconds"] = time.process_time() - began
        dist.barrier()
    return found


def _warm(config: TrainConfig, workload: Workload) -> None:
    """What is loaded with the first model is not counted: optimizer, sharding, kernels."""
    rank, world = dist.get_rank(), dist.get_world_size()
    ranks = Ranks(rank, rank, world, torch.device("cpu"))
    kind(config)(config, workload, ranks).prepare(fresh(config, workload))


def _as_torchtitan(workload: Workload) -> torch.nn.Module:
    """Meta, fully_shard, to_empty, init_weights on DTensors (torchtitan/train.py)."""
    with torch.device("meta"):
        model = workload.model()
    for block in workload.blocks(model):
        fully_shard(block)
    fully_shard(model)
    model.to_empty(device="cpu")
    with torch.no_grad():
        model._initialise(len(workload.blocks(model)))
    return model


if __name__ == "__main__":
    way, settings, base, out = sys.argv[1:]
    found = build(way, json.loads(settings), base)
    Path(f"{out}.{os.environ['RANK']}").write_text(json.dumps(found))
