"""Tokens of callback steps that wait for a response, and the two operations that respond to one."""

import json
import secrets
import string
import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from trainyard.emulator.request_scope import ApiError, make_validation_error

_LETTERS = string.ascii_letters + string.digits


@dataclass(slots=True)
class WaitingStep:
    """A callback step that waits. ``answer`` is None until a response arrives; it stays None if the
    emulator stops first.
    """

    token: str
    execution: str
    arguments: dict
    output_parameters: list[str]
    """Names of the output parameters that a success response must contain."""
    answer_event: threading.Event = field(default_factory=threading.Event)
    answer: dict | None = None
    request: str | None = None
    """ClientRequestToken of the request that responded to the step."""

    def build_message(self, status: str) -> str:
        """Return the JSON message that is sent to the step's queue."""
        message = {"token": self.token, "pipelineExecutionArn": self.execution}
        return json.dumps(message | {"arguments": self.arguments, "status": status})


class Callbacks:
    """The callback steps that were started since the emulator started. Its methods are
    thread-safe.
    """

    def __init__(self) -> None:
        self._all: dict[str, WaitingStep] = {}
        self._lock = threading.Lock()

    def list_operations(self) -> dict[str, Callable[[dict], dict]]:
        return {
            "SendPipelineExecutionStepSuccess": self.accept_success,
            "SendPipelineExecutionStepFailure": self.accept_failure,
        }

    def register_step(
        self, execution: str, arguments: dict, output_parameters: list[str]
    ) -> WaitingStep:
        """Register a waiting step under a new token of ten letters and digits, as on AWS."""
        token = "".join(secrets.choice(_LETTERS) for _ in range(10))
        with self._lock:
            self._all[token] = WaitingStep(token, execution, arguments, output_parameters)
            return self._all[token]

    def find_waiting_step(self, token: str) -> WaitingStep | None:
        """Return the step that waits with that token. Return None if it has a response, or if the
        token is unknown, for example because it was issued before the emulator was restarted.
        """
        waiting = self._all.get(token)
        return None if waiting is None or waiting.answer_event.is_set() else waiting

    def accept_success(self, request: dict) -> dict:
        """Handle SendPipelineExecutionStepSuccess.

        Raises ``ValidationException`` if a declared output parameter is missing; the step then
        keeps waiting.
        """
        outputs = request.get("OutputParameters", [])
        values = {output["Name"]: output["Value"] for output in outputs}
        return self._store_response(request, {"outputs": values})

    def accept_failure(self, request: dict) -> dict:
        """Handle SendPipelineExecutionStepFailure: store the failure, and wake the step."""
        return self._store_response(request, {"failure": request.get("FailureReason", "")})

    def close(self) -> None:
        """Wake all steps that still wait, without a response."""
        with self._lock:
            for waiting in self._all.values():
                waiting.answer_event.set()

    def _store_response(self, request: dict, answer: dict) -> dict:
        """Store the response for the step with the request's token, and wake the step.

        Raises ``ResourceNotFound`` if the token is unknown, and ``ValidationException`` if the step
        already has a response or an output parameter is missing.
        """
        token, id_ = request["CallbackToken"], request.get("ClientRequestToken")
        with self._lock:
            if token not in self._all:
                message = f"Callback token '{token}' does not exist."
                raise ApiError("ResourceNotFound", message)
            waiting = self._all[token]
            # A repeated request, recognized by its ClientRequestToken, gets the same response.
            if waiting.answer_event.is_set() and not (id_ and waiting.request == id_):
                raise make_validation_error(f"Callback token '{token}' was answered already.")
            if "outputs" in answer:
                missing = set(waiting.output_parameters) - answer["outputs"].keys()
                if missing:
                    message = (
                        f"the step declares OutputParameters {sorted(waiting.output_parameters)}"
                    )
                    raise make_validation_error(f"{message}; not given: {sorted(missing)}")
            if not waiting.answer_event.is_set():
                waiting.answer, waiting.request = answer, id_
                waiting.answer_event.set()
        return {"PipelineExecutionArn": waiting.execution}
