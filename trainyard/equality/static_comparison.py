"""Compare two definitions as written: return the first difference, and what does not matter.

Differences that change no work are listed: names, descriptions, tags, declared constants, and the
location of code.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from types import MappingProxyType
from typing import Any

from trainyard.common.errors import DefinitionError
from trainyard.equality.normal_form import (
    CodeDigest,
    NormalForm,
    match_renames,
    normalize_definition,
    rename_step_references,
)
from trainyard.equality.observed_run import (
    NotRunError,
    Observation,
    Setting,
    UploadedFiles,
    observe_run,
)
from trainyard.language.expressions import DEFAULT_TYPE, GET, index_parameters, resolve_parameters
from trainyard.plan.definition_diff import (
    Fields,
    format_path,
    format_value,
    iter_field_changes,
    list_fields,
    list_top_fields,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """A difference between two definitions or runs; ``step`` is empty if it concerns no step."""

    step: str
    what: str
    first: str | None
    second: str | None
    note: str = ""


@dataclass(frozen=True, slots=True)
class StaticComparison:
    """Result of the comparison of two definitions."""

    cause: Difference | None
    but_for: tuple[str, ...]
    """Differences that do not change the work."""
    names: Mapping[str, str] = field(default_factory=dict)
    """Mapping of a step of the second definition to its name in the first, if they differ."""
    parameters: Mapping[str, str] = field(default_factory=dict)
    """Mapping of a parameter of the second definition to its name in the first, if they differ."""


def compare_definitions(
    first: Mapping[str, Any],
    second: Mapping[str, Any],
    parameters: Mapping[str, str],
    digest: CodeDigest,
) -> StaticComparison:
    """Return the first difference between two valid definitions, and those that do not matter.

    Args:
        first: the first definition.
        second: the second definition.
        parameters: mapping of a parameter to its value in both executions.
        digest: function that returns the digest of the code at a URI; if it returns None, the URI
            itself is compared.

    Raises:
        DefinitionError: a given parameter is declared in neither definition, or its value is not
            of its type.
    """
    _check_parameters_declared(parameters, first, second)
    first_parameters, second_parameters = index_parameters(first), index_parameters(second)
    parameter_names = _match_parameters(first_parameters, second_parameters)
    shared_names = {
        *(first_parameters.keys() & second_parameters.keys()),
        *parameter_names.values(),
    }
    old, old_constants = _build_normal_form(first, shared_names, parameters, digest)
    new, new_constants = _build_normal_form(
        second, shared_names, parameters, digest, parameter_names
    )
    names = match_renames(old, new)
    new = replace(
        new,
        steps={
            names.get(name, name): rename_step_references(form, names)
            for name, form in new.steps.items()
        },
        cosmetics={names.get(name, name): cosmetic for name, cosmetic in new.cosmetics.items()},
    )
    but_for = [f"the name of step {names[name]}: {name} in the second" for name in names]
    but_for += [
        f"the name of parameter {o}: {name} in the second" for name, o in parameter_names.items()
    ]
    for which, constants in (("first", old_constants), ("second", new_constants)):
        but_for += [
            f"parameters declared: {name} ({format_value(name, value)}) only in the {which}"
            for name, value in constants.items()
        ]
    but_for += _iter_cosmetic_titles(old, new)
    return StaticComparison(
        next(_iter_definition_differences(old, new), None), tuple(but_for), names, parameter_names
    )


def _check_parameters_declared(
    parameters: Mapping[str, str], *documents: Mapping[str, Any]
) -> None:
    """Raise DefinitionError if a parameter is declared in none of the definitions."""
    names = {name for document in documents for name in index_parameters(document)}
    for name in parameters:
        if name not in names:
            raise DefinitionError(
                f"--parameter {name}: neither definition declares it; declared: {sorted(names)}"
            )


def _match_parameters(
    first_parameters: Mapping[str, Mapping[str, Any]],
    second_parameters: Mapping[str, Mapping[str, Any]],
) -> dict[str, str]:
    """Return a mapping of renamed parameters: name in the second definition to that in the first.

    It contains a parameter that only the second declares if exactly one parameter that only the
    first declares has the same declaration, and no other of the second does.
    """
    old = {
        name: _dump_json(_normalize_declaration(first_parameters[name]))
        for name in first_parameters.keys() - second_parameters.keys()
    }
    new = {
        name: _dump_json(_normalize_declaration(second_parameters[name]))
        for name in second_parameters.keys() - first_parameters.keys()
    }
    return {
        name: next(other for other, form in old.items() if form == declaration)
        for name, declaration in new.items()
        if list(old.values()).count(declaration) == list(new.values()).count(declaration) == 1
    }


def _build_normal_form(
    document: Mapping[str, Any],
    shared_names: set[str],
    parameters: Mapping[str, str],
    digest: CodeDigest,
    parameter_names: Mapping[str, str] = MappingProxyType({}),
) -> tuple[NormalForm, dict[str, Any]]:
    """Return the normal form, and a mapping of each parameter that became a constant to its value.

    ``parameter_names`` maps a parameter to its name in the normal form, if that differs.
    """
    declarations = index_parameters(document)
    try:
        parameter_values = resolve_parameters(
            document, {name: text for name, text in parameters.items() if name in declarations}
        )
    except ValueError as error:
        raise DefinitionError(f"--parameter: {error}") from None
    remaining = {parameter_names.get(name, name): entry for name, entry in declarations.items()}
    constants = {}
    for name, entry in declarations.items():
        value = parameter_values[name]
        if name in parameter_names or name in shared_names or value is None:
            continue
        # AWS does not document how a Float of 1 is written in a text, so it stays a parameter.
        if not (entry.get("Type") == "Float" and float(value).is_integer()):
            constants[name] = value
            del remaining[name]
    instead = {name: {GET: f"Parameters.{other}"} for name, other in parameter_names.items()}
    forms = {name: _normalize_declaration(entry) for name, entry in remaining.items()}
    return normalize_definition(document, forms, constants | instead, digest), constants


def _normalize_declaration(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return a parameter's declaration without its name, with its type and sorted EnumValues."""
    form = {"Type": DEFAULT_TYPE, **{k: v for k, v in entry.items() if k != "Name"}}
    if isinstance(form.get("EnumValues"), list):
        form["EnumValues"] = sorted(form["EnumValues"], key=json.dumps)
    return form


def _iter_definition_differences(old: NormalForm, new: NormalForm) -> Iterator[Difference]:
    """Iterate over the differences; those of a step precede those of the steps that wait for it."""
    for name in sorted(old.parameters.keys() | new.parameters.keys()):
        was, now = old.parameters.get(name), new.parameters.get(name)
        if _dump_json(was) != _dump_json(now):
            yield from _iter_field_differences(
                "", f"parameter {name}", list_top_fields(was or {}), list_top_fields(now or {})
            )
    if _dump_json(old.top) != _dump_json(new.top):
        yield from _iter_field_differences(
            "", "definition", list_top_fields(old.top), list_top_fields(new.top)
        )
    for name in _sort_steps(old, new):
        was, now = old.steps.get(name), new.steps.get(name)
        if was is None or now is None:
            kinds = [entry["Type"] if entry else None for entry in (was, now)]
            yield Difference(step=name, what="step", first=kinds[0], second=kinds[1])
        elif _dump_json(was) != _dump_json(now):
            yield from _iter_field_differences(name, "", list_fields(was), list_fields(now))


def _iter_field_differences(
    step: str, subject: str, old: Fields, new: Fields
) -> Iterator[Difference]:
    """Iterate over the fields that differ; if none does, yield one difference about the whole."""
    changes = list(iter_field_changes(old, new))
    for change in changes:
        path = {"after": "steps that it waits for"}.get(change.path, format_path(change.path))
        title = f"{subject} {path}".strip()
        yield Difference(step=step, what=title, first=change.old, second=change.new)
    if not changes:
        title = subject or "the order of its items, an empty member, or spaces in a JSON text"
        yield Difference(step=step, what=title, first="one way", second="another")


def _sort_steps(old: NormalForm, new: NormalForm) -> list[str]:
    """Return the names of all steps of both definitions; a step follows those it waits for."""

    def compute_depth(name: str) -> int:
        """Return the number of steps that the step waits for, in the definition with more."""
        return max(len(side.steps[name]["after"]) for side in (old, new) if name in side.steps)

    return sorted({**old.steps, **new.steps}, key=compute_depth)


def _iter_cosmetic_titles(old: NormalForm, new: NormalForm) -> Iterator[str]:
    """Iterate over descriptions of the differences that do not change the work."""
    for step in {**old.cosmetics, **new.cosmetics}:
        was, now = old.cosmetics.get(step, {}), new.cosmetics.get(step, {})
        for name in {**was, **now}:
            if _dump_json(was.get(name)) != _dump_json(now.get(name)):
                yield f"{name} of {step}" if step else name


def _dump_json(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


# The verdict on two definitions: equal, equal except for what does not matter, or different.
#
# Definitions are different if their normal forms are. If the normal forms are equal, an execution
# of each is compared, too: a job may still get other files, or end with another status.

AFTERWARDS = ("status", "failure reason", "attempts", "result", "output", "object")
"""Prefixes of the names of facts that the job itself determines."""
_REASON = "failure reason"
CHANCE = (
    "the job got the same input both times, so it may not be deterministic; --twice executes "
    "the first definition twice, and ignores what differs between those two executions"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class EqualityResult:
    """The result of comparing two definitions: verdict, cause and evidence."""

    cause: Difference | None = None
    but_for: tuple[str, ...] = ()
    evidence: str
    """What was executed and compared, or why nothing was."""

    @property
    def verdict(self) -> str:
        """One of "equal", "equal but for" and "different"."""
        if self.cause:
            return "different"
        return "equal but for" if self.but_for else "equal"

    def as_json(self) -> dict[str, Any]:
        """Return the result as plain JSON types."""
        return {"verdict": self.verdict, **asdict(self)}


def decide_equality(
    first: Mapping[str, Any],
    second: Mapping[str, Any],
    setting: Setting,
    *,
    static: bool = False,
    twice: bool = False,
) -> EqualityResult:
    """Compare two valid definitions, by their normal forms and then by executing both.

    Args:
        first: the first definition.
        second: the second definition.
        setting: files and parameters of the executions.
        static: execute nothing.
        twice: execute the first definition twice, to find jobs that are not deterministic.

    Raises:
        DefinitionError: a parameter is declared nowhere, or its value is not of its type.
        EmulatorError: the emulator cannot start on this machine.
    """
    comparison = compare_definitions(
        first, second, setting.parameters, UploadedFiles(setting.files).hash_uri
    )
    if comparison.cause:
        reason = "not executed: the definitions themselves differ"
        return EqualityResult(cause=comparison.cause, evidence=reason)
    if static:
        reason = "not executed (--static): their normal forms are identical"
        return EqualityResult(but_for=comparison.but_for, evidence=reason)
    # A parameter may have another name in each definition: give its value under both names.
    parameters = dict(setting.parameters)
    for name, other in comparison.parameters.items():
        parameters |= {name: parameters[other]} if other in parameters else {}
        parameters |= {other: parameters[name]} if name in parameters else {}
    setting = replace(setting, parameters=parameters)
    try:
        first_run, second_run = (
            observe_run(first, setting),
            observe_run(second, setting, comparison.names),
        )
        repeat_run = observe_run(first, setting) if twice else first_run
    except NotRunError as reason:
        evidence = f"not executed: {reason}; their normal forms are identical"
        return EqualityResult(but_for=comparison.but_for, evidence=evidence)
    chance = {(cause.step, cause.what) for cause in iter_run_differences(first_run, repeat_run)}
    causes = (
        cause
        for cause in iter_run_differences(first_run, second_run)
        if (cause.step, cause.what) not in chance
    )
    step_facts = sorted(f"{step} {fact}".strip() for step, fact in chance)
    random = [
        f"also differs between two runs of the first: {step_fact}" for step_fact in step_facts
    ]
    return EqualityResult(
        cause=next(causes, None),
        but_for=(*comparison.but_for, *random),
        evidence=_format_evidence(first_run, second_run),
    )


def iter_run_differences(first: Observation, second: Observation) -> Iterator[Difference]:
    """Iterate over the facts that differ between two runs, in the order in which steps ran."""
    for step in {**first.facts, **second.facts}:
        was, now = first.facts.get(step), second.facts.get(step)
        if was is None or now is None:
            states = ["ran" if facts is not None else "did not run" for facts in (was, now)]
            yield Difference(step=step, what="step", first=states[0], second=states[1])
            continue
        for fact in {**was, **now}:
            if was.get(fact) != now.get(fact):
                note = CHANCE if fact.startswith(AFTERWARDS) else ""
                values = was.get(fact), now.get(fact)
                yield Difference(step=step, what=fact, first=values[0], second=values[1], note=note)


def _format_evidence(first: Observation, second: Observation) -> str:
    """Return a sentence that says what was executed, and how much was compared."""
    facts = [fact for step in first.facts.values() for fact in step]
    kinds = {"request": "values of requests", "file": "files that jobs saw", "output": "outputs"}
    counts = [f"{sum(f.startswith(k) for f in facts)} {title}" for k, title in kinds.items()]
    ends = " and ".join(dict.fromkeys([first.status, second.status]))
    failed_step = next(
        (name for name, facts in first.facts.items() if facts.get(_REASON, '""') != '""'), ""
    )
    reason = f"; {failed_step} failed: {first.facts[failed_step][_REASON]}" if failed_step else ""
    return f"executed here, {ends}: {len(first.facts) - 1} steps, {', '.join(counts)}{reason}"
