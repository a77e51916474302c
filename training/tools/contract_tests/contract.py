"""The rules of a workload's contract: each is a function that yields the faults it finds."""

import inspect
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from training.tools.contract_tests.trial import Trial

CHECKOUT = Path(__file__).parents[3]
TRAINING_FOLDER = CHECKOUT / "training"


@dataclass(frozen=True, slots=True)
class Fault:
    """One violation of a rule."""

    observation: str
    """Observation, with its numbers."""

    location: str
    """File and line, or the name of what to look at."""

    fix: str
    """Suggested fix."""


class NotChecked(Exception):
    """A rule cannot tell; the message says why. Stays inside this room."""


@dataclass(frozen=True, slots=True)
class Rule:
    """One requirement on a workload."""

    name: str
    says: str
    """Statement that is true if the rule is kept."""

    check: Callable[[Trial], Iterator[Fault]]
    needs: tuple[str, ...]
    """Names of rules that must hold before this one can be checked."""

    fix: str
    """Suggested fix if the workload's code raises."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """Result of checking a rule."""

    rule: Rule
    faults: Sequence[Fault]
    why_not: str = ""
    """Reason why it was not checked; empty if it was."""


RULES: list[Rule] = []


def rule(
    name: str, says: str, *, needs: tuple[str, ...] = ("runs",), fix: str = "mend what raises"
) -> Callable[[Callable[[Trial], Iterator[Fault]]], Callable[[Trial], Iterator[Fault]]]:
    """Add a rule to the contract; rules are checked in the order in which they were added."""

    def add(check: Callable[[Trial], Iterator[Fault]]) -> Callable[[Trial], Iterator[Fault]]:
        RULES.append(Rule(name, says, check, needs, fix))
        return check

    return add


def judge(trial: Trial, rules: Sequence[Rule]) -> Iterator[Verdict]:
    """Check each rule, unless one that it needs is broken."""
    broken: set[str] = set()
    for rule in rules:
        if missing := sorted(broken & set(rule.needs)):
            verdict = Verdict(rule, (), f"{', '.join(missing)} is broken")
        else:
            verdict = _judge_rule(trial, rule)
        if verdict.faults or missing:
            broken.add(rule.name)
        yield verdict


def place(workload: Any, *methods: str) -> str:
    """Return where a method of the workload is defined: the first of the user's own, if any."""
    own_methods = [name for name in methods if _is_own(_file(getattr(type(workload), name, None)))]
    method = (own_methods or methods)[0]
    try:
        function = inspect.unwrap(getattr(type(workload), method))
        line = inspect.getsourcelines(function)[1]
        return f"{short(inspect.getfile(function))}:{line} {method}()"
    except (AttributeError, TypeError, OSError):
        return f"{type(workload).__module__}: {method}()"


def raised_at(error: BaseException) -> str:
    """Return the innermost line of the user's own code that an error came through."""
    frames = traceback.extract_tb(error.__traceback__)
    own_frames = [frame for frame in frames if _is_own(frame.filename)]
    frame = (own_frames or list(frames))[-1]
    return f"{short(frame.filename)}:{frame.lineno} {frame.name}()"


def error_line(error: BaseException) -> str:
    """Return an error in one line."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0] if lines else ''}"[:300]


def short(file: str) -> str:
    """Return a path relative to the current folder, if it is below it."""
    path = Path(file)
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)


def _judge_rule(trial: Trial, rule: Rule) -> Verdict:
    try:
        return Verdict(rule, list(rule.check(trial)))
    except NotChecked as reason:
        return Verdict(rule, (), str(reason))
    except Exception as error:  # any exception of the workload's code is a finding
        if _is_ours(error.__traceback__):
            raise
        return Verdict(rule, [Fault(error_line(error), raised_at(error), rule.fix)])


def _is_ours(trace: TracebackType | None) -> bool:
    """Return whether neither the user's code nor the defaults took part in the error."""
    names = [Path(frame.filename) for frame in traceback.extract_tb(trace)]
    return all(name.is_relative_to(Path(__file__).parent) for name in names)


def _file(function: Any) -> str:
    return getattr(getattr(function, "__code__", None), "co_filename", "")


def _is_own(file: str) -> bool:
    path = Path(file)
    if path.is_relative_to(TRAINING_FOLDER):
        return (
            path.is_relative_to(TRAINING_FOLDER / "workloads")
            and path.parent != TRAINING_FOLDER / "workloads"
        )
    is_standard = path.is_relative_to(Path(inspect.__file__).parent)
    return "site-packages" not in path.parts and path.suffix == ".py" and not is_standard
