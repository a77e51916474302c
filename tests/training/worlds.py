"""Trainings of several real ranks over gloo, from a server that has already imported torch."""

import contextlib
import logging
import multiprocessing
import os
import shutil
import socket
import sys
import time
from collections.abc import Callable, Iterator
from multiprocessing.process import BaseProcess
from pathlib import Path

from torch import distributed
from torch.distributed import TCPStore
from torch.testing._internal.distributed.fake_pg import FakeStore

from tests.training.trainings import CHECKOUT, TOYS, arguments

SECONDS = 240  # pytest ends a test after 300; a busy machine is not a defect
PRELOADED = ["tests.training.preloaded"]
"""Modules that the ranks would import one by one, at seconds of CPU time each."""


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def variables(port: int, rank: int = 0, world: int = 1) -> dict[str, str]:
    """Return what a launcher tells a rank: by default, the only one."""
    return {
        **{"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"},
        **{"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)},
        **{"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(world)},
    }


def start(
    roots: Path | list[Path], world: int, *, target: Callable | None = None, **settings
) -> list[BaseProcess]:
    """Start the train job as ``world`` processes; their output is in ``<root>/rank-<n>.log``.

    With a list of folders each rank is alone on a machine of its own. ``target`` runs in the place
    of ``run_rank``.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    port = free_port()
    processes = []
    for rank in range(world):
        root = roots[rank] if isinstance(roots, list) else roots
        environment = variables(port, rank, world)
        if isinstance(roots, list):
            environment["LOCAL_RANK"] = "0"
        given = arguments(root, settings)
        process = context.Process(
            target=target or run_rank, args=(given, environment, root, rank), daemon=True
        )
        process.start()
        processes.append(process)
    return processes


@contextlib.contextmanager
def imagined_group(rank: int, world: int) -> Iterator[None]:
    """Be a rank of a group of which no other rank exists."""
    distributed.init_process_group("fake", store=FakeStore(), rank=rank, world_size=world)
    try:
        yield
    finally:
        distributed.destroy_process_group()


def until_printed(root: Path, text: str, processes: list[BaseProcess]) -> None:
    """Wait until rank 0 has printed ``text``; fails if a process ends before."""
    log, end = root / "rank-0.log", time.monotonic() + SECONDS
    while not log.exists() or text not in log.read_text():
        alive = all(process.is_alive() for process in processes)
        assert alive and time.monotonic() < end, f"it did not come to {text!r}"
        time.sleep(0.02)


def finish(processes: list[BaseProcess], seconds: float = SECONDS) -> list[int | None]:
    """Return the ranks' exit codes; None for one that had to be killed."""
    for process in processes:
        process.join(seconds)
    codes = [process.exitcode for process in processes]
    for process in processes:
        process.kill()
    return codes


def train(root: Path, world: int, *, seconds: float = SECONDS, **settings) -> Path:
    codes = finish(start(root, world, **settings), seconds)
    logs = [(root / f"rank-{rank}.log").read_text() for rank in range(world)]
    assert codes == [0] * world, "\n".join(logs)
    return root


def run_rank(given: list[str], environment: dict[str, str], root: Path, rank: int) -> None:
    import torch

    from steps.train import job

    os.environ.update(environment)
    sys.path[:0] = [str(CHECKOUT), str(TOYS)]
    torch.set_num_threads(1)
    with (root / f"rank-{rank}.log").open("a", buffering=1) as log:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
        with contextlib.redirect_stdout(log), contextlib.redirect_stderr(log):
            job.main(given)


def train_each(
    cases: dict[Path, dict],
    world: int,
    *,
    newest: int | None = None,
    before: Callable | None = None,
    run: Callable | None = None,
    seconds: float = SECONDS,
) -> None:
    """Run each training to its end, one after the other in the same processes.

    In separate processes each would take seconds to start. With ``newest`` each is then trained
    once more, as if its checkpoint of that step were lost; what the first run left as model/ is in
    first/ afterwards. Each process calls ``before`` first, then ``run`` in place of ``run_rank``.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    jobs = [(str(root), arguments(root, settings)) for root, settings in cases.items()]
    # Served from here, as torchrun's agent does: a port that is only chosen may be taken by then.
    runs = 1 if newest is None else 2
    stores = [TCPStore("127.0.0.1", 0, None, True, wait_for_workers=False) for _ in jobs * runs]
    numbers = iter([store.port for store in stores])
    ports = list(zip(*[numbers] * runs, strict=True))
    processes = [
        context.Process(
            target=_run_each, args=(jobs, ports, world, rank, newest, before, run or run_rank)
        )
        for rank in range(world)
    ]
    for process in processes:
        process.start()
    codes = finish(processes, seconds)
    logs = [log for root in cases for log in sorted(root.glob("rank-*.log"))]
    assert codes == [0] * world, "\n".join(f"{log}\n{log.read_text()[-3000:]}" for log in logs)


def train_and_resume(
    cases: dict[Path, dict], world: int, newest: int, before: Callable | None = None
) -> None:
    """Run each training to its end; then once more, as if its checkpoint ``newest`` were lost."""
    train_each(cases, world, newest=newest, before=before)


def _run_each(
    jobs: list,
    ports: list,
    world: int,
    rank: int,
    newest: int | None,
    before: Callable | None,
    run: Callable,
) -> None:
    if before:
        before()
    for (name, given), mine in zip(jobs, ports, strict=True):
        root = Path(name)
        for port in mine:
            environment = variables(port, rank, world) | {"TORCHELASTIC_USE_AGENT_STORE": "True"}
            logging.getLogger().handlers.clear()  # it writes to the log of the training before
            with contextlib.suppress(SystemExit):  # the reason is in output/failure
                run(given, environment, root, rank)
            if newest is None:
                continue
            if rank == 0 and port == mine[0] and (root / "model").is_dir():
                (root / "model").rename(root / "first")
                for folder in root.glob(f"checkpoints/*/step-{newest:08d}"):
                    shutil.rmtree(folder)
