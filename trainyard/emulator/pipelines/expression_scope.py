"""Values of an execution's expressions."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from trainyard.emulator.api import ApiError
from trainyard.emulator.jobs.transfers import ClientFault, join_key, split_uri
from trainyard.emulator.pipelines.checked_definition import Definition
from trainyard.emulator.pipelines.steps.output_parameters import parse_outputs
from trainyard.emulator.storage.object_store import ObjectStore
from trainyard.language.evaluation import arn_variables, read_json
from trainyard.language.expressions import ExpressionError, Value, lookup, split_path
from trainyard.language.step_types import step_type
from trainyard.language.steps import property_file


class ExecutionScope:
    """The :class:`trainyard.language.evaluation.Scope` of an execution, in which every value is
    known.

    Args:
        record: the execution's record, with the results of its steps so far.
        describe: returns the Describe answer for a step's Metadata.
        names: TrainingJobName or ProcessingJobName, which exist only in steps of that type.
    """

    def __init__(
        self,
        record: dict,
        definition: Definition,
        describe: Callable[[dict], dict],
        objects: ObjectStore,
        names: dict[str, str],
    ) -> None:
        self._record = record
        self._definition = definition
        self._describe = describe
        self._objects = objects
        self._names = names

    def parameter(self, name: str) -> Value:
        return self._record["parameters"][name]

    def variable(self, name: str) -> str:
        answer = self._record["answer"]
        values = {
            **arn_variables(answer["PipelineExecutionArn"]),
            "StartDateTime": _iso(answer["CreationTime"]),
            "CurrentDateTime": _iso(datetime.now(UTC).timestamp()),
            "PipelineName": self._record["pipeline"],
        } | {name: value for name, value in self._names.items() if value}
        if name not in values:
            raise ExpressionError(f"Execution.{name} exists only in a step of that job's type")
        return values[name]

    def property(self, step: str, path: str) -> Any:
        if self._document(step).get("Type") == "ForEach":
            target = self._of_loop(step, split_path(path))
            if target:
                return self.property(*target)
        if step not in self._record["steps"]:
            raise ExpressionError(f"Get 'Steps.{step}.{path}': there is no step {step!r}")
        properties = self._describe(self._record["steps"][step]["Metadata"])
        document = self._document(step)
        if step_type(document.get("Type")).outputs:
            properties = parse_outputs(document.get("OutputParameters") or [], properties)
        return lookup(properties, path, f"Get 'Steps.{step}.{path}'")

    def _of_loop(self, loop: str, tokens: list[str | int]) -> tuple[str, str] | None:
        """Return the child and property that IterationOutputs[i].<body>.x or Selected.x stand
        for.
        """
        loop_metadata = self._record["steps"].get(loop, {}).get("Metadata", {}).get("ForEach", {})
        if tokens[0] == "IterationOutputs" and len(tokens) > 3:
            index, body, *rest = tokens[1:]
        elif tokens[0] == "Selected" and len(tokens) > 1 and "Selector" in loop_metadata:
            body, index, rest = (
                loop_metadata["Selector"]["StepName"],
                loop_metadata["Selector"]["Index"],
                tokens[1:],
            )
        else:
            return None
        return f"{body}-{index}", "".join(map(_format_token, rest)).removeprefix(".")

    def _document(self, step: str) -> dict[str, Any]:
        """Return the definition of a step, or of the body step behind a loop's child."""
        steps = self._definition.steps
        source = steps.get(step) or steps.get(step.rpartition("-")[0])
        if source is None:
            raise ExpressionError(f"there is no step {step!r}")
        return source.document

    def property_file(self, step: str, name: str, path: str) -> Any:
        location = f"property file {name!r} of step {step!r}"
        folder, file = property_file(self._document(step), name)
        try:
            data = self._read(join_key(self.property(step, folder), file))
        except ExpressionError as error:
            raise ExpressionError(f"{location}: {error}") from None
        return read_json(data, path, location)

    def s3_file(self, uri: str, path: str) -> Any:
        return read_json(self._read(uri), path, uri)

    def _read(self, uri: str) -> bytes:
        try:
            return self._objects.read_bytes(*split_uri(uri))
        except (ApiError, ClientFault) as error:
            message = error.message if isinstance(error, ApiError) else str(error)
            raise ExpressionError(f"cannot read {uri}: {message}") from None


def _iso(seconds: float) -> str:
    time = datetime.fromtimestamp(seconds, UTC)
    return time.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _format_token(token: str | int) -> str:
    """Return one part of a property's path, as written in an expression."""
    return f"[{token}]" if isinstance(token, int) else f"['{token}']"
