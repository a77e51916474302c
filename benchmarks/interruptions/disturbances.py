"""What can happen to a training: signals at a random step, torn checkpoints."""

import os
import random
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.interruptions.training import STEPS, Training, is_whole


def kill_rank(training: Training, source: random.Random) -> None:
    """SIGKILL of one rank; the others have to end by themselves."""
    _wait(training, source)
    source.choice(training.ranks).kill()
    training.end()


def stop_node(training: Training, source: random.Random) -> None:
    """SIGTERM of every rank: they save at the next step's boundary and end.

    Not before this start's first step: until then there is nothing new to save, and they just end.
    """
    _wait(training, source)
    while training.running and not training.losses(training.starts):
        time.sleep(0.001)
    for rank in training.ranks:
        rank.terminate()
    training.end()


def kill_node(training: Training, source: random.Random) -> None:
    """SIGKILL of every rank at once."""
    _wait(training, source)
    _kill(training)


def kill_node_at(training: Training, step: float) -> None:
    """SIGKILL of every rank as soon as the training has made ``step``, if it comes so far."""
    _resumed(training)
    while training.running and training.last_step() < step:
        time.sleep(0.001)
    _kill(training)


def kill_during_write(training: Training, source: random.Random) -> None:
    """SIGKILL of every rank as soon as a checkpoint is there without its marker."""
    _wait(training, source)
    known = set(training.saved())
    while training.running:
        if any(not (path / "complete.json").exists() for path in {*training.saved()} - known):
            time.sleep(source.uniform(0, 0.005))
            break
        time.sleep(0.0005)
    _kill(training)


def _kill(training: Training) -> None:
    for rank in training.ranks:
        rank.kill()
    training.end()


def _resumed(training: Training) -> None:
    """Wait until the training goes on, or has ended."""
    while training.running and training.resumed(training.starts) is None:
        time.sleep(0.002)


def _wait(training: Training, source: random.Random) -> None:
    """Until a random step of those that are left; or until the training has ended."""
    _resumed(training)
    first = training.last_step()
    step = source.randint(first, max(first, STEPS - 2))
    while training.running and training.last_step() < step:
        time.sleep(0.001)


DISTURBANCES: dict[str, Callable[[Training, random.Random], None]] = {
    "SIGKILL of a rank": kill_rank,
    "SIGTERM of the node": stop_node,
    "SIGKILL of the node": kill_node,
    "SIGKILL during a write": kill_during_write,
}


def tear(training: Training, source: random.Random) -> str:
    """Damage the newest whole checkpoint; what was done, empty when there is none."""
    whole = [folder for folder in training.saved() if is_whole(folder)]
    if not whole:
        return ""
    name, act = source.choice(sorted(TEARS.items()))
    parts = sorted(whole[-1].glob("*.safetensors"))
    act(whole[-1], source.choice(parts), source)
    return name


def _cut(folder: Path, part: Path, source: random.Random) -> None:
    os.truncate(part, source.randrange(part.stat().st_size))


def _flip(folder: Path, part: Path, source: random.Random) -> None:
    content = bytearray(part.read_bytes())
    content[source.randrange(len(content))] ^= 1 << source.randrange(8)
    part.write_bytes(content)


def _no_marker(folder: Path, part: Path, source: random.Random) -> None:
    (folder / "complete.json").unlink()


def _no_part(folder: Path, part: Path, source: random.Random) -> None:
    part.unlink()


TEARS: dict[str, Callable[[Path, Path, random.Random], None]] = {
    "file cut off": _cut,
    "bit flipped": _flip,
    "marker deleted": _no_marker,
    "file deleted": _no_part,
}
