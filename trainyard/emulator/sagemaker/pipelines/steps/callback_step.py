"""Callback step: send a token to a queue and wait for the request that responds with this token."""

import logging
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from trainyard.emulator.sagemaker.pipelines.steps.runner import (
    Attempt,
    Runner,
    StepFailed,
    StepStopped,
    StepTimedOut,
    convert_outputs,
    describe_outputs,
    runs,
)

LONGEST = 7 * 86400  # maximum wait in seconds: seven days
log = logging.getLogger(__name__)


@runs("Callback")
class CallbackRunner(Runner):
    """Send the token, the execution's ARN and the Arguments to SqsQueueUrl, and wait for the
    response.

    When stopped, it sends a second message, with the status Stopping, and continues to wait.
    """

    def run(self, attempt: Attempt) -> None:
        queue = str(attempt.fields.get("SqsQueueUrl"))
        declarations = attempt.fields.get("OutputParameters") or []
        execution = str(attempt.scope.variable("PipelineExecutionArn"))
        names = [output["OutputName"] for output in declarations]
        waiting = self._services.callbacks.register_step(execution, attempt.arguments, names)
        metadata = {"CallbackToken": waiting.token, "SqsQueueUrl": queue}
        try:
            self._send(queue, waiting.build_message("Executing"))
        except (ClientError, BotoCoreError) as error:
            raise StepFailed(f"ClientError: Failed to send to {queue}: {error}") from None
        attempt.note(metadata)
        if not waiting.answer_event.wait(LONGEST):
            raise StepTimedOut("ClientError: the callback was not answered within seven days")
        answer = waiting.answer
        if answer is None:
            raise StepStopped
        if "failure" in answer:
            raise StepFailed(answer["failure"] or "ClientError: the callback was answered: failed")
        outputs = convert_outputs(
            declarations, answer["outputs"], "SendPipelineExecutionStepSuccess"
        )
        attempt.note(metadata | {"OutputParameters": outputs})

    def describe(self, metadata: dict[str, Any]) -> dict[str, Any]:
        return describe_outputs(metadata)

    def stop(self, metadata: dict[str, Any]) -> None:
        waiting = self._services.callbacks.find_waiting_step(metadata["CallbackToken"])
        if waiting:
            try:
                self._send(metadata["SqsQueueUrl"], waiting.build_message("Stopping"))
            except (ClientError, BotoCoreError) as error:
                log.warning("callback %s: no stop message sent: %s", waiting.token, error)

    def _send(self, queue: str, message: str) -> None:
        self._services.aws.make_client("sqs").send_message(QueueUrl=queue, MessageBody=message)
