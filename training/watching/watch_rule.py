"""What a rule is: settings with an action, and a pure function over a training's history."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

Line = Mapping[str, float]
"""A metric line, see ``training.watching.metric_line``; one of the metrics is ``step``."""

Action = Literal["off", "warn", "stop"]


class RuleSettings(BaseModel):
    """What every rule can be told."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    action: Action = "warn"
    """warn: a line in the log and a metric. stop: that, and all ranks stop after the same step; a
    checkpoint is kept, and the job fails with the reason. off: nothing is looked at."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What is known of the training beforehand."""

    max_steps: int = 0
    """Optimizer steps of the whole training; 0 where nobody knows."""

    warmup_steps: int = 0
    begun: int = 0
    """Steps that were done when this process began."""

    optimizer: str = "adamw"
    grad_clip: float = inf
    """The gradient's norm after clipping, at most."""

    fine_tuning: bool = False
    """Whether it began with the weights of a model: the loss may be at its floor from then on."""


@dataclass(slots=True)
class History:
    """The lines so far, in their order."""

    lines: list[Line] = field(default_factory=list)
    """Of training steps: they have a loss."""

    validations: list[Line] = field(default_factory=list)
    """Of looks at the validation split."""

    def last(self, key: str, count: int) -> list[float]:
        """The values of a metric in the last ``count`` lines, of those that have it."""
        return [line[key] for line in self.lines[-count:] if key in line]

    def warm(self, count: int, plan: Plan) -> bool:
        """Whether there are ``count`` lines, and the warm-up was over before them: until then the
        learning rate is not what it will be, and what begins at 0 has not got going.
        """
        return len(self.lines) >= count and self.lines[-count]["step"] > plan.warmup_steps

    def below(self, key: str, count: int, least: float) -> float | None:
        """The largest of the last ``count`` values, where all are there and less than ``least``."""
        found = self.last(key, count)
        return max(found) if len(found) == count and max(found) < least else None


@dataclass(frozen=True, slots=True)
class Finding:
    """What a rule has found."""

    value: float
    threshold: float
    says: str
    """What that means, with its figures."""

    fix: str
    """What to do."""


Check = Callable[[History, Any, Plan], Finding | None]


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule; it is called as its module is."""

    settings: type[RuleSettings]
    check: Check
    """Looks at the history as it is after its newest line; None where all is well."""

    of_validation: bool = False
    """Whether it looks when there is a validation line, and not when there is one of training."""


def mean(values: Sequence[float]) -> float:
    """Of at least one value."""
    return sum(values) / len(values)
