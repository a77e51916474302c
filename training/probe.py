"""What this machine is capable of, for ``trainyard advise --machine probe.json``.

python -m training.probe [--ranks 2] [--threads 1] [--out probe.json]

As many ranks as a training would have here (GPUs, else two) measure at the same time: products of
several sizes and types, attention, memory, what a call costs, an optimizer's step, collectives
(NCCL, gloo). Half a minute on a processor. There, seconds are CPU seconds: a machine
that is busy with other things is as fast as an idle one but for what caches and memory share.
"""

import json
import os
import socket
import sys
from concurrent.futures import ProcessPoolExecutor
from datetime import UTC, datetime
from multiprocessing import get_context
from pathlib import Path
from typing import Annotated, Any

import torch
import torch.distributed as dist
import typer

from training.cores import cores
from training.probing import rank as measuring
from training.probing.summary import processor, summary
from trainyard.common import whole_file


def main(
    ranks: Annotated[int, typer.Option(min=0, help="0: one a GPU, else two.")] = 0,
    threads: Annotated[int, typer.Option(min=0, help="Of a rank; 0: its share of cores.")] = 0,
    out: Annotated[Path | None, typer.Option(help="Write it here, not to the terminal.")] = None,
) -> None:
    """Measure, and print JSON."""
    text = json.dumps(probed(ranks, threads), indent=1) + "\n"
    if out is None:
        sys.stdout.write(text)
    else:
        whole_file.write(out, text.encode())


def probed(ranks: int = 0, threads: int = 0) -> dict[str, Any]:
    """What every rank has found, and the device that it makes: the slowest rank's."""
    gpus = torch.cuda.device_count()
    world = ranks or gpus or 2
    each = threads or max(1, cores() // world)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with ProcessPoolExecutor(world, mp_context=get_context("spawn")) as processes:
        given = [(number, world, each, port) for number in range(world)]
        found = [*processes.map(_rank, *zip(*given, strict=True))]
    said = {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "processor": processor(),
        "device": torch.cuda.get_device_name(0) if gpus else "cpu",
        "torch": torch.__version__,
        "ranks": world,
        "threads": each,
        "cores": cores(),
    }
    return said | {"gpu": summary(found, gpus), "measured": found}


def _rank(number: int, world: int, threads: int, port: int) -> dict[str, Any]:
    torch.set_num_threads(threads)
    cuda = torch.cuda.is_available()
    device = torch.device("cuda", number) if cuda else torch.device("cpu")
    if cuda:
        torch.cuda.set_device(device)
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    if not cuda:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    dist.init_process_group("nccl" if cuda else "gloo", rank=number, world_size=world)
    try:
        return measuring.measured(device)
    finally:
        dist.destroy_process_group()


if __name__ == "__main__":
    typer.run(main)
