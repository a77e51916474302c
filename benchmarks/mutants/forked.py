"""Run pytest in a fork of a process that has the libraries loaded; record what its tests ran."""

import ast
import builtins
import contextlib
import importlib
import importlib.machinery
import json
import os
import signal
import sys
import time
import types
from collections.abc import Generator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NoReturn

import pytest

OURS = ("benchmarks", "conditions", "pipelines", "steps", "tests", "training", "trainyard")
LIBRARIES = ("torch", "numpy", "pandas", "scipy.stats", "sklearn", "pyarrow.parquet", "safetensors",
             "boto3", "moto.core", "moto.server", "flask", "hypothesis", "pydantic", "jsonschema",
             "matplotlib.figure", "jinja2", "regex", "yaml")  # fmt: skip
OPTIONS = ("-q", "-p", "no:cacheprovider", "--hypothesis-seed=0", "-m", "not slow and not sweep")


@dataclass(frozen=True, slots=True)
class Ran:
    """A test that ran, and the statements it executed (``path:line``), if they were recorded."""

    test: str
    outcome: str
    """passed, skipped or failed."""
    seconds: float
    statements: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Outcome:
    """How pytest ended: its exit status, None if it was killed, and the tests that ran."""

    status: int | None
    tests: list[Ran]

    @property
    def failure_name(self) -> str | None:
        """Name of the failed test, or else ``time`` or the exit status; None if pytest passed."""
        if self.status in (0, 5):
            return None
        failed = (one.test for one in self.tests if one.outcome == "failed")
        return next(failed, "time" if self.status is None else f"exit status {self.status}")


def import_libraries() -> None:
    """Import the libraries that the tests import, which takes pytest its first ten seconds."""
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # as in tests/conftest.py
    for name in LIBRARIES:
        importlib.import_module(name)


def run_pytest(
    checkout: Path, arguments: Sequence[str], seconds: float, notes: Path, noted: Sequence[str] = ()
) -> Outcome:
    """Run a checkout's pytest in a fork of this process, in the checkout.

    Args:
        seconds: it is killed after these.
        notes: file for the records of its tests; its output goes to the .txt next to it.
        noted: folders of the checkout whose executed statements are recorded.
    """
    notes.write_text("")
    notes.with_suffix(".txt").write_text("")
    child = os.fork()
    if not child:
        _become_pytest(checkout, arguments, notes, noted)
    end, ended = time.monotonic() + seconds, (0, 0)
    try:
        while not ended[0] and time.monotonic() < end:
            time.sleep(0.02)
            ended = os.waitpid(child, os.WNOHANG)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)  # what its tests left behind, too
    if not ended[0]:
        os.waitpid(child, 0)
    lines = [json.loads(line) for line in notes.read_text().split("\n")[:-1]]
    status = os.waitstatus_to_exitcode(ended[1]) if ended[0] else None
    return Outcome(status, [Ran(**one) for one in lines])


def _become_pytest(
    checkout: Path, arguments: Sequence[str], notes: Path, noted: Sequence[str]
) -> NoReturn:
    """Run pytest in this process as if it had been started in the checkout; end the process."""
    status = 3
    try:
        os.setsid()
        os.chdir(checkout)
        for stream, file in enumerate((os.devnull, output := notes.with_suffix(".txt"), output)):
            os.dup2(os.open(file, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644), stream)
        for name in [one for one in sys.modules if one.split(".")[0] in OURS]:
            del sys.modules[name]
        sys.modules["__main__"] = types.ModuleType("__main__")  # what spawned processes begin with
        sys.path[0], sys.argv = str(checkout), ["pytest"]
        plugin = Notes(notes)
        if noted:
            builtins.__ran__ = plugin.statements.add  # type: ignore[attr-defined]
            sys.meta_path.insert(0, Finder(checkout, noted))
        status = pytest.main(
            [*OPTIONS, f"--basetemp={notes.with_suffix('.tmp')}", *arguments], [plugin]
        )
    finally:
        os._exit(status)


class Notes:
    """pytest plugin that writes a line for each test that ended."""

    def __init__(self, path: Path):
        self.file = path.open("a", buffering=1)
        self.statements: set[str] = set()
        """What was executed since the last test ended: before the first one, the imports."""
        self.shared: set[str] = set()
        """What was executed for more than one test: by imports and by wide fixtures."""
        self.reports: list[pytest.TestReport] = []

    def pytest_collection_finish(self) -> None:
        self.shared |= self.statements

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: Any) -> Generator[None, object, object]:
        """Count what a fixture of more than one test executes for all of these tests."""
        before = self.statements.copy()
        try:
            return (yield)
        finally:
            if fixturedef.scope != "function":
                self.shared |= self.statements - before

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.reports.append(report)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        """Write how a test went, and what it executed."""
        self.reports.clear()
        self.statements.clear()
        try:
            return (yield)
        finally:
            went = {one.outcome for one in self.reports}
            outcome = next((one for one in ("failed", "skipped") if one in went), "passed")
            seconds = round(sum(one.duration for one in self.reports), 3)
            ran = Ran(item.nodeid, outcome, seconds, tuple(self.statements | self.shared))
            self.file.write(json.dumps(asdict(ran)) + "\n")


class Finder:
    """Import finder that has the modules of some folders loaded with a note at each statement."""

    def __init__(self, checkout: Path, folders: Sequence[str]):
        self.checkout, self.folders = checkout, folders

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        """Return what Python's own finder does, with another loader."""
        found = importlib.machinery.PathFinder.find_spec(name, path, target)
        if found and found.origin and found.origin.startswith(f"{self.checkout}/"):
            short = found.origin.removeprefix(f"{self.checkout}/")
            if short.startswith(tuple(f"{one}/" for one in self.folders)):
                found.loader = Noting(name, found.origin, short)
        return found


class Noting(importlib.machinery.SourceFileLoader):
    """Loader of a module whose functions call __ran__ before each statement."""

    def __init__(self, name: str, path: str, short: str):
        super().__init__(name, path)
        self.short = short

    def get_code(self, fullname: str) -> types.CodeType:
        """Compile the module with these calls in it."""
        tree = ast.parse(self.get_data(self.path))
        for node in list(ast.walk(tree)):
            for field in ("body", "orelse", "finalbody"):
                statements = getattr(node, field, None)
                if isinstance(statements, list) and not isinstance(node, ast.Module | ast.ClassDef):
                    pairs = map(self._prepend_note, statements)
                    setattr(node, field, [new for pair in pairs for new in pair])
        return compile(ast.fix_missing_locations(tree), self.path, "exec", dont_inherit=True)

    def _prepend_note(self, statement: ast.stmt) -> list[ast.stmt]:
        """Return the statement after a call of __ran__; a docstring must stay the first."""
        if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
            return [statement]
        call = ast.parse(f"__ran__({f'{self.short}:{statement.lineno}'!r})").body[0]
        for node in ast.walk(call):
            ast.copy_location(node, statement)
        return [call, statement]
