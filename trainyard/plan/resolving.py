"""Values of a step's arguments: in an execution that was, and in the one that would come next."""

from collections.abc import Mapping
from typing import Any

from trainyard.language.evaluation import Start, Unknown, evaluate, told_by, unknowns
from trainyard.language.expressions import ExpressionError, lookup
from trainyard.plan.fields import reference, steps
from trainyard.plan.history import History, Run, StepRun

STANDS = "\1"
"""Begins a text that stands for a value which a definition does not tell, such as a model's URI:
whatever it was, the same text is the same value."""


def argument(document: Mapping[str, Any], step: str, path: str) -> Any:
    """What the arguments of ``step`` give for a property; None where only its job tells."""
    arguments = steps(document).get(step, {}).get("Arguments") or {}
    try:
        return lookup(arguments, path, step)
    except ExpressionError:
        return None


class Past(Start):
    """The values of an execution that was: they all were known, if not all are told."""

    def __init__(self, run: Run, history: History) -> None:
        super().__init__(run.parameters, otherwise=lambda name: f"{STANDS}{name} of {run.arn}")
        self._run = run
        self._history = history

    def variable(self, name: str) -> Any:
        known = {**told_by(self._run.arn), "StartDateTime": self._run.started.isoformat()}
        return known[name] if name in known else super().variable(name)

    def property(self, step: str, path: str) -> Any:
        origin = self._origin(step)
        if isinstance(origin, Run):
            value = argument(origin.document, step, path)
            if value is not None:
                return evaluate(value, Past(origin, self._history))
        return self._untold(step, path)

    def property_file(self, step: str, name: str, path: str) -> Any:
        return self._untold(step, f"PropertyFiles.{name}: {path}")

    def s3_file(self, uri: str, path: str) -> Any:
        return f"{STANDS}{uri}: {path}"

    def _untold(self, step: str, path: str) -> str:
        origin = self._origin(step)
        return f"{STANDS}{step} of {origin.arn if isinstance(origin, Run) else origin}: {path}"

    def _origin(self, step: str) -> Run | str:
        """The execution in which the step's result was made; its ARN where it is gone."""
        done: StepRun | None = self._run.steps.get(step)
        if done is None or done.source is None:
            return self._run
        return self._history.run(done.source) or done.source


class Next(Start):
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
        super().__init__(parameters)
        self._document = document
        self._pipeline = pipeline
        self._history = history
        self._sources = sources

    def variable(self, name: str) -> Any:
        if name == "PipelineName":
            return self._pipeline
        if name == "PipelineArn" and self._history.runs:
            return told_by(self._history.runs[0].arn)[name]
        return Unknown(f"its {reference(f'Execution.{name}').strip('{}')} is new in every run")

    def property(self, step: str, path: str) -> Any:
        if source := self._sources.get(step):
            return Past(source, self._history).property(step, path)
        value = evaluate(argument(self._document, step, path), self)
        # An output that goes to the same place in every run is the same text in every run.
        known = value is not None and not any(unknowns(value))
        return value if known else Unknown(f"{step} runs")

    def property_file(self, step: str, name: str, path: str) -> Any:
        if source := self._sources.get(step):
            return Past(source, self._history).property_file(step, name, path)
        return Unknown(f"{step} runs")

    def s3_file(self, uri: str, path: str) -> Any:
        return f"{STANDS}{uri}: {path}"
