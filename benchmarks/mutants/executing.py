"""The tests that execute a statement: each commit's tests run once, and what they ran is kept."""

import functools
import json
import os
import re
import subprocess
import tempfile
from collections import defaultdict
from dataclasses import asdict, replace
from pathlib import Path

from benchmarks.mutants.edits import ROOMS, Mutant, made
from benchmarks.mutants.forked import Ran, pytest_in
from trainyard.common.atomic_file import write

SECONDS = 60  # of a test file, when its statements are noted: what ended by then counts
FILES, TESTS, BUDGET = 8, 100, 20.0  # at most, of a mutant's tests: files, tests, usual seconds


class Tests:
    """The tests of a copy of a commit, and what each of them executes."""

    def __init__(self, copy: Path, commit: str):
        self.copy, self.notes = copy, copy.parent / "notes.jsonl"
        self.kept = Path(tempfile.gettempdir(), f"mutants-{commit[:12]}")
        self.executing: dict[str, list[Ran]] = defaultdict(list)
        self.kept.mkdir(exist_ok=True)
        for file in test_files(copy):
            for one in self._noted(file):
                test = replace(one, statements=())
                for statement in one.statements if one.outcome == "passed" else ():
                    self.executing[statement].append(test)
        self.failing = functools.cache(self._failing)

    def _noted(self, file: str) -> list[Ran]:
        """Say what a test file's tests executed; run it where that is not known yet."""
        path = self.kept / f"{file.replace('/', '.')}.json"
        if not path.exists():
            outcome = pytest_in(self.copy, [file], SECONDS, self.notes, ROOMS)
            write(path, json.dumps([asdict(one) for one in outcome.tests]))
            print(f"{file}: {len(outcome.tests)} tests, exit status {outcome.status}", flush=True)
        return [Ran(**one) for one in json.loads(path.read_text())]

    def verdict(self, mutant: Mutant) -> tuple[str, str | None]:
        """Say whether a mutant is killed, survived or not executed, and which test noticed it."""
        executing = self.executing.get(f"{mutant.path}:{mutant.statement}", [])
        by = self._noticing(mutant, nearest(mutant, executing))
        return "killed" if by else "survived" if executing else "not executed", by

    def _noticing(self, mutant: Mutant, tests: list[Ran]) -> str | None:
        """Find the first of some tests that fails with the edit, and passes without it.

        Raises:
            RuntimeError: pytest itself fails without the edit, too.
        """
        while tests:
            with made(mutant, self.copy):
                by = self._failing(tuple(tests))
            last = next((n for n, one in enumerate(tests, 1) if one.test == by), len(tests))
            without = by and self.failing(tuple(tests[:last]))
            if by is None or without is None:
                return by
            if without.startswith("exit status"):
                raise RuntimeError(f"{mutant.name}: pytest fails without it: {without}, {tests}")
            sound = [one for one in tests if one.test not in (by, without)]
            tests = sound if len(sound) < len(tests) else tests[: len(tests) // 2]
        return None

    def _failing(self, tests: tuple[Ran, ...]) -> str | None:
        """Find the first test that fails, or takes far longer than usual; None where all pass."""
        seconds = [one.seconds for one in tests]
        hangs = f"--timeout={15 + 5 * max(seconds):.0f}"
        arguments = ["-x", hangs, *(one.test for one in tests)]
        return pytest_in(self.copy, arguments, 30 + 3 * sum(seconds), self.notes).noticed


def nearest(mutant: Mutant, tests: list[Ran]) -> list[Ran]:
    """Choose the tests that a mutant is tried with, in the order of their files.

    First are those of its file's name, then those in the next folders, then the fastest.
    """

    def distance(one: Ran) -> tuple[bool, int, float]:
        file = one.test.partition("::")[0]
        shared = os.path.commonprefix([file.split("/"), f"tests/{mutant.path}".split("/")])
        return Path(file).stem != f"test_{Path(mutant.path).stem}", -len(shared), one.seconds

    files: dict[str, list[Ran]] = {}
    left = BUDGET
    for one in sorted(tests, key=distance)[:TESTS]:
        file = one.test.partition("::")[0]
        if (one.seconds <= left or not files) and (file in files or len(files) < FILES):
            files.setdefault(file, []).append(one)
            left -= one.seconds
    return [one for same in files.values() for one in same]


def test_files(copy: Path) -> list[str]:
    """List the test files that lie in a room of the same name, or import from one."""
    modules = "|".join(re.escape(room.replace("/", ".")) for room in ROOMS)
    imports = re.compile(rf"^\s*(from|import) ({modules})\b", re.MULTILINE)
    rooms = tuple(f"tests/{room}/" for room in ROOMS)
    return [
        path
        for path in _git(copy, "ls-files", "tests/**/test_*.py").split()
        if not path.startswith("tests/benchmarks/")
        and (path.startswith(rooms) or imports.search((copy / path).read_text(encoding="utf-8")))
    ]


def _git(copy: Path, *arguments: str) -> str:
    command = ["git", "-C", str(copy), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout
