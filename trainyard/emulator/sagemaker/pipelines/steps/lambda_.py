"""Lambda step: call a function and store what it returns as the step's output parameters."""

import json
from typing import Any

from trainyard.emulator.lambda_.function_invocation import Result
from trainyard.emulator.request_scope import ApiError, Thread
from trainyard.emulator.sagemaker.pipelines.steps.runner import (
    Attempt,
    Runner,
    StepFailed,
    StepTimedOut,
    convert_outputs,
    describe_outputs,
    runs,
)

LEAST, MOST = 120, 600  # minimum and maximum time limit of a Lambda step, in seconds


@runs("Lambda")
class LambdaRunner(Runner):
    """Invoke FunctionArn with the Arguments as the event.

    The step waits as long as the function may run, but at least 120 and at most 600 seconds. Then
    it fails, although the function continues. Stopping the execution does not end a function: the
    step waits for it.
    """

    def run(self, attempt: Attempt) -> None:
        name = str(attempt.fields.get("FunctionArn"))
        attempt.note({"Arn": name})
        result = self._call(name, attempt.arguments)
        if result.is_failure:
            failure_type = StepTimedOut if "Sandbox.Timedout" in result.failure else StepFailed
            raise failure_type(f"ClientError: Lambda function {name} failed: {result.failure}")
        declarations = attempt.fields.get("OutputParameters") or []
        outputs = convert_outputs(
            declarations, json.loads(result.payload), f"Lambda function {name}"
        )
        attempt.note({"Arn": name, "OutputParameters": outputs})

    def describe(self, metadata: dict[str, Any]) -> dict[str, Any]:
        return describe_outputs(metadata)

    def _call(self, name: str, event: dict) -> Result:
        """Call the function in a separate thread, which continues after the step's time limit."""
        results: list[Result | ApiError] = []

        def call() -> None:
            try:
                results.append(self._services.functions.call(name, event))
            except ApiError as error:
                results.append(error)

        try:
            timeout = self._services.functions.find_configuration(name)["Timeout"]
        except ApiError as error:
            raise _make_invoke_failure(error) from None
        seconds = min(MOST, max(LEAST, timeout))
        thread = Thread(target=call, daemon=True)
        thread.start()
        thread.join(seconds)
        if not results:
            raise StepTimedOut(f"ClientError: Lambda function {name} has not ended in {seconds} s")
        if isinstance(results[0], ApiError):
            raise _make_invoke_failure(results[0])
        return results[0]


def _make_invoke_failure(error: ApiError) -> StepFailed:
    kind = "InternalServerError" if error.status >= 500 else "ClientError"
    return StepFailed(f"{kind}: Failed to invoke lambda:Invoke. Error Details: {error.message}")
