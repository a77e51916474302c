"""Findings: what a section saw on the device, with its spread, limit and verdict."""

import statistics
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Self

import torch

from trainyard.common.errors import TrainyardError

NOT_SHOWN = "not shown: no GPU"
LATE, SMALL = "not measured: out of time", "left out of --smoke"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that a section has measured or seen."""

    what: str
    """Name within its section; a later finding of that name takes an earlier one's place."""
    rounds: tuple[float, ...] = ()
    """Measurements, one for each round."""
    unit: str = ""
    text: str = ""
    """Text shown instead of a number: a kernel's name, or the reason why nothing was measured."""
    limit: str = ""
    """What the median is held to, and why, with the source; empty if it is only told."""
    met: bool | None = None
    """Whether the limit holds; None if it is only told or could not be measured."""
    of_gpu: bool = True
    """Whether a processor's figure says nothing about the claim."""
    quoted: bool = False
    """Whether the rows for the documents quote it."""

    @classmethod
    def held(cls, what: str, value: float, most: float, why: str, **more: Any) -> Self:
        """Create a finding whose absolute value may be at most ``most``, for the reason ``why``."""
        limit, met = f"≤ {number(most)}: {why}", abs(value) <= most
        return cls(what=what, rounds=(value,), limit=limit, met=met, **more)

    @classmethod
    def without(cls, what: str, why: str) -> Self:
        """Create a finding that was not sought, and say why."""
        return cls(what=what, text=why, of_gpu=False)

    def on(self, device: torch.device) -> "Finding":
        """Return the finding as it may be shown: without a figure that only a GPU can give."""
        if device.type == "cuda" or not self.of_gpu:
            return self
        return replace(self, rounds=(), text=NOT_SHOWN, met=None)

    def value(self) -> str:
        """Return the median with its unit, and the spread of several rounds."""
        if not self.rounds:
            return self.text
        told = number(statistics.median(self.rounds))
        if len(self.rounds) > 1:
            told += f" ({number(min(self.rounds))}–{number(max(self.rounds))})"
        return f"{told} {self.unit}".rstrip()

    def verdict(self) -> str:
        """Return whether the limit holds, in a word; empty without a limit or a figure."""
        return {True: "met", False: "missed", None: ""}[self.met]

    def data(self) -> dict[str, Any]:
        """Return it as JSON types, with the median and the spread."""
        found: dict[str, Any] = {"value": None, "spread": None, "verdict": self.verdict()}
        if self.rounds:
            found["value"] = statistics.median(self.rounds)
            found["spread"] = [min(self.rounds), max(self.rounds)]
        return asdict(self) | found

    @classmethod
    def of(cls, data: dict[str, Any]) -> Self:
        """Read it from what ``data`` has returned."""
        fields = {name: data[name] for name in cls.__dataclass_fields__}
        return cls(**fields | {"rounds": tuple(data["rounds"])})


@dataclass(slots=True)
class Outcome:
    """What a section's process has left."""

    findings: list[Finding] = field(default_factory=list)
    device: dict[str, Any] = field(default_factory=dict)
    failed: str = ""
    """Why the process did not end well; empty if it did."""
    seconds: float = 0.0

    def missed(self) -> list[str]:
        """Return the names of the findings whose limit does not hold."""
        return [one.what for one in self.findings if one.met is False]

    def data(self) -> dict[str, Any]:
        """Return it as JSON types."""
        found = [one.data() for one in self.findings]
        return {"failed": self.failed, "seconds": self.seconds, "findings": found}


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


def contained(what: str, found: Iterator[Finding]) -> Iterator[Finding]:
    """Yield what is found of one case; its failure (memory, a compiler) does not end the others."""
    try:
        yield from found
    except TimeoutError as error:
        yield Finding.without(what, f"{LATE}: {error}")
    except (RuntimeError, TrainyardError) as error:
        first = str(error).strip().partition("\n")[0]
        why = f"failed: {type(error).__name__}: {first}"
        yield Finding(what=what, text=why, limit="it runs", met=False, of_gpu=False)


def number(value: float) -> str:
    """Return a number for people: three digits, and thousands apart."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
