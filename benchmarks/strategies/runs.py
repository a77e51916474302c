"""The trainings of a layout: one seed after the other in the same processes, and their curves."""

import shutil
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.strategies.cases import EVERY, container
from tests.fakes import launch
from tests.training import worlds
from tests.training.trainings import losses

COMPILING = 900  # seconds that a training may take which compiles on busy cores
CURVES = {"losses": "loss", "validation_losses": "validation_loss"}
"""A curve's name here → in the training's history."""

Found = dict[str, Any]
"""Result of a training: its curves (losses by step), in float16 the steps ``skipped`` by then where
any was, and its duration; or why it ``failed``."""


@dataclass(frozen=True, slots=True)
class Run:
    """A layout's training from a seed; as text it is the name under which its curves are kept."""

    layout: str
    seed: int

    def __str__(self) -> str:
        return f"{self.layout}, seed {self.seed}"


@dataclass(slots=True)
class Runs:
    """All trainings, of which those that are wanted are made when the first of a layout is asked.

    Attributes:
        data: the samples that all train on.
        wanted: those that are in no file yet.
    """

    data: Path
    scratch: Path
    settings: Mapping[str, Any]
    wanted: Iterable[Run]
    _made: dict[str, Found] = field(default_factory=dict)

    def found(self, name: str) -> Found:
        """Return the result of the training of that name; the layout's others run with it."""
        if name not in self._made:
            [layout] = [run.layout for run in self.wanted if str(run) == name]
            self._train(layout, [run for run in self.wanted if run.layout == layout])
        return self._made.pop(name)

    def _train(self, layout: str, runs: Sequence[Run]) -> None:
        began, (world, differs) = time.perf_counter(), EVERY[layout]
        roots = {run: container(self.data, self.scratch / str(run)) for run in runs}
        given = {roots[run]: {**self.settings, **differs, "seed": run.seed} for run in runs}
        why = ""
        try:
            if "mpirun" in layout:
                for root, settings in given.items():
                    launch.mpirun(root, **settings)
            else:
                worlds.train_each(given, world, seconds=COMPILING * len(runs))
        except AssertionError as error:
            why = str(error)
        seconds = (time.perf_counter() - began) / len(runs)
        for run, root in roots.items():
            self._made[str(run)] = curves(root, why) | {"seconds": seconds}
            shutil.rmtree(root)


def curves(root: Path, why: str) -> Found:
    """Return the result of a training that ended in a folder; ``why``: cause of its failure."""
    if not (root / "model/history.jsonl").is_file():
        return {"failed": reason(root) or why or "it did not end"}
    skipped = losses(root, "skipped_steps")
    found = {"skipped": skipped} if any(skipped.values()) else {}
    return found | {key: losses(root, line) for key, line in CURVES.items()}


def reason(root: Path) -> str:
    """What a training has left of why it failed; or the last line of rank 0."""
    for place in (root / "output/failure", root / "rank-0.log"):
        if place.is_file() and (lines := place.read_text().splitlines()):
            return lines[-1]
    return ""


def steps(curve: Mapping[str, float]) -> dict[int, float]:
    """A curve out of JSON, whose keys are text."""
    return {int(step): loss for step, loss in curve.items()}


def parted(found: Found, other: Found) -> int | None:
    """The first step that one of two trainings left out (float16) and the other did not."""
    mine, theirs = (steps(one.get("skipped", {})) for one in (found, other))
    return min((n for n in {*mine, *theirs} if mine.get(n, 0) != theirs.get(n, 0)), default=None)


def distance(curve: dict[int, float], reference: dict[int, float]) -> float:
    """The largest relative difference over the steps, which have to be the same ones."""
    if curve.keys() != reference.keys():
        raise ValueError(f"steps {sorted(curve)} are not those of the reference")
    return max(abs(curve[step] / reference[step] - 1) for step in curve)
