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
    """One thing that a section has measured or observed."""

    what: str
    """Its name; a later finding of the same name replaces an earlier one."""
    rounds: tuple[float, ...] = ()
    """Measurements, one for each round."""
    unit: str = ""
    text: str = ""
    """Text shown instead of a number: a kernel's name, or why nothing was measured."""
    limit: str = ""
    """Limit of the median, with its reason and source; empty without a limit."""
    met: bool | None = None
    """Whether the limit holds; None without a limit or a measurement."""
    of_gpu: bool = True
    """Whether only a GPU can show it: a processor's figure says nothing about the claim."""

    @classmethod
    def from_bound(cls, what: str, value: float, most: float, why: str, **more: Any) -> Self:
        """Create a finding whose absolute value may be at most ``most``, for the reason ``why``."""
        limit, met = f"≤ {format_number(most)}: {why}", abs(value) <= most
        return cls(what=what, rounds=(value,), limit=limit, met=met, **more)

    def hide_without_gpu(self, device: torch.device) -> "Finding":
        """Return the finding as it may be shown: without a figure that only a GPU can give."""
        if device.type == "cuda" or not self.of_gpu:
            return self
        return replace(self, rounds=(), text=NOT_SHOWN, met=None)

    def cells(self) -> tuple[str, str, str, str]:
        """Return name, median with its unit and spread, verdict and limit."""
        text = self.text
        if self.rounds:
            figure = Figure(self.rounds)
            low, median, high = map(format_number, (figure.low, figure.median, figure.high))
            spread = f" ({low}–{high})" * (len(self.rounds) > 1)
            text = f"{median}{spread} {self.unit}".rstrip()
        return self.what, text, {True: "met", False: "missed", None: ""}[self.met], self.limit


@dataclass(frozen=True, slots=True)
class Frame:
    """Device, time and folder that a section is run with."""

    device: torch.device
    smoke: bool
    """Whether tiny shapes are enough, which show that the code runs."""
    until: float
    """Moment of ``time.monotonic`` after which nothing more should begin."""
    scratch: Path
    """Empty folder, removed afterwards."""

    @property
    def seconds_left(self) -> float:
        """Seconds that one training may take; a few more than the section has left."""
        return min(120.0, self.until + 10 - time.monotonic())

    def iter_case_findings(
        self, cases: Mapping[str, Any], slow: Callable[[str], bool], run: Callable[..., Any]
    ) -> Iterator[Finding]:
        """Yield the findings of ``run(name, case)`` for each case that there is time for.

        ``slow(name)``: whether ``--smoke`` leaves the case out.
        """
        for name, case in cases.items():
            if self.smoke and slow(name):
                yield Finding(what=name, text=SMALL, of_gpu=False)
            elif time.monotonic() > self.until:
                yield Finding(what=name, text=LATE, of_gpu=False)
            else:
                yield from contain_failures(name, run(name, case))


def contain_failures(what: str, found: Iterator[Finding]) -> Iterator[Finding]:
    """Yield the findings of one case; turn its failure (memory, a compiler) into a finding."""
    try:
        yield from found
    except TimeoutError as error:
        yield Finding(what=what, text=f"{LATE}: {error}", of_gpu=False)
    except (RuntimeError, TrainyardError) as error:
        first = str(error).strip().partition("\n")[0]
        why = f"failed: {type(error).__name__}: {first}"
        yield Finding(what=what, text=why, limit="it runs", met=False, of_gpu=False)


def format_number(value: float) -> str:
    """Return the number as text: three digits, or thousands with separators."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
