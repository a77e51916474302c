"""A definition as the checks read it: one list of steps with their JSON paths, and parameters."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from trainyard.language.evaluation import Start, evaluate
from trainyard.language.step_types import step_type
from trainyard.language.steps import BRANCHES


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One step, wherever it stands: the branches of a condition are in the list too."""

    name: str
    type: str
    path: str
    """JSON path of the step: ``$.Steps[4].Arguments.IfSteps[0]``."""

    arguments: Mapping[str, Any]
    """As in the definition, expressions unresolved."""

    document: Mapping[str, Any]
    """The whole step."""

    branch: tuple[str, bool] | None = None
    """The condition step that it is nested in, and under which outcome it runs."""

    loop: str | None = None
    """The ForEach step whose body it is in."""

    @property
    def own_arguments(self) -> dict[str, Any]:
        """``arguments`` without the steps nested in them, which are steps of their own."""
        nested = step_type(self.type).nests
        return {key: value for key, value in self.arguments.items() if key not in nested}


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


def steps_of(documents: Any, path: str = "$.Steps", branch=None, loop=None) -> Iterator[Step]:
    """Every step of a definition's ``Steps``, nested ones after the step that holds them.

    What is no step (no object, no Name, no Type, Arguments that are no object) is left out.
    """
    for index, document in enumerate(documents if isinstance(documents, list) else ()):
        here = f"{path}[{index}]"
        if not is_step(document):
            continue
        step = Step(
            name=document["Name"],
            type=document["Type"],
            path=here,
            arguments=document.get("Arguments") or {},
            document=document,
            branch=branch,
            loop=loop,
        )
        yield step
        yield from _nested(step)


def _nested(step: Step) -> Iterator[Step]:
    inside = f"{step.path}.Arguments"
    if step.type == "Condition":
        for key, outcome in BRANCHES.items():
            branch = (step.name, outcome)
            yield from steps_of(step.arguments.get(key), f"{inside}.{key}", branch, step.loop)
    elif step.type == "ForEach":
        body = step.arguments.get("ForEachBody")
        yield from steps_of(body, f"{inside}.ForEachBody", step.branch, step.name)


def is_step(document: Any) -> bool:
    """Whether it has what every check takes for granted."""
    return (
        isinstance(document, dict)
        and isinstance(document.get("Name"), str)
        and isinstance(document.get("Type"), str)
        and isinstance(document.get("Arguments") or {}, dict)
    )
