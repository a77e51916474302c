"""Edit the code one place at a time, and run the tests that execute it: do they notice?

python -m benchmarks.mutants [--count 300] [--seed 0] [--checkout DIR] [--json F]
python -m benchmarks.mutants --of F [--checkout DIR] [--json G]     what F's checkout killed, in DIR

An edit turns a comparison, an operator or a condition round, moves a number by one, or leaves a
statement out, in the rooms whose faults cost most. Once for a commit these rooms' tests run, and it
is noted which statements each executes; a mutant's tests are those that execute its statement, the
nearest first. A statement that no quick test executes in its own process is counted apart. A mutant
that was killed in the checkout of F and is not in DIR is a promise that lost its test, and the exit
status is 1.
"""

import functools
import json
import os
import random
import re
import subprocess
import tempfile
from collections import Counter, defaultdict
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated

import typer

from benchmarks.harness import CHECKOUT, JsonFile, track_steps, write_json
from benchmarks.mutants.edits import ROOMS, Mutant, apply_mutant, find_same_mutant, list_mutants
from benchmarks.mutants.forked import Ran, import_libraries, run_pytest
from trainyard.common.atomic_file import write_file

SECONDS = 60  # of a test file, when its statements are noted: what ended by then counts
FILES, TESTS, BUDGET = 8, 100, 20.0  # at most, of a mutant's tests: files, tests, usual seconds


class Tests:
    """The tests of a copy of a commit, and what each of them executes."""

    def __init__(self, copy: Path, commit: str):
        self.copy, self.notes = copy, copy.parent / "notes.jsonl"
        self.kept = Path(tempfile.gettempdir(), f"mutants-{commit[:12]}")
        self.executing: dict[str, list[Ran]] = defaultdict(list)
        self.kept.mkdir(exist_ok=True)
        for file in track_steps("test files, their statements", list_test_files(copy)):
            for one in self._load_executed_tests(file):
                test = replace(one, statements=())
                for statement in one.statements if one.outcome == "passed" else ():
                    self.executing[statement].append(test)
        self.failing = functools.cache(self._find_failing_test)

    def _load_executed_tests(self, file: str) -> list[Ran]:
        """Return a file's tests with what they executed; run the file unless that is known."""
        path = self.kept / f"{file.replace('/', '.')}.json"
        if not path.exists():
            outcome = run_pytest(self.copy, [file], SECONDS, self.notes, ROOMS)
            write_file(path, json.dumps([asdict(one) for one in outcome.tests]))
        return [Ran(**one) for one in json.loads(path.read_text())]

    def judge_mutant(self, mutant: Mutant) -> tuple[str, str | None]:
        """Return ``killed``, ``survived`` or ``not executed``, and the test that noticed it."""
        executing = self.executing.get(f"{mutant.path}:{mutant.statement}", [])
        by = self._find_noticing_test(mutant, choose_nearest_tests(mutant, executing))
        return "killed" if by else "survived" if executing else "not executed", by

    def _find_noticing_test(self, mutant: Mutant, tests: list[Ran]) -> str | None:
        """Return the first of some tests that fails with the edit, and passes without it.

        Raises:
            RuntimeError: pytest itself fails without the edit, too.
        """
        while tests:
            with apply_mutant(mutant, self.copy):
                by = self._find_failing_test(tuple(tests))
            last = next((n for n, one in enumerate(tests, 1) if one.test == by), len(tests))
            without = by and self.failing(tuple(tests[:last]))
            if by is None or without is None:
                return by
            if without.startswith("exit status"):
                raise RuntimeError(f"{mutant.name}: pytest fails without it: {without}, {tests}")
            sound = [one for one in tests if one.test not in (by, without)]
            tests = sound if len(sound) < len(tests) else tests[: len(tests) // 2]
        return None

    def _find_failing_test(self, tests: tuple[Ran, ...]) -> str | None:
        """Return the first test that fails, or takes far longer than usual; None if all pass."""
        seconds = [one.seconds for one in tests]
        hangs = f"--timeout={15 + 5 * max(seconds):.0f}"
        arguments = ["-x", hangs, *(one.test for one in tests)]
        return run_pytest(self.copy, arguments, 30 + 3 * sum(seconds), self.notes).failure_name


def choose_nearest_tests(mutant: Mutant, tests: list[Ran]) -> list[Ran]:
    """Return the tests that a mutant is tried with, in the order of their files.

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


def list_test_files(copy: Path) -> list[str]:
    """Return the tests of the folders ``ROOMS``, and those that import from one of them."""
    modules = "|".join(re.escape(room.replace("/", ".")) for room in ROOMS)
    imports = re.compile(rf"^\s*(from|import) ({modules})\b", re.MULTILINE)
    rooms = tuple(f"tests/{room}/" for room in ROOMS)
    return [
        path
        for path in _run_git(copy, "ls-files", "tests/**/test_*.py").split()
        if not path.startswith("tests/benchmarks/")
        and (path.startswith(rooms) or imports.search((copy / path).read_text(encoding="utf-8")))
    ]


def _run_git(copy: Path, *arguments: str) -> str:
    command = ["git", "-C", str(copy), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def main(
    count: Annotated[int, typer.Option(min=1, help="Mutants that are drawn.")] = 300,
    seed: Annotated[int, typer.Option(help="Draws them.")] = 0,
    checkout: Annotated[Path, typer.Option(help="Whose commit is tried.")] = CHECKOUT,
    of: Annotated[Path | None, typer.Option(help="Another checkout's results.")] = None,
    json_file: JsonFile = None,
) -> None:
    """Edit the code one place at a time; exit 1 when a test was lost."""
    memory = "/dev/shm" if Path("/dev/shm").is_dir() else None
    with tempfile.TemporaryDirectory(prefix="mutants-", dir=memory) as place:
        copy, commit = _clone_commit(checkout.resolve(), Path(place))
        drawn = _read_killed_mutants(of) if of else _draw_mutants(copy, count, seed)
        import_libraries()
        tests, found = Tests(copy, commit), {}
        for name in track_steps("mutants", drawn):
            mutant = find_same_mutant(drawn[name], copy) if of else drawn[name]
            verdict, by = tests.judge_mutant(mutant) if mutant else ("absent", None)
            found[name] = {"mutant": asdict(mutant or drawn[name]), "verdict": verdict, "by": by}
            print(f"{verdict:12} {name} {by or ''}", flush=True)
            write_json(json_file, {"commit": commit, "cases": found})
    verdicts = Counter(one["verdict"] for one in found.values())
    print(f"{len(drawn)} mutants:", ", ".join(f"{n} {verdict}" for verdict, n in verdicts.items()))
    raise typer.Exit(int(of is not None and verdicts["survived"] + verdicts["not executed"] > 0))


def _clone_commit(checkout: Path, place: Path) -> tuple[Path, str]:
    """Clone a checkout's commit, with its environment; return the clone and the commit's hash."""
    copy = place / "checkout"
    git = ["git", "-c", "advice.detachedHead=false"]
    subprocess.run([*git, "clone", "-q", "--shared", str(checkout), str(copy)], check=True)
    if (checkout / ".venv").exists():
        (copy / ".venv").symlink_to((checkout / ".venv").resolve())
    commit = subprocess.check_output([*git, "-C", str(copy), "rev-parse", "HEAD"], text=True)
    return copy, commit.strip()


def _draw_mutants(copy: Path, count: int, seed: int) -> dict[str, Mutant]:
    """Draw ``count`` of a checkout's mutants; return name → mutant."""
    every = list_mutants(copy)
    return {one.name: one for one in random.Random(seed).sample(every, min(count, len(every)))}


def _read_killed_mutants(results: Path) -> dict[str, Mutant]:
    """Return the killed mutants of a file of results: name → mutant."""
    found = json.loads(results.read_text(encoding="utf-8"))["cases"]
    return {n: Mutant(**one["mutant"]) for n, one in found.items() if one["verdict"] == "killed"}


if __name__ == "__main__":
    typer.run(main)
