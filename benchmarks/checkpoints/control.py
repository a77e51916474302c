"""What ranks tell each other about a checkpoint, with as many light clients as ranks.

Each rank is a thread with a connection of its own to one real ``TCPStore``, and makes the calls of
a training: the agreement on who writes what, two saves, a resume from machines of which each has
its own ranks' files only, and a save to which one rank does not come. The parts are those of a
Llama model under FSDP2 with AdamW; nothing is computed, and a file is a hole of the right length.
"""

import json
import math
import multiprocessing
import os
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table as Shown
from torch.distributed import PrefixStore, TCPStore

from training.checkpoint import find_files, marker, read_slices, save
from training.checkpoint.block_hashes import BLOCK, HASH, hashes_path
from training.checkpoint.marker import Marker, Written
from training.checkpoint.rendezvous import Meeting
from training.checkpoint.tensor_table import Part
from trainyard.common.errors import LostRankError

PHASES = ("agreement", "save", "save again", "resume", "a rank is lost")
MACHINE = 8  # ranks
PROCESSES = 4
PATIENCE, LOST = 600.0, 2.0  # seconds
DIM, FEED, KV, VOCABULARY = 8192, 28672, 1024, 128256  # of Llama 3 70B
WEIGHTS = {
    **{"wq": (DIM, DIM), "wk": (KV, DIM), "wv": (KV, DIM), "wo": (DIM, DIM)},
    **{"w1": (FEED, DIM), "w2": (DIM, FEED), "w3": (FEED, DIM)},
    **{"attention_norm": (DIM,), "ffn_norm": (DIM,)},
}

KNOWN: dict[str, Marker] = {}
"""Markers that ranks of this process have parsed: each parses its own, and one is kept for all."""


def parts_of(rank: int, world: int, layers: int) -> dict[str, Part]:
    """What a rank holds of the model and of AdamW's state: rows of each weight, as FSDP2 cuts."""
    shapes = {f"layers.{n}.{name}": shape for n in range(layers) for name, shape in WEIGHTS.items()}
    shapes |= {"embedding": (VOCABULARY, DIM), "output": (VOCABULARY, DIM), "norm": (DIM,)}
    cut = {shape: _cut(shape, rank, world) for shape in {*shapes.values()}}
    parts = {f"model.{name}": cut[shape] for name, shape in shapes.items()}
    for moment in ("exp_avg", "exp_avg_sq"):
        parts |= {f"optimizer.{name}.{moment}": cut[shape] for name, shape in shapes.items()}
    steps = Part("F32", (), (), ())
    return parts | {f"optimizer.{name}.step": steps for name in shapes}


def _cut(shape: tuple[int, ...], rank: int, world: int) -> Part:
    chunk = -(-shape[0] // world)
    begin = min(rank * chunk, shape[0])
    rows = min(chunk, shape[0] - begin)
    return Part("F32", shape, (begin, *[0] * (len(shape) - 1)), (rows, *shape[1:]))


class Counted:
    """A store that counts what this rank asks of it, and the bytes of names and values."""

    def __init__(self, store: Any) -> None:
        self._store, self.requests, self.sent, self.received = store, 0, 0, 0

    def _asked(self, *sent: str | bytes) -> None:
        self.requests += 1
        self.sent += sum(map(len, sent))

    def set(self, key: str, value: str | bytes) -> None:
        self._asked(key, value)
        self._store.set(key, value)

    def get(self, key: str) -> bytes:
        return self.multi_get([key])[0]

    def multi_get(self, keys: list[str]) -> list[bytes]:
        self._asked(*keys)
        values = self._store.multi_get(keys)
        self.received += sum(map(len, values))
        return values

    def add(self, key: str, amount: int) -> int:
        self._asked(key)
        return self._store.add(key, amount)

    def check(self, keys: list[str]) -> bool:
        self._asked(*keys)
        return self._store.check(keys)

    def wait(self, keys: list[str], timeout: timedelta) -> None:
        self._asked(*keys)
        self._store.wait(keys, timeout)

    def delete_key(self, key: str) -> bool:
        self._asked(key)
        return self._store.delete_key(key)


class Holes(save.Share):
    """A rank's share of which only the length is written."""

    def __init__(self, meeting: Meeting, parts: dict[str, Part]) -> None:
        self.parts, self.image = parts, None
        left_out, self.table = save.agreed(meeting, parts)
        self.bytes = sum(part.bytes for name, part in parts.items() if name not in left_out)

    def write(self, path: Path, advance: Callable[[], None]) -> Written:
        for file, size in ((path, self.bytes), (hashes_path(path), -(-self.bytes // BLOCK) * HASH)):
            file.touch()
            os.truncate(file, size)
        return Written(bytes=self.bytes, sha256=f"{hash(path.name) % 2**256:064x}")


class Client:
    """One rank."""

    def __init__(self, rank: int, world: int, layers: int, port: int, folder: Path) -> None:
        self.rank, self.world, self.layers = rank, world, layers
        self.folder = folder / f"machine-{rank // MACHINE:04d}"
        self.leads = rank % MACHINE == 0
        self.connection = TCPStore(
            "127.0.0.1", port, None, False, timedelta(seconds=PATIENCE), wait_for_workers=False
        )
        self.store = Counted(PrefixStore("checkpoints", self.connection))
        self.meeting = Meeting(self.store, rank, world, PATIENCE)

    def run(self, phase: str) -> None:
        """What a rank does in a phase; all ranks do it at once."""
        if phase == "agreement":
            self.parts = parts_of(self.rank, self.world, self.layers)
            self.share = Holes(self.meeting, self.parts)
        elif phase == "resume":
            self._resume()
        elif phase == "a rank is lost":
            self._miss()
        else:
            self._save(1 + PHASES.index(phase))

    def _save(self, step: int) -> None:
        target = marker.folder_of(self.folder, step)
        said = Marker(step=step, files={})
        save.write(self.share, self.meeting, target, self.leads, said, keep=1)

    def _resume(self) -> None:
        survey = find_files.survey(self.folder) if self.leads else []
        found = find_files.candidates(self.meeting, survey)[0]
        folder = marker.folder_of(self.folder, found.step)
        said = KNOWN.setdefault(found.digest, find_files.relayed(self.meeting, found, folder))
        lead = self.rank - self.rank % MACHINE
        files = find_files.located(self.meeting, folder, said, lead, lambda count: None)
        try:
            table = files.said.table
            assert table is not None  # noqa: S101
            slices = read_slices.slices(self.parts, table, str(folder))
            for number in {one.file for one in slices}:
                files.opened(files.said.names[number])
            self.meeting.decide([], lambda said: None)
        finally:
            files.close()

    def _miss(self) -> None:
        """Rank 1 does not come; the others notice within the patience, and say who it is."""
        self.meeting = Meeting(self.store, self.rank, self.world, LOST)
        self.meeting._round = 10**6
        if self.rank != 1:
            with suppress(LostRankError):
                self.meeting.decide(None, lambda said: None)


def main(console: Console, worlds: list[int], layers: int) -> list[dict[str, Any]]:
    """Rows of (world, phase); shown, with the power of the number of ranks that each grows with."""
    found: list[dict[str, Any]] = []
    for world in worlds:
        with tempfile.TemporaryDirectory() as folder, console.status(f"{world} ranks"):
            rows = simulated(Path(folder), world, layers)
        _show_rows(console, rows)
        found += rows
    if len(worlds) > 2:
        _show_powers(console, found)
    return found


def _show_rows(console: Console, found: list[dict[str, Any]]) -> None:
    shown = Shown("ranks", "what", "requests a rank", "of rank 0", "kB sent a rank", "kB received",
                  "MB in all", "store CPU s", "rank 0 CPU s", "CPU s of another",
                  "seconds here")  # fmt: skip
    for row in found:
        shown.add_row(
            *(str(row["world"]), row["phase"], f"{row['requests']:.1f}", f"{row['requests_0']}"),
            *(f"{row[name] / 1e3:.1f}" for name in ("sent", "received")),
            f"{row['traffic'] / 1e6:.1f}",
            *(f"{row[name]:.2f}" for name in ("store_cpu", "cpu_0")),
            *(f"{row['cpu']:.3f}", f"{row['seconds']:.1f}"),
        )
    console.print(shown)


def _show_powers(console: Console, found: list[dict[str, Any]]) -> None:
    """1: linear in the number of ranks, 2: quadratic."""
    names = {"total": "requests in all", "traffic": "bytes in all", "store_cpu": "store CPU",
             "cpu_0": "rank 0 CPU", "cpu": "CPU of another rank"}  # fmt: skip
    shown = Shown("grows with the ranks to the power of, ± its standard error", *names.values())
    for phase in PHASES:
        rows = [row for row in found if row["phase"] == phase]
        cells = [power([row["world"] for row in rows], [row[name] for row in rows])
                 for name in names]  # fmt: skip
        shown.add_row(phase, *(f"{value:.2f} ± {error:.2f}" for value, error in cells))
    console.print(shown)


def power(worlds: Sequence[float], values: Sequence[float]) -> tuple[float, float]:
    """The exponent of a power law through three points or more, and its standard error."""
    (value, _), covariance = np.polyfit(np.log(worlds), np.log(values), 1, cov=True)
    return float(value), math.sqrt(covariance[0, 0])


def simulated(folder: Path, world: int, layers: int) -> list[dict[str, Any]]:
    """A row for each phase."""
    server = TCPStore("127.0.0.1", 0, None, True, wait_for_workers=False)
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    processes = [
        context.Process(target=_clients, args=(number, world, layers, server.port, folder))
        for number in range(min(PROCESSES, world))
    ]
    for process in processes:
        process.start()
    try:
        clocks = [_phase(server, phase, world, processes) for phase in ("start", *PHASES)][1:]
    finally:
        for process in processes:
            process.join(PATIENCE)
            process.kill()
    every = [one for n in range(len(processes))
             for one in json.loads((folder / f"clients-{n}.json").read_text())]  # fmt: skip
    return [_row(world, phase, clocks[n], every) for n, phase in enumerate(PHASES)]


def _phase(server: TCPStore, phase: str, world: int, processes: Sequence[Any]) -> Any:
    """(seconds, CPU seconds of the store's thread) of a phase, which this process begins."""
    began, own, cpu = time.perf_counter(), time.thread_time(), time.process_time()
    server.set(f"go/{phase}", "")
    while server.add(f"done/{phase}", 0) < world:
        if failed := [one.exitcode for one in processes if one.exitcode]:
            raise RuntimeError(f"the clients of {world} ranks ended with {failed} in {phase}")
        time.sleep(0.02)
    seconds = time.perf_counter() - began
    return seconds, time.process_time() - cpu - (time.thread_time() - own)


def _row(world: int, phase: str, clock: Any, every: list[dict[str, Any]]) -> dict[str, Any]:
    ranks = [{"rank": one["rank"]} | one[phase] for one in every]
    [first] = [one for one in ranks if one["rank"] == 0]
    others = [one for one in ranks if one["rank"]]
    row: dict[str, Any] = {"world": world, "phase": phase, "requests_0": first["requests"]}
    row |= {name: float(np.mean([one[name] for one in others])) for name in
            ("requests", "sent", "received", "cpu")}  # fmt: skip
    row |= {"total": sum(one["requests"] for one in ranks), "cpu_0": first["cpu"]}
    row["traffic"] = sum(one["sent"] + one["received"] for one in ranks)
    return row | {"seconds": clock[0], "store_cpu": clock[1]}


def _clients(number: int, world: int, layers: int, port: int, folder: Path) -> None:
    """The ranks of one process, a thread each."""
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "RANK": "0"}
    found: list[dict[str, Any]] = []
    failed: list[BaseException] = []

    def run(rank: int) -> None:
        try:
            found.append(_one(rank, world, layers, port, folder))
        except BaseException as error:
            failed.append(error)
            raise

    threads = [threading.Thread(target=run, args=(rank,), daemon=True)
               for rank in range(number, world, PROCESSES)]  # fmt: skip
    for thread in threads:
        thread.start()
    while not failed and any(thread.is_alive() for thread in threads):
        time.sleep(0.05)
    (folder / f"clients-{number}.json").write_text(json.dumps(found))
    if failed:
        os._exit(1)  # the other threads wait for one that is gone


def _one(rank: int, world: int, layers: int, port: int, folder: Path) -> dict[str, Any]:
    client = Client(rank, world, layers, port, folder)
    signal = client.connection
    signal.add("done/start", 1)
    found: dict[str, Any] = {"rank": rank}
    for phase in PHASES:
        signal.wait([f"go/{phase}"])
        counted = client.store
        before, began = (counted.requests, counted.sent, counted.received), time.thread_time()
        client.run(phase)
        cpu = time.thread_time() - began
        after = counted.requests, counted.sent, counted.received
        counts = [b - a for a, b in zip(before, after, strict=True)]
        found[phase] = dict(zip(("requests", "sent", "received"), counts, strict=True), cpu=cpu)
        signal.add(f"done/{phase}", 1)
    return found
