"""What the trained model's export costs each rank's memory, beside the whole model on rank 0.

python -m benchmarks.exporting [--layers 8] [--dim 768] [--shard-mb 50] [--ranks 1,2,4] [--json F]

Each rank of an FSDP training (gloo, float32, random weights) writes its files of the model. New: by
``training.artifact``; old, as it was before: rank 0 gathers the whole state, and writes one file by
safetensors' ``save_file``. Given is by how much the peak of a rank's resident memory (VmHWM, reset
before) lies over what it had before; the largest weight, which is gathered whole; and whether both
ways give the same weights, bit for bit. Exits with 1 when they do not.
"""

import json
import multiprocessing
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from torch.distributed import TCPStore

MB = 1e6
PAGES = Path("/proc/self")


def main(
    layers: int = 8,
    dim: int = 768,
    shard_mb: int = 50,
    ranks: str = "1,2,4",
    json_file: Annotated[Path | None, typer.Option("--json")] = None,
) -> None:
    found = []
    with tempfile.TemporaryDirectory() as scratch:
        for world in map(int, ranks.split(",")):
            folder = Path(scratch) / str(world)
            folder.mkdir()
            found.append(measured(folder, world, layers, dim, shard_mb) | {"ranks": world})
    table = Table("ranks", "model MB", "largest weight MB", "files", "new: MB a rank", "old: MB",
                  "new: CPU s", "old: CPU s", "same")  # fmt: skip
    for one in found:
        numbers = (one["model"], one["largest"])
        table.add_row(
            str(one["ranks"]),
            *(f"{number / MB:.0f}" for number in numbers),
            str(one["files"]),
            ", ".join(f"{peak / MB:.0f}" for peak in one["new"]),
            ", ".join(f"{peak / MB:.0f}" for peak in one["old"]),
            f"{sum(one['new_cpu']):.1f}",
            f"{sum(one['old_cpu']):.1f}",
            str(one["same"]),
        )
    Console().print(table)
    if json_file:
        json_file.write_text(json.dumps(found, indent=1))
    raise typer.Exit(not all(one["same"] for one in found))


def measured(folder: Path, world: int, layers: int, dim: int, shard_mb: int) -> dict[str, Any]:
    """Both ways, one after the other, in the same processes."""
    store = TCPStore("127.0.0.1", 0, None, True, wait_for_workers=False)
    context = multiprocessing.get_context("forkserver")
    given = (folder, world, store.port, layers, dim, shard_mb)
    processes = [context.Process(target=_rank, args=(*given, rank)) for rank in range(world)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    every = [json.loads((folder / f"rank-{rank}.json").read_text()) for rank in range(world)]
    return every[0] | {
        what: [one[what] for one in every] for what in ("new", "old", "new_cpu", "old_cpu")
    }


def _rank(
    folder: Path, world: int, port: int, layers: int, dim: int, shard_mb: int, rank: int
) -> None:
    os.environ |= {
        "GLOO_SOCKET_IFNAME": "lo",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "TORCHELASTIC_USE_AGENT_STORE": "True",
        **{"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(world)},
    }
    import torch
    from safetensors.torch import load_file, save_file

    from training import artifact
    from training.config import TrainConfig
    from training.held import gathered
    from training.loop import fresh
    from training.strategies import started
    from training.workloads import load

    torch.set_num_threads(1)
    settings = {"context_length": 64, "layers": layers, "heads": 8, "dim": dim, "vocabulary": 8192}
    config = TrainConfig(
        strategy="fsdp", max_steps=1, global_batch=4, micro_batch=1, learning_rate=1, warmup_steps=1
    )
    workload = load("language_model", settings)
    with started(config, workload) as strategy:
        strategy.prepare(fresh(config, workload))
        del strategy.optimizer
        told = {"workload": "language_model", "workload_config": settings}
        looks = workload.export(strategy.looks())[0].values()
        sizes = [look.numel() * look.element_size() for look in strategy.looks().values()]

        def new() -> None:
            artifact.save(folder / "new", strategy, workload, told, [], None, shard_mb * 10**6)

        def old() -> None:
            state = gathered(strategy)
            if rank == 0:
                weights = workload.export(state)[0]
                save_file({n: t.contiguous().clone() for n, t in weights.items()}, folder / "old")

        result: dict[str, Any] = {"model": sum(look.numel() * 4 for look in looks)}
        result |= {"largest": max(sizes)}
        for name, way in (("new", new), ("old", old)):
            strategy.ranks.gather(None)
            result[name], result[f"{name}_cpu"] = _peak(way)
        if rank == 0:
            files = sorted((folder / "new").glob("*.safetensors"))
            written = {n: t for file in files for n, t in load_file(file).items()}
            whole = load_file(folder / "old")
            same = written.keys() == whole.keys()
            result["same"] = same and all(torch.equal(written[n], whole[n]) for n in whole)
            result["files"] = len(files)
    (folder / f"rank-{rank}.json").write_text(json.dumps(result))


def _peak(way: Callable[[], None]) -> tuple[int, float]:
    """(bytes of resident memory at the peak over those before, CPU seconds)."""
    (PAGES / "clear_refs").write_text("5")  # proc(5): resets the peak, VmHWM
    before, began = _status("VmRSS"), time.process_time()
    way()
    return _status("VmHWM") - before, time.process_time() - began


def _status(name: str) -> int:
    lines = (PAGES / "status").read_text().splitlines()
    line = next(line for line in lines if line.startswith(f"{name}:"))
    return int(line.split()[1]) * 1024


if __name__ == "__main__":
    typer.run(main)
