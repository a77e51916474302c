"""Where an execution's expressions find their values."""

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from trainyard.emulator.api import ApiError
from trainyard.emulator.dag.condition import holds
from trainyard.emulator.dag.definition import Step
from trainyard.emulator.jobs.transfers import ClientFault, join_key, split_uri
from trainyard.emulator.objects import ObjectStore
from trainyard.language.expressions import ExpressionError, Value

if TYPE_CHECKING:
    from trainyard.emulator.dag.execution import Execution


class ExecutionScope:
    """The :class:`trainyard.language.expressions.Scope` of one attempt of one step.

    ``names``: TrainingJobName and ProcessingJobName, which exist only inside such steps.
    """

    def __init__(self, execution: "Execution", objects: ObjectStore, names: dict[str, str]) -> None:
        self._execution = execution
        self._objects = objects
        self._names = names

    def decide(self, step: Step) -> bool:
        """The outcome of a condition step: all of its conditions hold."""
        return all(holds(part, self) for part in step.arguments.get("Conditions") or [])

    def parameter(self, name: str) -> Value:
        return self._execution.record["parameters"][name]

    def variable(self, name: str) -> str:
        answer = self._execution.record["answer"]
        values = {
            "StartDateTime": _iso(answer["CreationTime"]),
            "CurrentDateTime": _iso(datetime.now(UTC).timestamp()),
            "PipelineName": self._execution.record["pipeline"],
            "PipelineArn": answer["PipelineArn"],
            "PipelineExecutionId": self._execution.id,
            "PipelineExecutionArn": answer["PipelineExecutionArn"],
        } | {name: value for name, value in self._names.items() if value}
        if name not in values:
            raise ExpressionError(f"Execution.{name} exists only in a step of that job's type")
        return values[name]

    def properties(self, step: str) -> dict:
        return self._execution.work.describe(self._execution.steps[step]["Metadata"])

    def property_file(self, step: str, name: str) -> bytes:
        declared = self._execution.definition.steps[step].property_file(name) or {}
        outputs = self.properties(step).get("ProcessingOutputConfig", {}).get("Outputs", [])
        uri = next(
            o["S3Output"]["S3Uri"] for o in outputs if o["OutputName"] == declared["OutputName"]
        )
        try:
            return self.s3_file(join_key(uri, declared["FilePath"]))
        except ExpressionError as error:
            raise ExpressionError(f"property file {name!r} of step {step!r}: {error}") from None

    def s3_file(self, uri: str) -> bytes:
        try:
            return self._objects.path(*split_uri(uri)).read_bytes()
        except (ApiError, ClientFault) as error:
            message = error.message if isinstance(error, ApiError) else str(error)
            raise ExpressionError(f"cannot read {uri}: {message}") from None


def _iso(seconds: float) -> str:
    time = datetime.fromtimestamp(seconds, UTC)
    return time.isoformat(timespec="milliseconds").replace("+00:00", "Z")
