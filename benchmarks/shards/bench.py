"""Give every section its sizes, folder, contenders in processes of their own, and progress bar."""

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from rich.progress import Progress

from benchmarks.harness import CHECKOUT, Figure, turns
from benchmarks.shards import corpus
from benchmarks.shards.contenders import Entry


class ContenderFailed(Exception):
    """A contender's process ended, or what it read is not what was written."""

    def __init__(self, entry: Entry, reason: str) -> None:
        super().__init__(f"{entry.label}: {reason}")
        self.entry = entry


class Process:
    """A contender in a process of its own, which is asked for one thing after the other."""

    def __init__(self, entry: Entry) -> None:
        self.entry = entry
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the process
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.shards.worker", entry.module],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            cwd=CHECKOUT,
            text=True,
        )

    def ask(self, do: str, **arguments: Any) -> dict[str, Any]:
        """Send a command; return its answer.

        Raises:
            ContenderFailed: with the last line that the process wrote to stderr.
        """
        command = json.dumps({"do": do} | arguments, default=str)
        try:
            self._process.stdin.write(command + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise self._failure(do) from None
        answer = self._process.stdout.readline()
        if not answer:
            raise self._failure(do)
        return json.loads(answer)

    def close(self) -> None:
        """End the process; a thread of a library that does not end is killed."""
        self._process.stdin.close()
        try:
            self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()
        self._log.close()

    def _failure(self, do: str) -> ContenderFailed:
        status = self._process.wait()
        self._log.seek(0)
        lines = self._log.read().decode(errors="replace").strip().splitlines()
        last = lines[-1] if lines else f"exit status {status}"
        return ContenderFailed(self.entry, f"{do}: {last}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """How much is measured."""

    rounds: int = 5
    samples: int = 65_887
    """Samples of 2,049 tokens: 135 million tokens, 270 MB."""
    seconds: float = 1.0
    """Seconds of reading in a round."""


QUICK = Sizes(rounds=2, samples=1_024, seconds=0.05)


@dataclass
class Bench:
    """Shared by the sections of one run."""

    sizes: Sizes
    scratch: Path
    entries: tuple[Entry, ...]
    """The contenders that can run here."""
    progress: Progress
    failed: dict[str, str] = field(default_factory=dict)
    """Contender → why it is not measured (any more)."""
    _started: dict[str, Process] = field(default_factory=dict)

    @cached_property
    def tokens(self) -> Path:
        """The corpus as a flat file."""
        path = self.scratch / "corpus.bin"
        corpus.write_tokens(path, self.sizes.samples)
        return path

    def rounds(self, what: str, measures: Mapping[str, Callable[[], float]]) -> dict[str, Figure]:
        """Each measure once in every round; who begins changes from round to round.

        A peer that fails is left out, and reported.
        """
        found: dict[str, list[float]] = {name: [] for name in measures}
        bar = self.progress.add_task(what, total=len(measures) * self.sizes.rounds)
        for _, name in turns(list(measures), self.sizes.rounds):
            try:
                if name in found:
                    found[name].append(measures[name]())
            except ContenderFailed as error:
                self.leave_out(error)
                del found[name]
            self.progress.advance(bar)
        self.progress.remove_task(bar)
        return {name: Figure(tuple(values)) for name, values in found.items()}

    def processes(self, task: str) -> dict[str, Process]:
        """The contenders of a task by module, each in its process, its own copy of the corpus
        written and compared. One that fails is left out from then on, and reported.
        """
        chosen = [e for e in self.entries if task in e.tasks and e.module not in self.failed]
        bar = self.progress.add_task(f"{task}: every contender's own format", total=len(chosen))
        for entry in chosen:
            try:
                if entry.module not in self._started:
                    self._started[entry.module] = Process(entry)
                self._written(self._started[entry.module])
            except ContenderFailed as error:
                self.leave_out(error)
            self.progress.advance(bar)
        self.progress.remove_task(bar)
        started = [entry.module for entry in chosen if entry.module not in self.failed]
        return {module: self._started[module] for module in started}

    def end_processes(self) -> None:
        """No contender is running any more: what comes now has the machine for itself."""
        while self._started:
            self._started.popitem()[1].close()

    def folder(self, module: str) -> Path:
        """Where a contender's copy of the corpus is."""
        return self.scratch / "formats" / module

    def leave_out(self, error: ContenderFailed) -> None:
        """Go on without this contender, unless everything is compared with it."""
        if error.entry.role in ("ours", "limit"):
            raise error
        self.failed[error.entry.module] = str(error)

    def _written(self, process: Process) -> None:
        folder = self.folder(process.entry.module)
        if folder.exists():
            return
        size = self.sizes.samples
        process.ask("write", corpus=self.tokens, folder=folder, samples=size)
        wrong = process.ask("check", corpus=self.tokens, folder=folder)["wrong"]
        if wrong:
            raise ContenderFailed(process.entry, wrong)
