"""The gate job on many scores, beside reading the same files with pyarrow and doing nothing."""

import json
import subprocess
import sys
from dataclasses import asdict
from functools import partial
from pathlib import Path

from benchmarks.gate import corpus
from benchmarks.gate.alone import Measured
from benchmarks.gate.setting import Setting
from benchmarks.shards.figures import Figure, Section, Target

CHECKOUT = Path(__file__).parent.parent.parent
PARTS = (0.1, 1.0)
"""Shares of the examples whose peak memory is compared."""


def measure(setting: Setting) -> Section:
    section = Section("speed", "The gate on the scores of two models, beside reading them")
    section.columns = ("examples", "", "seconds", "CPU seconds", "peak MB")
    peaks = {}
    for part in PARTS:
        examples = int(part * setting.examples)
        root = corpus.write(setting.scratch / f"scores-{examples}", examples, setting.progress)
        found = _rounds(setting, root, f"{examples:,} examples")
        for name in ("read", "gate"):
            _row(section, examples, name, found[name])
        peaks[part] = _figure(found["gate"], "peak_mb")
        if part == PARTS[-1]:
            for what, key in (("time", "seconds"), ("CPU time", "cpu_seconds")):
                ratio = _figure(found["gate"], key).over(_figure(found["read"], key))
                title = f"{what} of the gate ÷ of reading the scores, {examples:,} examples"
                section.targets.append(Target(title, ratio, "≤", 3))
    growth = peaks[PARTS[-1]].over(peaks[PARTS[0]])
    title = f"peak memory of the gate at {setting.examples:,} examples ÷ at a tenth"
    section.targets.append(Target(title, growth, "≤", 1.1))
    section.notes.append(
        "Each in a process of its own, in turns; seconds without the imports. The gate compares "
        "two metrics (non-inferiority, superiority, slices of one column); both read the same "
        "columns."
    )
    return section


def _rounds(setting: Setting, root: Path, what: str) -> dict[str, list[Measured]]:
    """Each once in every round; who begins changes."""
    runs = {name: partial(_run, name, root) for name in ("read", "gate")}
    found: dict[str, list[Measured]] = {name: [] for name in runs}
    bar = setting.progress.add_task(what, total=2 * setting.rounds)
    for number in range(setting.rounds):
        for name in sorted(runs, reverse=bool(number % 2)):
            found[name].append(runs[name]())
            setting.progress.advance(bar)
    setting.progress.remove_task(bar)
    return found


def _run(name: str, root: Path) -> Measured:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.gate.alone", name, str(root)],
        cwd=CHECKOUT,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return Measured(**json.loads(done.stdout))


def _row(section: Section, examples: int, name: str, found: list[Measured]) -> None:
    figures = {key: _figure(found, key) for key in ("seconds", "cpu_seconds", "peak_mb")}
    digits = {"peak_mb": 0}
    texts = (figure.text(digits=digits.get(key, 2)) for key, figure in figures.items())
    section.rows.append((f"{examples:,}", name, *texts))
    section.data.setdefault(str(examples), {})[name] = [asdict(one) for one in found]


def _figure(found: list[Measured], key: str) -> Figure:
    return Figure(tuple(getattr(one, key) for one in found))
