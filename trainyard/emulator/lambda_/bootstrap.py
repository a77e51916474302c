"""``python bootstrap.py``: calls one handler once, inside a function's namespaces.

It replaces AWS's own runtime interface client, and reports the same errors. It reads the event from
``$HOME/event.json``, and writes the result to ``$HOME/answer.json``: ``{"result": ..., "error":
{...} or null, "milliseconds": ..., "memory": MB}``. It uses only the standard library.
"""

import importlib
import json
import os
import resource
import sys
import time
import traceback
from pathlib import Path
from types import SimpleNamespace
from typing import Any

HOME = Path(os.environ["HOME"])


class Fault(Exception):
    """An error of a function that the runtime itself detects, with AWS's error type and message."""

    def __init__(self, kind: str, message: str, trace: list[str] | None = None) -> None:
        super().__init__(message)
        self.kind, self.trace = kind, trace or []


class Context:
    """The second argument of the handler, with the same attributes as AWS's."""

    def __init__(self, call: dict[str, Any]) -> None:
        self.aws_request_id: str = call["request"]
        self.function_name = os.environ["AWS_LAMBDA_FUNCTION_NAME"]
        self.function_version = os.environ["AWS_LAMBDA_FUNCTION_VERSION"]
        self.invoked_function_arn: str = call["arn"]
        self.memory_limit_in_mb = os.environ["AWS_LAMBDA_FUNCTION_MEMORY_SIZE"]
        self.log_group_name = os.environ["AWS_LAMBDA_LOG_GROUP_NAME"]
        self.log_stream_name = os.environ["AWS_LAMBDA_LOG_STREAM_NAME"]
        self.identity = SimpleNamespace(cognito_identity_id=None, cognito_identity_pool_id=None)
        self.client_context = None
        self._deadline = time.monotonic() + call["seconds"]

    def get_remaining_time_in_millis(self) -> int:
        return max(0, int(1000 * (self._deadline - time.monotonic())))


def main() -> None:
    """Call the handler with the event, and write the result."""
    call = json.loads((HOME / "event.json").read_text())
    sys.path.insert(0, os.environ["LAMBDA_TASK_ROOT"])
    os.chdir(os.environ["LAMBDA_TASK_ROOT"])
    answer: dict[str, Any] = {"result": None, "error": None}
    start_time, version = time.monotonic(), os.environ["AWS_LAMBDA_FUNCTION_VERSION"]
    own_runtime, runtime = "python{}.{}".format(*sys.version_info), os.environ["AWS_EXECUTION_ENV"]
    if runtime != f"AWS_Lambda_{own_runtime}":
        print(f"[emulator] {runtime} is replaced by {own_runtime}")
    handler = None
    try:
        handler = find_handler(os.environ["_HANDLER"])
        print(f"START RequestId: {call['request']} Version: {version}", flush=True)
        start_time = time.monotonic()
        answer["result"] = marshal_result(handler(call["event"], Context(call)))
    except Fault as fault:
        answer["error"] = make_error(fault.kind, str(fault), fault.trace)
    except Exception as failure:  # noqa: BLE001 - any error of the user's function
        frames = traceback.extract_tb(failure.__traceback__)
        user_frames = [frame for frame in frames if frame.filename != __file__]
        answer["error"] = make_error(
            type(failure).__name__, str(failure), traceback.format_list(user_frames)
        )
    if answer["error"]:
        answer["error"]["requestId"] = call["request"] if handler else ""
        print_error(answer["error"])
    answer["milliseconds"] = 1000 * (time.monotonic() - start_time)
    answer["memory"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    # Written under another name first: the emulator finds either no result or a complete one.
    draft = HOME / "answer.draft"
    draft.write_text(json.dumps(answer))
    draft.rename(HOME / "answer.json")
    sys.stdout.flush()
    os._exit(0)  # do not wait for threads of the function, which AWS freezes at this point


def find_handler(name: str) -> Any:
    """Return the handler ``module.function``. Raises Fault if it cannot be imported."""
    module, dot, function = name.rpartition(".")
    if not dot:
        message = f"Bad handler '{name}': not enough values to unpack (expected 2, got 1)"
        raise Fault("Runtime.MalformedHandlerName", message)
    try:
        loaded_module = importlib.import_module(module.replace("/", "."))
    except ImportError as missing:
        message = f"Unable to import module '{module}': {missing}"
        raise Fault("Runtime.ImportModuleError", message) from None
    except SyntaxError as wrong:
        trace = [f'  File "{wrong.filename}" Line {wrong.lineno}\n    {wrong.text}']
        message = f"Syntax error in module '{module}': {wrong}"
        raise Fault("Runtime.UserCodeSyntaxError", message, trace) from None
    if not hasattr(loaded_module, function):
        message = f"Handler '{function}' missing on module '{module}'"
        raise Fault("Runtime.HandlerNotFound", message)
    return getattr(loaded_module, function)


def marshal_result(value: Any) -> Any:
    """Return the handler's result as plain JSON types. Raises Fault if that is not possible."""
    try:
        return json.loads(json.dumps(value))
    except (TypeError, ValueError) as wrong:
        message = f"Unable to marshal response: {wrong}"
        raise Fault("Runtime.MarshalError", message) from None


def make_error(kind: str, message: str, trace: list[str]) -> dict[str, Any]:
    return {"errorMessage": message, "errorType": kind, "requestId": "", "stackTrace": trace}


def print_error(failure: dict[str, Any]) -> None:
    print(f"[ERROR] {failure['errorType']}: {failure['errorMessage']}")
    print("Traceback (most recent call last):")
    for part in failure["stackTrace"]:
        print(part.rstrip("\n"))


if __name__ == "__main__":
    main()
