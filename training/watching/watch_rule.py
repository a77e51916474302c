"""Definition of a rule: settings with an action, and a pure function of a run's history."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

Line = Mapping[str, float]
"""A metric line, see ``training.watching.metric_line``; one of its metrics is ``step``."""

Action = Literal["off", "warn", "stop"]


class RuleSettings(BaseModel):
    """Settings of every rule."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    action: Action = "warn"
    """warn: a line in the log and a metric. stop: also stop all ranks after the same step; a
    checkpoint is kept, and the job fails with the reason. off: the rule is not run."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Facts about the training that are known beforehand."""

    max_steps: int = 0
    """Optimizer steps of the whole training; 0 if not known."""

    warmup_steps: int = 0
    start_step: int = 0
    """Number of steps done before this process began."""

    fine_tuning: bool = False
    """True if it started from a model's weights: the loss may be at its lowest from the start."""


@dataclass(slots=True)
class History:
    """The metric lines so far, in their order."""

    lines: list[Line] = field(default_factory=list)
    """Lines of training steps; they have a loss."""

    def list_last_values(self, key: str, count: int) -> list[float]:
        """Return the values of metric ``key`` in the last ``count`` lines, except where missing."""
        return [line[key] for line in self.lines[-count:] if key in line]

    def has_warm_lines(self, count: int, plan: Plan) -> bool:
        """Return whether there are ``count`` lines, all of them after the warm-up.

        Before that, the learning rate is not at its peak, and weights that begin at 0 have barely
        moved.
        """
        return len(self.lines) >= count and self.lines[-count]["step"] > plan.warmup_steps


@dataclass(frozen=True, slots=True)
class Finding:
    """Result of a rule that reports a problem."""

    value: float
    threshold: float
    says: str
    """Meaning of the finding, with its figures."""

    fix: str
    """Suggested fix."""


Check = Callable[[History, Any, Plan], Finding | None]


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule; its name is that of its module."""

    says: str
    """What is wrong if the rule reports; also the description of its field in a recipe's schema."""

    check: Check
    """Function that examines the history after its newest line; returns None if nothing is
    wrong.
    """

    settings: type[RuleSettings] = RuleSettings
