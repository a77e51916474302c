"""Tokens of callback steps that wait for an answer, and the two calls that answer one."""

import json
import secrets
import string
import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from trainyard.emulator.request_scope import ApiError, invalid

_LETTERS = string.ascii_letters + string.digits


@dataclass(slots=True)
class WaitingStep:
    """A waiting step. ``answer`` is None until it is answered, or the emulator ends."""

    token: str
    execution: str
    arguments: dict
    output_parameters: list[str]
    """Names of the output parameters that a success must bring."""
    answer_event: threading.Event = field(default_factory=threading.Event)
    answer: dict | None = None
    request: str | None = None
    """ClientRequestToken of the call that answered it."""

    def message(self, status: str) -> str:
        """Return the message that the step's queue gets."""
        message = {"token": self.token, "pipelineExecutionArn": self.execution}
        return json.dumps(message | {"arguments": self.arguments, "status": status})


class Callbacks:
    """The callback steps since the emulator started. Its methods are thread-safe."""

    def __init__(self) -> None:
        self._all: dict[str, WaitingStep] = {}
        self._lock = threading.Lock()

    def operations(self) -> dict[str, Callable[[dict], dict]]:
        return {
            "SendPipelineExecutionStepSuccess": self.accept_success,
            "SendPipelineExecutionStepFailure": self.fail,
        }

    def open(self, execution: str, arguments: dict, output_parameters: list[str]) -> WaitingStep:
        """Create a new token: ten letters and digits, as on AWS."""
        token = "".join(secrets.choice(_LETTERS) for _ in range(10))
        with self._lock:
            self._all[token] = WaitingStep(token, execution, arguments, output_parameters)
            return self._all[token]

    def waits(self, token: str) -> WaitingStep | None:
        """Return the step that waits with that token; None if it was answered or an earlier
        emulator's.
        """
        waiting = self._all.get(token)
        return None if waiting is None or waiting.answer_event.is_set() else waiting

    def accept_success(self, request: dict) -> dict:
        """Raise ``ValidationException`` if a declared output is missing; the step then waits on."""
        outputs = request.get("OutputParameters", [])
        values = {output["Name"]: output["Value"] for output in outputs}
        return self._take(request, {"outputs": values})

    def fail(self, request: dict) -> dict:
        return self._take(request, {"failure": request.get("FailureReason", "")})

    def close(self) -> None:
        """End all waiting."""
        with self._lock:
            for waiting in self._all.values():
                waiting.answer_event.set()

    def _take(self, request: dict, answer: dict) -> dict:
        token, id_ = request["CallbackToken"], request.get("ClientRequestToken")
        with self._lock:
            if token not in self._all:
                message = f"Callback token '{token}' does not exist."
                raise ApiError("ResourceNotFound", message)
            waiting = self._all[token]
            # The same call again, by its ClientRequestToken, gets the same answer.
            if waiting.answer_event.is_set() and not (id_ and waiting.request == id_):
                raise invalid(f"Callback token '{token}' was answered already.")
            if "outputs" in answer:
                missing = set(waiting.output_parameters) - answer["outputs"].keys()
                if missing:
                    message = (
                        f"the step declares OutputParameters {sorted(waiting.output_parameters)}"
                    )
                    raise invalid(f"{message}; not given: {sorted(missing)}")
            if not waiting.answer_event.is_set():
                waiting.answer, waiting.request = answer, id_
                waiting.answer_event.set()
        return {"PipelineExecutionArn": waiting.execution}
