"""Prediction for a step: a plan shows it and counts with it, whatever its origin.

Code that knows what a step's job computes (an application with its own trainings) creates it, with
``trainyard.foresight`` or otherwise. For a step without a prediction, nothing is claimed.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from trainyard.foresight.interval import Spread


@dataclass(frozen=True, slots=True, kw_only=True)
class Foreseen:
    """Prediction for a step, should it run."""

    seconds: Spread
    """Seconds from its start to its end."""

    grounds: str
    """Source of the seconds, in words."""

    parts: Mapping[str, float] = field(default_factory=dict)
    """Part of the work → its seconds in a unit of work, such as an optimizer step."""

    remarks: tuple[str, ...] = ()
    """Further predictions or assumptions, a line each."""

    warnings: tuple[str, ...] = ()
    """Expected problems, and what to do about them, a line each."""


@dataclass(frozen=True, slots=True)
class NotForeseen:
    """A step for which there is no prediction, although others of its kind have one."""

    why: str


Foresight = Mapping[str, Foreseen | NotForeseen]
"""Step → its prediction."""
