"""What validation found: one record a finding, the same on the terminal and as JSON."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Something that will go wrong, found before anything is uploaded."""

    rule: str
    """Name of the rule, in kebab-case: ``spot-without-checkpoints``."""

    severity: Literal["error", "warning"]
    """error: the service refuses it, or the run cannot end well. warning: it may cost you."""

    step: str | None
    """Name of the step; None when it is about the pipeline or the recipe as a whole."""

    path: str
    """Where: ``$.Steps[1].Arguments.StoppingCondition`` in the definition, ``train.spot`` in the
    recipe."""

    problem: str
    """What is wrong, with the value and what was expected."""

    why: str
    """What would happen."""

    fix: str
    """What to change."""

    source: str
    """Where the rule is from: AWS's page, botocore's shape, an issue's number."""
