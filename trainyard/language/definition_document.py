"""A definition in the checks' form: a list of steps with JSON paths, and parameters.

Apart: all checks begin with it, and it needs none of the language.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from trainyard.language.evaluation import Start, evaluate
from trainyard.language.steps import Step

VERSION = "2020-12-01"
"""Version of the language; every definition names it."""


@dataclass(frozen=True, kw_only=True)
class Document:
    """A definition with a valid outer form: steps have names and types, arguments are objects."""

    document: Mapping[str, Any]
    parameters: Mapping[str, Mapping[str, Any]]
    """Parameter name → its entry: Name, Type, DefaultValue, EnumValues."""

    steps: tuple[Step, ...]

    def value(self, expression: Any) -> Any:
        """Return the value of ``expression`` with parameters at their defaults.

        Lists and objects are resolved member by member. A part is Unknown if only a run can know
        it, and if it is wrong, which the check of references reports.
        """
        return evaluate(expression, self._start, lenient=True)

    @cached_property
    def _start(self) -> Start:
        return Start({name: p.get("DefaultValue") for name, p in self.parameters.items()})


# The statuses in which executions, steps and jobs end, and the triggers that wait for them.

END_STATUSES = ("Succeeded", "Failed", "Stopped", "CompletedWithFailures")
"""Statuses of an execution that has ended; the last one, when every failure was handled."""

JOB_ENDED = ("Completed", "Failed", "Stopped")
"""Statuses of a job that has ended."""

TRIGGERS = {
    "Completed": ("Succeeded",),
    "Failed": ("Failed",),
    "Stopped": ("Stopped",),
    "Any": ("Succeeded", "Failed", "Stopped"),
}
"""``DependsOn: {Step, Trigger}`` → the step statuses that fulfil it (SDK 3.27:
TriggerCondition)."""


EPOCHS = ("epochs", "numepochs", "n-epochs", "n_epochs", "num_epochs")
"""Static hyperparameters that Hyperband takes as MaxResource (HyperbandStrategyConfig)."""
