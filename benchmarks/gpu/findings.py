"""Findings: what a section saw on the device, with its spread, limit and verdict."""

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import torch

from benchmarks.harness import Figure
from trainyard.common.errors import TrainyardError

NOT_SHOWN = "not shown: no GPU"
LATE, SMALL = "not measured: out of time", "left out of --smoke"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that a section has measured or seen."""

    what: str
    """Its name; a later finding of that name takes an earlier one's place."""
    rounds: tuple[float, ...] = ()
    """Measurements, one for each round."""
    unit: str = ""
    text: str = ""
    """Text shown instead of a number: a kernel's name, or why nothing was measured."""
    limit: str = ""
    """What the median is held to, and why, with the source; empty if it is only told."""
    met: bool | None = None
    """Whether the limit holds; None if it is only told or could not be measured."""
    of_gpu: bool = True
    """Whether a processor's figure says nothing about the claim."""

    @classmethod
    def from_bound(cls, what: str, value: float, most: float, why: str, **more: Any) -> Self:
        """Create a finding whose absolute value may be at most ``most``, for the reason ``why``."""
        limit, met = f"≤ {number(most)}: {why}", abs(value) <= most
        return cls(what=what, rounds=(value,), limit=limit, met=met, **more)

    def on(self, device: torch.device) -> "Finding":
        """Return the finding as it may be shown: without a figure that only a GPU can give."""
        if device.type == "cuda" or not self.of_gpu:
            return self
        return replace(self, rounds=(), text=NOT_SHOWN, met=None)

    def cells(self) -> tuple[str, str, str, str]:
        """Name, median with its unit and spread, verdict, limit."""
        told = self.text
        if self.rounds:
            figure = Figure(self.rounds)
            spread = f" ({number(figure.low)}–{number(figure.high)})" * (len(self.rounds) > 1)
            told = f"{number(figure.median)}{spread} {self.unit}".rstrip()
        return self.what, told, {True: "met", False: "missed", None: ""}[self.met], self.limit


@dataclass(frozen=True, slots=True)
class Frame:
    """What a section is run with."""

    device: torch.device
    smoke: bool
    """Whether tiny shapes are enough, which show that the code runs."""
    until: float
    """Moment of ``time.monotonic`` after which nothing more should begin."""
    scratch: Path
    """Empty folder, removed afterwards."""

    @property
    def seconds_left(self) -> float:
        """Seconds that one training may take; a little more than the section has."""
        return min(120.0, self.until + 10 - time.monotonic())

    def iter_case_findings(
        self, cases: Mapping[str, Any], slow: Callable[[str], bool], run: Callable[..., Any]
    ) -> Iterator[Finding]:
        """Yield what ``run(name, case)`` finds of each case there is time for.

        ``slow``: whether ``--smoke`` leaves a case out.
        """
        for name, case in cases.items():
            if self.smoke and slow(name):
                yield Finding(what=name, text=SMALL, of_gpu=False)
            elif time.monotonic() > self.until:
                yield Finding(what=name, text=LATE, of_gpu=False)
            else:
                yield from contain_failures(name, run(name, case))


def contain_failures(what: str, found: Iterator[Finding]) -> Iterator[Finding]:
    """Yield what is found of one case; its failure (memory, a compiler) does not end the others."""
    try:
        yield from found
    except TimeoutError as error:
        yield Finding(what=what, text=f"{LATE}: {error}", of_gpu=False)
    except (RuntimeError, TrainyardError) as error:
        first = str(error).strip().partition("\n")[0]
        why = f"failed: {type(error).__name__}: {first}"
        yield Finding(what=what, text=why, limit="it runs", met=False, of_gpu=False)


def number(value: float) -> str:
    """Return a number for people: three digits, and thousands apart."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
