"""The rules of a workload's contract: each is a function that yields the faults that it finds."""

import inspect
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from training.data.dataset import Dataset
from training.data.manifest import Samples
from training.data.shard_writer import count_samples, slice_samples
from training.defaults.default_scores import Batches
from training.workloads import Workload, WorkloadSpec, load_spec, load_workload

# A workload on its sample data, for use by the contract's rules.

SEED = 7
SAMPLES = 8
"""Samples in the batch that most rules use."""

Batch = dict[str, Tensor]


@dataclass(frozen=True, eq=False)
class Trial:
    """A workload under test: its name, its settings, and a folder with its sharded sample data."""

    name: str
    settings: Mapping[str, Any]
    folder: Path
    """Folder with ``train``, ``validation`` and ``test``."""

    @cached_property
    def spec(self) -> WorkloadSpec:
        return load_spec(self.name)

    @cached_property
    def train(self) -> Dataset:
        return Dataset(self.folder / "train")

    @cached_property
    def validation(self) -> Dataset:
        return Dataset(self.folder / "validation")

    @cached_property
    def test(self) -> Dataset:
        return Dataset(self.folder / "test")

    def create_workload(self) -> Workload:
        """Create a new workload, as the train job does."""
        workload = load_workload(self.name, self.settings, self.folder / "train")
        workload.fit(self.train)
        return workload

    @cached_property
    def shared_workload(self) -> Workload:
        """The workload that is shared by all rules that do not change it."""
        return self.create_workload()

    def create_model(self, workload: Workload | None = None, seed: int = SEED) -> nn.Module:
        """Create a model with fresh weights."""
        torch.manual_seed(seed)
        return (workload or self.shared_workload).model()

    @cached_property
    def samples(self) -> Samples:
        """SAMPLES samples of the training split, spread evenly over it."""
        return self.train.read(np.linspace(0, len(self.train) - 1, SAMPLES).astype(np.int64))

    def make_batch(self, start: int = 0, stop: int = SAMPLES) -> Batch:
        """Return some of ``samples`` as a separate batch."""
        return self._batches.make_batch(
            copy_samples(slice_samples(self.samples, self.train.fields, start, stop))
        )

    @cached_property
    def _batches(self) -> Batches:
        return Batches(self.shared_workload)

    def iter_batches(self, dataset: Dataset, size: int = SAMPLES) -> Iterator[tuple[int, Batch]]:
        """Yield (number of samples, batch) over a whole split."""
        for samples in dataset.iter_batches(size):
            yield count_samples(samples, dataset.fields), self._batches.make_batch(samples)


def copy_samples(samples: Samples) -> Samples:
    """Return a copy of the samples that nothing else refers to."""
    return {name: array.copy() for name, array in samples.items()}


def compute_loss(workload: Workload, model: nn.Module, batch: Batch) -> tuple[Tensor, Tensor]:
    """Return (outputs in float32 or wider, loss), computed as a strategy does."""
    outputs = model(*workload.inputs(batch))
    wide = outputs.to(torch.promote_types(outputs.dtype, torch.float32))
    return wide, workload.loss(wide, batch)


@contextmanager
def switch_mode(model: nn.Module, *, training: bool) -> Iterator[None]:
    """Context in which the model is in evaluation mode if not ``training``; each module's mode
    is restored.
    """
    before = {module: module.training for module in model.modules()}
    if not training:
        model.eval()
    yield
    for module, was in before.items():
        module.training = was


CHECKOUT = Path(__file__).parents[3]
TRAINING_FOLDER = CHECKOUT / "training"


@dataclass(frozen=True, slots=True)
class Fault:
    """One violation of a rule."""

    observation: str
    """What was observed, with its numbers."""

    location: str
    """File and line, or the name of what to look at."""

    fix: str
    """Suggested fix."""


class NotChecked(Exception):
    """A rule could not be checked; the message says why. It is not raised outside of this
    package.
    """


@dataclass(frozen=True, slots=True)
class Rule:
    """One requirement on a workload."""

    name: str
    says: str
    """Statement that is true if the rule holds."""

    check: Callable[[Trial], Iterator[Fault]]
    needs: tuple[str, ...]
    """Names of rules that must hold before this one can be checked."""

    fix: str
    """Fix that is suggested if the workload's code raises."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """Result of checking a rule."""

    rule: Rule
    faults: Sequence[Fault]
    why_not: str = ""
    """Reason why the rule was not checked; empty if it was."""


RULES: list[Rule] = []


def rule(
    name: str,
    statement: str,
    *,
    needs: tuple[str, ...] = ("runs",),
    fix: str = "fix the code that raised",
) -> Callable[[Callable[[Trial], Iterator[Fault]]], Callable[[Trial], Iterator[Fault]]]:
    """Return a decorator that adds a rule to the contract; see ``Rule`` for the arguments."""

    def add(check: Callable[[Trial], Iterator[Fault]]) -> Callable[[Trial], Iterator[Fault]]:
        RULES.append(Rule(name, statement, check, needs, fix))
        return check

    return add


def check_rules(trial: Trial, rules: Sequence[Rule]) -> Iterator[Verdict]:
    """Check each rule, unless a rule that it needs is broken; yield the verdicts."""
    broken: set[str] = set()
    for rule in rules:
        if missing := sorted(broken & set(rule.needs)):
            verdict = Verdict(rule, (), f"{', '.join(missing)} is broken")
        else:
            verdict = _check_rule(trial, rule)
        if verdict.faults or missing:
            broken.add(rule.name)
        yield verdict


def locate_method(workload: Any, *methods: str) -> str:
    """Return where a method of the workload is defined.

    Of several ``methods`` the first one in the user's own code is used, or the first of all if none
    is.
    """
    own_methods = [
        name
        for name in methods
        if _is_workload_file(_find_source_file(getattr(type(workload), name, None)))
    ]
    method = (own_methods or methods)[0]
    try:
        function = inspect.unwrap(getattr(type(workload), method))
        line = inspect.getsourcelines(function)[1]
        return f"{shorten_path(inspect.getfile(function))}:{line} {method}()"
    except (AttributeError, TypeError, OSError):
        return f"{type(workload).__module__}: {method}()"


def locate_error(error: BaseException) -> str:
    """Return the innermost line of the user's own code in an error's traceback.

    If there is none, return the innermost line of all.
    """
    frames = traceback.extract_tb(error.__traceback__)
    own_frames = [frame for frame in frames if _is_workload_file(frame.filename)]
    frame = (own_frames or list(frames))[-1]
    return f"{shorten_path(frame.filename)}:{frame.lineno} {frame.name}()"


def format_error(error: BaseException) -> str:
    """Return an error's type and the first line of its message."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0] if lines else ''}"[:300]


def shorten_path(file: str) -> str:
    """Return a path relative to the current folder if it is in it, otherwise the path itself."""
    path = Path(file)
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)


def _check_rule(trial: Trial, rule: Rule) -> Verdict:
    """Check one rule; an exception from the workload's code counts as a fault."""
    try:
        return Verdict(rule, list(rule.check(trial)))
    except NotChecked as reason:
        return Verdict(rule, (), str(reason))
    except Exception as error:  # any exception of the workload's code is a fault
        if _is_own_defect(error.__traceback__):
            raise
        return Verdict(rule, [Fault(format_error(error), locate_error(error), rule.fix)])


def _is_own_defect(trace: TracebackType | None) -> bool:
    """Return whether all of an error's frames are in this package, so that it is our own defect."""
    names = [Path(frame.filename) for frame in traceback.extract_tb(trace)]
    return all(name.is_relative_to(Path(__file__).parent) for name in names)


def _find_source_file(function: Any) -> str:
    return getattr(getattr(function, "__code__", None), "co_filename", "")


def _is_workload_file(file: str) -> bool:
    """Return whether a file belongs to a workload: not to Python, to an installed package or to
    the training.
    """
    path = Path(file)
    if path.is_relative_to(TRAINING_FOLDER):
        return (
            path.is_relative_to(TRAINING_FOLDER / "workloads")
            and path.parent != TRAINING_FOLDER / "workloads"
        )
    is_standard = path.is_relative_to(Path(inspect.__file__).parent)
    return "site-packages" not in path.parts and path.suffix == ".py" and not is_standard
