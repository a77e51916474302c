"""Model step: create a model, which an endpoint or a transform job can then use."""

from trainyard.emulator.request_scope import ApiError
from trainyard.emulator.sagemaker.pipelines.steps.runner import Attempt, Runner, make_failure, runs


@runs("Model")
class ModelRunner(Runner):
    """Call CreateModel."""

    def run(self, attempt: Attempt) -> None:
        name = attempt.arguments.get("ModelName") or attempt.name
        request = attempt.arguments | {"ModelName": name}
        try:
            answer = self._services.forward("CreateModel", request)
        except ApiError as error:
            raise make_failure("CreateModel", error) from None
        attempt.note({"Arn": answer["ModelArn"]})

    def describe(self, metadata: dict) -> dict:
        name = metadata["Arn"].rpartition("/")[2]
        return self._services.forward("DescribeModel", {"ModelName": name})
