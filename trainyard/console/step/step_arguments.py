"""The exact arguments of a step: every expression replaced by its value in the run."""

import copy
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from trainyard.common.errors import ServiceError
from trainyard.console.account_cache import Account, Snapshot
from trainyard.console.step.shown_step import Defined, describe, made_by
from trainyard.language import steps as language
from trainyard.language.evaluation import Start, Unknown, arn_variables, evaluate, read_json
from trainyard.language.expressions import ExpressionError, lookup
from trainyard.runs.evaluation_numbers import LARGEST, got
from trainyard.runs.execution import Step
from trainyard.secrets import find, hidden

HIDDEN = "(hidden)"

TABLES = ("HyperParameters", "StaticHyperParameters", "Environment")
"""Members, at any depth, that are tables of names and values."""


class RunValues(Start):
    """The values of an execution, as far as the service reports them."""

    def __init__(self, here: Account, snapshot: Snapshot, defined: Defined, arn: str) -> None:
        super().__init__(defined.parameters)
        self._here, self._defined, self._arn = here, defined, arn
        self._steps = {step.name: step for step in snapshot.steps}
        self._began = snapshot.described.get("CreationTime")

    def variable(self, name: str) -> Any:
        known = arn_variables(self._arn)
        if name == "StartDateTime" and isinstance(self._began, datetime):
            return self._began.isoformat()
        return known[name] if name in known else super().variable(name)

    def property(self, step: str, path: str) -> Any:
        if (found := self._steps.get(step)) is None:
            return Unknown(f"{step} has not begun")
        try:
            return lookup(self._described(found), path, f"Steps.{step}.{path}")
        except ExpressionError:
            if found.status in ("Succeeded", "Executing"):
                raise
            return Unknown(f"{step} {found.status.lower()}, and has no {path}")

    def _described(self, step: Step) -> Mapping[str, Any]:
        """Return the document in which the step's properties are looked up."""
        of_all = [body for body in step.metadata.values() if isinstance(body, dict)]
        found = {key: value for body in of_all for key, value in body.items()}
        if outputs := found.get("OutputParameters"):
            found["OutputParameters"] = {one.get("Name"): one.get("Value") for one in outputs}
        made = made_by(step)
        try:
            return found | (describe(self._here, made) if made else {})
        except ServiceError as error:
            raise ExpressionError(str(error)) from None

    def property_file(self, step: str, name: str, path: str) -> Any:
        declared = self._defined.step(step)
        if declared is None:
            raise ExpressionError(f"step {step!r} does not exist")
        folder, file = language.property_file(declared.document, name)
        uri = self.property(step, folder)
        return uri if isinstance(uri, Unknown) else self.s3_file(f"{uri}/{file}", path)

    def s3_file(self, uri: str, path: str) -> Any:
        try:
            found = self._here.lately(("step: file", uri), lambda: got(self._here.s3, uri))
        except (ClientError, BotoCoreError) as error:
            raise ExpressionError(f"{uri}: {error}") from None
        if len(found[1]) > LARGEST:
            raise ExpressionError(f"{uri} is too large to be read here")
        return read_json(found[1], path, uri)


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A table of hyperparameters, or of environment variables."""

    name: str
    """Path of the table: ``HyperParameters``, ``PrimaryContainer.Environment``."""

    rows: tuple[tuple[str, str], ...]


def resolved(step: language.Step, values: RunValues) -> dict[str, Any]:
    """Return the step's whole entry in the definition, expressions replaced, without nested steps.

    Values not known yet are shown as ``(not known: why)``; secrets as ``(hidden)``.
    """
    entry = {**step.document, "Arguments": step.own_arguments}
    return dict(public(evaluate(entry, values, lenient=True)))


def public(value: Any) -> Any:
    """Return a copy that may be shown: secrets hidden, unknown values as text that says so."""
    shown = _without_unknowns(copy.deepcopy(value))
    for path in list(find(shown)):
        holder = shown
        for key in path[:-1]:
            holder = holder[key]
        holder[path[-1]] = HIDDEN
    return shown


def _without_unknowns(value: Any) -> Any:
    if isinstance(value, Unknown):
        return f"(not known: {value})"
    if isinstance(value, dict):
        return {key: _without_unknowns(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_without_unknowns(item) for item in value]
    return value


def tables(arguments: Any, at: str = "") -> Iterator[Table]:
    """Iterate over all tables of names and values in arguments that may be shown."""
    if isinstance(arguments, list):
        for number, item in enumerate(arguments):
            yield from tables(item, f"{at}[{number}]")
    if not isinstance(arguments, dict):
        return
    for key, value in arguments.items():
        where = f"{at}.{key}".lstrip(".")
        if key in TABLES and isinstance(value, dict) and value:
            rows = tuple((name, _cell(name, item)) for name, item in sorted(value.items()))
            yield Table(name=where, rows=rows)
        else:
            yield from tables(value, where)


def _cell(name: str, value: Any) -> str:
    if hidden(name, value):
        return HIDDEN
    return value if isinstance(value, str) else json.dumps(value, default=str)
