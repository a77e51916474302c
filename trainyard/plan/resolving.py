"""Values of a step's arguments: in an execution that was, and in the one that would come next.

What only the next execution will know stands in the value as a mark with the reason, so that a
cache key which holds it is equal to no other, and the plan can say why.
"""

import re
from collections.abc import Mapping
from typing import Any, Protocol

from trainyard.language.expressions import (
    GET,
    JOIN,
    ExpressionError,
    as_text,
    is_expression,
    lookup,
    parse_get,
)
from trainyard.plan.fields import reference, steps
from trainyard.plan.history import History, Run, StepRun

_MARK = re.compile("\0([^\0]*)\0")
PROPERTY = "\1"  # begins a property that a definition does not tell, such as a model's URI


def mark(reason: str) -> str:
    """A value that is known to no plan, and why."""
    return f"\0{reason}\0"


def reasons(value: str) -> list[str]:
    """The reasons of the marks in a text, each once."""
    return list(dict.fromkeys(_MARK.findall(value)))


class Values(Protocol):
    """Where expressions find their values."""

    def parameter(self, name: str) -> Any: ...

    def variable(self, name: str) -> str: ...

    def property(self, step: str, path: str) -> Any: ...


def resolve(value: Any, values: Values) -> Any:
    """``value`` with all its expressions replaced.

    Raises:
        ExpressionError: an expression is malformed.
    """
    if isinstance(value, list):
        return [resolve(item, values) for item in value]
    if not isinstance(value, dict):
        return value
    if not is_expression(value):
        return {key: resolve(item, values) for key, item in value.items()}
    if GET in value:
        return _get(value[GET], values)
    if JOIN in value:
        body = value[JOIN]
        parts = [as_text(resolve(part, values)) for part in body["Values"]]
        return str(body.get("On", "")).join(parts)
    body = next(iter(value.values()))
    if "PropertyFile" in body:
        file = parse_get(body["PropertyFile"].get(GET))
        return values.property(file.name, f"PropertyFiles.{file.path}: {body['Path']}")
    return f"{PROPERTY}{resolve(body.get('S3Uri'), values)}: {body['Path']}"


def _get(text: str, values: Values) -> Any:
    parsed = parse_get(text)
    if parsed.kind == "Parameters":
        return values.parameter(parsed.name)
    if parsed.kind == "Execution":
        return values.variable(parsed.name)
    return values.property(parsed.name, parsed.path)


def argument(document: Mapping[str, Any], step: str, path: str) -> Any:
    """What the arguments of ``step`` give for a property; None where only its job tells."""
    arguments = steps(document).get(step, {}).get("Arguments") or {}
    try:
        return lookup(arguments, path, step)
    except ExpressionError:
        return None


class Past:
    """The values of an execution that was."""

    def __init__(self, run: Run, step: str, history: History) -> None:
        self._run = run
        self._step = step
        self._history = history

    def parameter(self, name: str) -> Any:
        if name not in self._run.parameters:
            raise ExpressionError(f"there is no parameter {name!r}")
        return self._run.parameters[name]

    def variable(self, name: str) -> str:
        known = {
            "StartDateTime": self._run.started.isoformat(),
            "PipelineName": self._run.arn.split("/")[1],
            "PipelineArn": self._run.arn.partition("/execution/")[0],
            "PipelineExecutionId": self._run.id,
            "PipelineExecutionArn": self._run.arn,
        }
        return known.get(name, f"{PROPERTY}{name} of {self._run.id}")

    def property(self, step: str, path: str) -> Any:
        origin = self._origin(step)
        value = argument(origin.document, step, path) if isinstance(origin, Run) else None
        if value is None:
            arn = origin.arn if isinstance(origin, Run) else origin
            return f"{PROPERTY}{step} of {arn}: {path}"
        return resolve(value, Past(origin, step, self._history))

    def _origin(self, step: str) -> Run | str:
        """The execution in which the step's result was made; its ARN where it is gone."""
        done: StepRun | None = self._run.steps.get(step)
        if done is None or done.source is None:
            return self._run
        return self._history.run(done.source) or done.source


class Next:
    """The values of the execution that would come next.

    ``sources``: step → the execution whose result it would reuse. The others run.
    """

    def __init__(
        self,
        document: Mapping[str, Any],
        parameters: Mapping[str, Any],
        pipeline: str,
        history: History,
        sources: Mapping[str, Run],
    ) -> None:
        self._document = document
        self._parameters = parameters
        self._pipeline = pipeline
        self._history = history
        self._sources = sources

    def parameter(self, name: str) -> Any:
        if name not in self._parameters:
            raise ExpressionError(f"there is no parameter {name!r}")
        return self._parameters[name]

    def variable(self, name: str) -> str:
        if name == "PipelineName":
            return self._pipeline
        if name == "PipelineArn" and self._history.runs:
            return self._history.runs[0].arn.partition("/execution/")[0]
        return mark(f"its {reference(f'Execution.{name}').strip('{}')} is new in every run")

    def property(self, step: str, path: str) -> Any:
        if source := self._sources.get(step):
            return Past(source, step, self._history).property(step, path)
        value = argument(self._document, step, path)
        value = None if value is None else resolve(value, self)
        # An output that goes to the same place in every run is the same text in every run.
        known = value is not None and not reasons(as_text(value))
        return value if known else mark(f"{step} runs")
