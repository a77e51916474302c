"""Real processes (gloo) that save and load, one thing after the other."""

import json
import multiprocessing
import os
import shutil
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from torch.distributed import TCPStore

from benchmarks.checkpoints.measuring import measured

SECONDS = 1800


@dataclass(frozen=True)
class Act:
    """What every rank does.

    Attributes:
        saves: how many one after the other; the later ones find everything agreed and allocated.
        loads: whether the state is read back, and compared.
        removes: whether the folder is deleted at the end.
    """

    contender: str
    folder: Path
    model: float
    weight: float
    saves: int = 0
    loads: bool = False
    removes: bool = False


def session(scratch: Path, world: int, acts: list[Act]) -> list[list[dict[str, Any]]]:
    """What each act cost each rank: [act][rank] → ``saves``, ``load``, ``shard``, ``right``.

    Raises:
        RuntimeError: a rank failed; its traceback is on the standard error.
    """
    store = TCPStore("127.0.0.1", 0, None, True, wait_for_workers=False)
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["benchmarks.checkpoints.contenders", "torch.distributed.tensor",
                                    "torch.distributed.checkpoint", "psutil"])  # fmt: skip
    files = [scratch / f"rank-{rank}.json" for rank in range(world)]
    processes = [
        context.Process(target=_rank, args=(file, rank, world, store.port, acts), daemon=False)
        for rank, file in enumerate(files)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join(SECONDS)
    codes = [process.exitcode for process in processes]
    for process in processes:
        process.kill()
    if any(codes):
        raise RuntimeError(f"the ranks ended with {codes}")
    every = [json.loads(file.read_text()) for file in files]
    return [list(ranks) for ranks in zip(*every, strict=True)]


def _rank(file: Path, rank: int, world: int, port: int, acts: list[Act]) -> None:
    os.environ |= {
        "GLOO_SOCKET_IFNAME": "lo",
        "OMP_NUM_THREADS": "1",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "TORCHELASTIC_USE_AGENT_STORE": "True",
        **{"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(world)},
    }
    import torch
    import torch.distributed as dist

    from training.strategies.ranks import Ranks, connect

    torch.set_num_threads(1)
    dist.init_process_group("gloo", store=connect(SECONDS), rank=rank, world_size=world,
                            timeout=timedelta(seconds=SECONDS))  # fmt: skip
    try:
        ranks = Ranks(rank, rank, world, torch.device("cpu"))
        file.write_text(json.dumps([_done(act, ranks) for act in acts]))
    finally:
        dist.destroy_process_group()


def _done(act: Act, ranks: Any) -> dict[str, Any]:
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh

    from benchmarks.checkpoints.contenders import CONTENDERS
    from benchmarks.checkpoints.state import Size, State

    mesh = init_device_mesh("cpu", (ranks.world,))
    size = Size.of(act.model, act.weight, 8)
    contender = CONTENDERS[act.contender](act.folder, ranks)
    found: dict[str, Any] = {"model": size.bytes, "saves": []}
    if act.saves:
        state = State(size, mesh, filled=True)
        found["shard"] = state.shard
        for step in range(1, act.saves + 1):
            dist.barrier()
            found["saves"].append(_save(contender, step, state.tensors))
    contender.close()
    if act.loads:
        contender = CONTENDERS[act.contender](act.folder, ranks)
        state = State(size, mesh, filled=False)
        dist.barrier()
        found["load"] = measured(lambda: contender.load(state.tensors))
        found |= {"shard": state.shard, "right": state.is_right}
        contender.close()
    dist.barrier()
    if ranks.rank == 0:
        found["metadata"] = _metadata(act.folder)
        if act.removes:
            shutil.rmtree(act.folder)
    return found


def _save(contender: Any, step: int, tensors: Any) -> dict[str, float]:
    waits: list = []
    return measured(
        lambda: waits.append(contender.save(step, tensors)),
        lambda: waits[0](),  # noqa: PLW0108 - it is there only after the first
    )


def _metadata(folder: Path) -> int:
    """Bytes of what is no tensor: marker and hashes, or DCP's .metadata; of the newest."""
    newest = max(path for path in folder.rglob("*") if path.is_dir() or path == folder)
    return sum(path.stat().st_size for path in newest.iterdir()
               if path.suffix not in (".safetensors", ".distcp"))  # fmt: skip
