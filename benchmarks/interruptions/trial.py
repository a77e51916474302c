"""Disturb a training once or twice, resume it, and compare the loss curve."""

import os
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.interruptions.training import INTERVAL, STEPS, Layout, Training, is_whole


def kill_rank(training: Training, source: random.Random) -> None:
    """Kill one rank by SIGKILL; the others have to end by themselves."""
    _wait_for_random_step(training, source)
    source.choice(training.ranks).kill()
    training.wait_for_end()


def stop_node(training: Training, source: random.Random) -> None:
    """Stop every rank by SIGTERM: they save at the next step's boundary and end.

    Wait for this start's first step: until then there is nothing new to save, and they just end.
    """
    _wait_for_random_step(training, source)
    while training.is_running and not training.read_losses(training.starts):
        time.sleep(0.001)
    for rank in training.ranks:
        rank.terminate()
    training.wait_for_end()


def kill_node(training: Training, source: random.Random) -> None:
    """Kill every rank at once by SIGKILL."""
    _wait_for_random_step(training, source)
    _kill_ranks(training)


def _kill_ranks(training: Training) -> None:
    for rank in training.ranks:
        rank.kill()
    training.wait_for_end()


def kill_during_write(training: Training, source: random.Random) -> None:
    """Kill every rank by SIGKILL as soon as there is a checkpoint without its marker."""
    _wait_for_random_step(training, source)
    known = set(training.list_saved_folders())
    while training.is_running:
        new = {*training.list_saved_folders()} - known
        if not all((path / "complete.json").exists() for path in new):
            time.sleep(source.uniform(0, 0.005))
            break
        time.sleep(0.0005)
    _kill_ranks(training)


def _wait_for_random_step(training: Training, source: random.Random) -> None:
    """Wait until a random step of those that are left, or until the training has ended."""
    while training.is_running and training.find_resumed_step(training.starts) is None:
        time.sleep(0.002)
    first = training.last_step()
    step = source.randint(first, max(first, STEPS - 2))
    while training.is_running and training.last_step() < step:
        time.sleep(0.001)


DISTURBANCES: dict[str, Callable[[Training, random.Random], None]] = {
    "SIGKILL of a rank": kill_rank,
    "SIGTERM of the node": stop_node,
    "SIGKILL of the node": kill_node,
    "SIGKILL during a write": kill_during_write,
}


def damage_checkpoint(training: Training, source: random.Random) -> str:
    """Damage the newest whole checkpoint; return the kind of damage, or "" without a checkpoint."""
    whole = [folder for folder in training.list_saved_folders() if is_whole(folder)]
    if not whole:
        return ""
    name, act = source.choice(sorted(TEARS.items()))
    parts = sorted(whole[-1].glob("*.safetensors"))
    act(source.choice(parts), source)
    return name


def flip_bit(part: Path, source: random.Random) -> None:
    content = bytearray(part.read_bytes())
    content[source.randrange(len(content))] ^= 1 << source.randrange(8)
    part.write_bytes(content)


TEARS: dict[str, Callable[[Path, random.Random], object]] = {
    "file cut off": lambda part, source: os.truncate(part, source.randrange(part.stat().st_size)),
    "bit flipped": flip_bit,
    "marker deleted": lambda part, source: part.with_name("complete.json").unlink(),
    "file deleted": lambda part, source: part.unlink(),
}

TOLERANCE = 1e-5  # relative, of each loss, with another world size or strategy
STOP = "SIGTERM of the node"


@dataclass
class Resume:
    """One interruption, and the step that the next start resumed from."""

    disturbance: str
    torn: str
    before: Layout
    after: Layout
    last_step: int
    """Last step before the interruption."""
    newest_whole: int
    """Step of the newest complete checkpoint on the disk at that time."""
    resumed: int | None = None
    unfinished: bool = False
    """Whether the checkpoint due last was still being written."""

    @property
    def lost(self) -> int:
        return self.last_step - (self.resumed or 0)

    @property
    def allowed_loss(self) -> int:
        """Steps that may be lost.

        One interval; a second one when the newest checkpoint was torn on purpose; and the steps the
        training makes while an unfinished checkpoint is written.
        """
        if self.disturbance == STOP and not self.torn:
            return 0
        writing = self.last_step % INTERVAL if self.unfinished else 0
        return INTERVAL * (2 if self.torn else 1) + writing


@dataclass
class Trial:
    """What was done to a training, and what came of it."""

    number: int
    resumes: list[Resume] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    compared: int = 0
    """Losses that were compared with the undisturbed curve, those made twice included."""
    bitwise: bool = True
    """Whether the curve has to be the undisturbed one's bit by bit: one layout all along."""
    error: float = 0.0
    """The largest relative difference of a loss."""


class References:
    """Loss curves of undisturbed trainings, which run when a curve is first asked for."""

    def __init__(self, data: Path, folder: Path) -> None:
        self._data, self._folder = data, folder
        self._curves: dict[Layout, dict[int, str]] = {}

    def get_curve(self, layout: Layout) -> dict[int, str]:
        """Return step → loss of the undisturbed training with a layout."""
        if layout not in self._curves:
            folder = self._folder / f"{layout.strategy}-{layout.world}"
            training = Training(self._data, folder)
            training.start(layout)
            codes = training.wait_for_end()
            if any(codes):
                raise RuntimeError(
                    f"the undisturbed training ended with {codes}: {training.read_log()}"
                )
            self._curves[layout] = training.read_losses(1)
        return self._curves[layout]


def run_trial(
    number: int, seed: int, data: Path, folder: Path, references: References, worlds: list[int]
) -> Trial:
    """Run one trial; its seed and number decide on layouts and interruptions."""
    source = random.Random(f"{seed} {number}")
    trial, training = Trial(number), Training(data, folder)
    base = layout = Layout(source.choice(["ddp", "ddp", "ddp", "fsdp"]), source.choice(worlds))
    expected = references.get_curve(base)
    for _ in range(source.choice([1, 1, 2])):
        training.start(layout)
        _record_resume(trial, training)
        layout = _interrupt(trial, training, layout, source)
    training.start(layout)
    codes = training.wait_for_end()
    _record_resume(trial, training)
    if any(codes):
        trial.faults.append(f"the last start ended with {codes}: {training.read_log()[-3000:]}")
    trial.bitwise = all(one.after == base for one in trial.resumes)
    _compare_losses(trial, training, expected)
    return trial


def _interrupt(trial: Trial, training: Training, layout: Layout, source: random.Random) -> Layout:
    """Interrupt the training; return the layout that it goes on with."""
    name, act = source.choice(sorted(DISTURBANCES.items()))
    act(training, source)
    _record_resume(trial, training)
    last = training.last_step()
    due = last - last % INTERVAL
    unfinished = name != STOP and training.newest_whole() < due
    torn = damage_checkpoint(training, source) if source.random() < 0.4 else ""
    others = [Layout(s, w) for s in ("ddp", "fsdp") for w in (1, 2, 3, 4)]
    after = layout if source.random() < 0.6 else source.choice(others)
    whole = training.newest_whole()
    trial.resumes.append(Resume(name, torn, layout, after, last, whole, unfinished=unfinished))
    if name == STOP and "stopped by SIGTERM after step" not in training.read_log() and last < STEPS:
        trial.faults.append(f"SIGTERM was not obeyed: {training.read_log()[-2000:]}")
    return after


def _record_resume(trial: Trial, training: Training) -> None:
    """Record which step the newest start resumed from, if it was a resume."""
    if not trial.resumes or training.starts != len(trial.resumes) + 1:
        return
    resume, step = trial.resumes[-1], training.find_resumed_step(training.starts)
    if step is None:
        return
    resume.resumed = step
    if step != resume.newest_whole:
        trial.faults.append(f"went on from {step}, the newest whole one is {resume.newest_whole}")
    if resume.lost > resume.allowed_loss:
        trial.faults.append(f"lost {resume.lost} steps, at most {resume.allowed_loss} are allowed")


def _compare_losses(trial: Trial, training: Training, expected: dict[int, str]) -> None:
    seen: set[int] = set()
    for start in range(1, training.starts + 1):
        for step, loss in training.read_losses(start).items():
            want, have = float.fromhex(expected[step]), float.fromhex(loss)
            trial.error = max(trial.error, abs(have - want) / abs(want))
            seen.add(step)
            trial.compared += 1
            if trial.bitwise and loss != expected[step]:
                trial.faults.append(f"start {start}, step {step}: {loss} is not {expected[step]}")
    if seen != {*expected}:
        trial.faults.append(f"no loss of steps {sorted({*expected} - seen)}")
    if trial.error > TOLERANCE:
        trial.faults.append(f"a loss differs by {trial.error:.1e}, allowed are {TOLERANCE}")
