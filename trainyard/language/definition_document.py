"""A definition as the checks read it: one list of steps with their JSON paths, and parameters."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from trainyard.language.evaluation import Start, evaluate
from trainyard.language.steps import Step

VERSION = "2020-12-01"
"""Of the language; every definition names it."""


@dataclass(frozen=True, kw_only=True)
class Document:
    """A definition whose outer form is right: steps have names and types, arguments are objects."""

    document: Mapping[str, Any]
    parameters: Mapping[str, Mapping[str, Any]]
    """Parameter name → its entry: Name, Type, DefaultValue, EnumValues."""

    steps: tuple[Step, ...]

    def value(self, expression: Any) -> Any:
        """``expression`` with parameters at their defaults; Unknown where only a run can tell, and
        where it is wrong, which the check of references says.

        Lists and objects are resolved member by member.
        """
        return evaluate(expression, self._start, lenient=True)

    @cached_property
    def _start(self) -> Start:
        return Start({name: p.get("DefaultValue") for name, p in self.parameters.items()})
