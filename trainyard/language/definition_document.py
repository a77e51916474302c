"""A pipeline definition as a list of steps with their JSON paths, and parameters; cache keys and
statuses. Everything that reads a definition begins with this.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from trainyard.language.evaluation import UnstartedScope, evaluate_value
from trainyard.language.expressions import ExpressionError, iter_known_references
from trainyard.language.step_types import get_step_type

# Iterate over the steps of a definition at any depth.

BRANCHES = {"IfSteps": True, "ElseSteps": False}
"""Mapping of an argument of a Condition step to the outcome under which the steps in it run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """An item of a list of steps; it may be invalid, such as an object without a Name."""

    document: Any
    path: str
    """JSON path, such as ``$.Steps[4].Arguments.IfSteps[0]``."""

    branch: tuple[str, bool] | None = None
    """(name of the Condition step that contains it, outcome under which it runs); None if it is in
    no branch."""

    loop: str | None = None
    """Name of the ForEach step whose body contains it; None if it is in no loop."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step(Entry):
    """A step of a definition, at any depth."""

    name: str
    type: str
    arguments: Mapping[str, Any]
    """Arguments as in the definition, with expressions unresolved."""

    document: Mapping[str, Any]
    """The whole step."""

    @property
    def own_arguments(self) -> dict[str, Any]:
        """``arguments`` without the nested steps, which are listed as steps themselves."""
        nested_keys = get_step_type(self.type).nests
        return {key: value for key, value in self.arguments.items() if key not in nested_keys}

    @property
    def reads(self) -> list[str]:
        """Names of the steps whose results this step refers to; a name may occur repeatedly."""
        own_document = {**self.document, "Arguments": self.own_arguments}
        kinds = ("Steps", "PropertyFiles")
        return [r.name for r in iter_known_references(own_document) if r.kind in kinds]

    @property
    def depends_on(self) -> list[str]:
        """Names of the steps in its DependsOn."""
        entries = self.document.get("DependsOn")
        names = [
            entry.get("Step") if isinstance(entry, dict) else entry
            for entry in (entries if isinstance(entries, list) else ())
        ]
        return [name for name in names if isinstance(name, str)]

    @property
    def waits_for(self) -> list[str]:
        """Names of the steps that must have ended before this one starts: those that it refers to,
        those in DependsOn, and the condition or loop that contains it. Unknown names are included.
        """
        holders = [self.branch[0] if self.branch else None, self.loop]
        return [*self.reads, *self.depends_on, *filter(None, holders)]


def iter_entries(
    documents: Any,
    path: str = "$.Steps",
    branch: tuple[str, bool] | None = None,
    loop: str | None = None,
) -> Iterator[Entry]:
    """Iterate over all items in a list of steps; nested items follow the step that contains them.

    Args:
        documents: the list, such as a definition's ``Steps``.
        path: JSON path of the list.
        branch: branch that contains the list.
        loop: name of the ForEach step that contains the list.
    """
    for index, document in enumerate(documents if isinstance(documents, list) else ()):
        entry = Entry(document=document, path=f"{path}[{index}]", branch=branch, loop=loop)
        yield entry
        arguments = document.get("Arguments") if isinstance(document, dict) else None
        if isinstance(arguments, dict):
            name = str(document.get("Name"))
            for key in get_step_type(document.get("Type")).nests:
                # Steps in a loop's body keep the branch that the loop is in; steps in a branch keep
                # the loop that the condition is in.
                inside = ((name, BRANCHES[key]), loop) if key in BRANCHES else (branch, name)
                yield from iter_entries(
                    arguments.get(key), f"{entry.path}.Arguments.{key}", *inside
                )


def iter_steps(documents: Any) -> Iterator[Step]:
    """Iterate over all steps in a definition's ``Steps``; nested ones follow the step that contains
    them.

    Items that are not valid steps (not an object, no Name, no Type, Arguments not an object) are
    left out.
    """
    for entry in iter_entries(documents):
        document = entry.document
        # This much of a step is taken for granted by everything that reads steps.
        is_step = (
            isinstance(document, dict)
            and isinstance(document.get("Name"), str)
            and isinstance(document.get("Type"), str)
            and isinstance(document.get("Arguments") or {}, dict)
        )
        if is_step:
            yield Step(
                name=document["Name"],
                type=document["Type"],
                arguments=document.get("Arguments") or {},
                document=document,
                path=entry.path,
                branch=entry.branch,
                loop=entry.loop,
            )


def find_step(documents: Any, name: str) -> Step | None:
    """Return the step ``name`` in a definition's ``Steps``; None if there is none.

    In an execution, an iteration of a step in a loop's body is called ``<name>-<index>``. For
    such a name, return the step in the body.
    """
    steps_by_name = {step.name: step for step in iter_steps(documents)}
    body, _, index = name.rpartition("-")
    # A step with exactly this name comes first, because names may also end in a hyphen and digits.
    of_loop = steps_by_name.get(body) if index.isdigit() else None
    return steps_by_name.get(name) or (of_loop if of_loop and of_loop.loop else None)


def locate_property_file(document: Mapping[str, Any], name: str) -> tuple[str, str]:
    """Return the location of a property file: (path of the step's property with the folder's URI,
    path of the file in the folder).

    ``document`` is the step in a valid definition, ``name`` the name of the property file.

    Raises:
        ExpressionError: the step declares no such file.
    """
    files = {file["PropertyFileName"]: file for file in document.get("PropertyFiles") or ()}
    if name not in files:
        raise ExpressionError(
            f"step {document['Name']!r} declares no property file {name!r}; "
            f"it declares {sorted(files)}"
        )
    output = files[name]["OutputName"]
    return f"ProcessingOutputConfig.Outputs['{output}'].S3Output.S3Uri", files[name]["FilePath"]


# Determine the cache key of a step, and how long the cache keeps its result.
#
# The attributes and rules are those of the developer guide, "Caching pipeline steps" and "Default
# cache key attributes by pipeline step type".

_DURATION = re.compile(
    r"P?(?:(\d+)y)?(?:(\d+)m)?(?:(\d+)w)?(?:(\d+)d)?(?:T(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?)?",
    re.IGNORECASE,
)
_SECONDS = (365 * 86400, 30 * 86400, 7 * 86400, 86400, 3600, 60, 1)


def select_cache_key_arguments(
    document: dict[str, Any], arguments: dict[str, Any]
) -> dict[str, Any] | None:
    """Return the arguments that SageMaker's step cache compares; None if the step is not cached.

    ``document`` is the step in the definition; ``arguments`` are its Arguments, resolved or not.
    """
    config = document.get("CacheConfig") or {}
    names = get_step_type(document.get("Type")).cache_key
    if not config.get("Enabled") or not names:
        return None
    return {name: _get_member(arguments, name) for name in names}


def _get_member(arguments: Any, path: str) -> Any:
    """Return the member at a path such as ``A.B``; None if a part of the path does not exist."""
    for name in path.split("."):
        arguments = arguments.get(name) if isinstance(arguments, Mapping) else None
    return arguments


def parse_duration(text: Any) -> float:
    """Parse an ISO 8601 duration, also in AWS's spelling without P (``30d``, ``T16m``).

    Return seconds; a year has 365 days, and a month 30.

    Raises:
        ValueError: it is not a duration.
    """
    match = _DURATION.fullmatch(text) if isinstance(text, str) else None
    if not match or not any(match.groups()):
        message = f"ExpireAfter {text!r}: expected an ISO 8601 duration such as P30D or PT1H"
        raise ValueError(message)
    return float(sum(int(n) * s for n, s in zip(match.groups(), _SECONDS, strict=True) if n))


VERSION = "2020-12-01"
"""Version of the language, which every definition contains."""


@dataclass(frozen=True, kw_only=True)
class Document:
    """A definition whose steps have names and types, and whose Arguments are objects."""

    document: Mapping[str, Any]
    parameters: Mapping[str, Mapping[str, Any]]
    """Mapping of a parameter's name to its entry: Name, Type, DefaultValue, EnumValues."""

    steps: tuple[Step, ...]

    def resolve_value(self, expression: Any) -> Any:
        """Return ``expression`` with all expressions in it evaluated, with parameters' defaults.

        Lists and objects are resolved member by member. A part is ``Unknown`` if it is known only
        at run time, or if it is invalid, which ``reference_checks`` reports.
        """
        return evaluate_value(expression, self._unstarted_scope, lenient=True)

    @cached_property
    def _unstarted_scope(self) -> UnstartedScope:
        return UnstartedScope({name: p.get("DefaultValue") for name, p in self.parameters.items()})


# The statuses in which executions, steps and jobs end, and the triggers that wait for them.

END_STATUSES = ("Succeeded", "Failed", "Stopped", "CompletedWithFailures")
"""Statuses of an execution that has ended. In the last one, steps failed, and all failures were
handled."""

JOB_ENDED = ("Completed", "Failed", "Stopped")
"""Statuses of a job that has ended."""

TRIGGERS = {
    "Completed": ("Succeeded",),
    "Failed": ("Failed",),
    "Stopped": ("Stopped",),
    "Any": ("Succeeded", "Failed", "Stopped"),
}
"""Mapping of the Trigger in ``DependsOn: {Step, Trigger}`` to the statuses of the step that fulfil
it (SDK 3.27: TriggerCondition)."""


EPOCHS = ("epochs", "numepochs", "n-epochs", "n_epochs", "num_epochs")
"""Static hyperparameters that Hyperband uses as MaxResource if it is not set
(HyperbandStrategyConfig)."""
