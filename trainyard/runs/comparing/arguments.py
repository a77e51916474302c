"""What a step of one run was given: its definition with the run's values, as flat fields.

What another step made is told by the reference, ``{Shard.train}``: it is the same wire in every
run, wherever its end lay. A reference that is no URI has the value that the job was given.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from trainyard.language.evaluation import Start, evaluate
from trainyard.language.parameters import as_given, declared, values
from trainyard.language.steps import Step
from trainyard.plan.diff import label
from trainyard.plan.fields import Field, Fields, fields, flat, reference, shown

WIRE, OWN = "\ue000", "\ue001"
"""Begin what stands for a value that another step made, and for one that is the run's own, such as
its id. No text of a definition has these characters: they are of Unicode's private use."""


def parameters(document: Mapping[str, Any], given: Mapping[str, str]) -> dict[str, Any]:
    """Parameter → the value that it had in the run; ``given`` are those that the service lists."""
    try:
        return values(document, given)
    except ValueError:  # of a type that the service reads otherwise: then as it is listed
        return {name: entry.get("DefaultValue") for name, entry in declared(document).items()} | {
            name: value for name, value in given.items() if name in declared(document)
        }


@dataclass(frozen=True, slots=True)
class Given:
    """What a step was given."""

    fields: Fields
    """Path, as ``label`` writes it → value; references to other steps as such."""

    uris: Mapping[str, str]
    """Path → where that was in S3, references resolved."""


def given(step: Step, known: Mapping[str, Any], job: Mapping[str, Any]) -> Given:
    """What ``step`` was given in a run with the parameters ``known``.

    ``job``: Describe's answer for what it started; empty where there is none.
    """
    scope = Start(known, otherwise=_marked)
    found: Fields = {}
    uris: dict[str, str] = {}
    told: dict[str, Any] | None = None
    for path, field in fields(step.document).items():
        value = evaluate(field.raw, scope, lenient=True)
        name = label(path)
        if WIRE in (marked := _text(value)) or OWN in marked:
            told = _told(job) if told is None else told
            actual = told.get(name)
            if isinstance(actual, str) and _is_uri(actual):
                uris[name] = actual.strip('"')
            elif actual is not None and WIRE in marked:
                value = actual
        elif _is_uri(value):
            uris[name] = value.strip('"')
        value = _unmarked(value)
        found[name] = Field(value, shown(path, value))
    return Given(found, uris)


def _marked(name: str) -> str:
    return f"{OWN if name.startswith('Execution.') else WIRE}{reference(name)}"


def _told(job: Mapping[str, Any]) -> dict[str, Any]:
    plain = json.loads(json.dumps(job, default=str))  # botocore's answers have times in them
    return {label(path): field.raw for path, field in flat(plain).items()}


def _is_uri(value: Any) -> bool:
    return isinstance(value, str) and value.strip('"').startswith("s3://")


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, default=str, ensure_ascii=False)


def _unmarked(value: Any) -> Any:
    if isinstance(value, str):
        return value.replace(WIRE, "").replace(OWN, "")
    if isinstance(value, list):
        return [_unmarked(item) for item in value]
    if isinstance(value, dict):
        return {name: _unmarked(item) for name, item in value.items()}
    return value


def parameter_fields(known: Mapping[str, Any]) -> Fields:
    """The run's parameters, as fields."""
    return {
        name: Field(value, shown(name, as_given(value) if isinstance(value, bool) else value))
        for name, value in known.items()
    }
