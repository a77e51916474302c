"""What is foreseen of a step: a plan shows it and counts with it, and does not ask how it was made.

Who knows what a step's job computes (an application of its own trainings) makes it, by
``trainyard.foresight`` or otherwise. Of a step that nobody speaks of, nothing is claimed.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from trainyard.foresight.interval import Spread


@dataclass(frozen=True, slots=True, kw_only=True)
class Foreseen:
    """One step, should it run."""

    seconds: Spread
    """From its start to its end."""

    grounds: str
    """Of what the seconds are made, in words."""

    parts: Mapping[str, float] = field(default_factory=dict)
    """Part of the work → seconds of it in a unit of work, such as an optimizer step."""

    remarks: tuple[str, ...] = ()
    """What else is foreseen, or was assumed for it, a line each."""

    warnings: tuple[str, ...] = ()
    """What will go wrong, and what to do about it, a line each."""


@dataclass(frozen=True, slots=True)
class NotForeseen:
    """A step that could have been foreseen, were it another one."""

    why: str


Foresight = Mapping[str, Foreseen | NotForeseen]
"""Step → what is foreseen of it."""
