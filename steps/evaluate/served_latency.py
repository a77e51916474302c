"""Time requests to an inference script in its own process; write the latency to OUT as JSON.

python -P served_latency.py MODEL_FOLDER REQUEST_FILE CONTENT_TYPE ACCEPT OUT

The script is code/inference.py in the archive. Only the standard library is imported, because the
process is the script's.
"""

import inspect
import json
import sys
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

from steps.evaluate.latency import measure_latency
from trainyard.common.process import count_cores


def measure_response_latency(
    model: Path, request: bytes, content_type: str, accept: str
) -> dict[str, Any]:
    """Return the latency for evaluation.json: from a request's bytes to those of the response.

    Raises:
        AttributeError: the script lacks a function.
    """
    script = ServedScript(model / "code/inference.py", model)
    text = "json" in content_type or content_type.startswith("text/")  # AWS's toolkits decode these
    body = request.decode() if text else request

    def time_request(number: int) -> float:
        """Send one request; return the seconds that it took."""
        began = time.perf_counter()
        script.send_request(body, content_type, accept)
        return time.perf_counter() - began

    return measure_latency(time_request, "as inference.py chose", count_cores())


# Call an inference script like AWS's inference toolkits do, in a process that is the script's.
#
# They call ``model_fn`` once, and for each request ``input_fn``, ``predict_fn`` and ``output_fn``,
# or ``transform_fn`` instead of these three. Each gets a context if it takes one more argument.
# Only the standard library is imported.

PARTS = ("input_fn", "predict_fn", "output_fn")


class ServedScript:
    """A script that has loaded its model.

    Args:
        file: the script; its folder is put on Python's path.
        model: folder of the model's files.

    Raises:
        AttributeError: the script lacks a function.
    """

    def __init__(self, file: Path, model: Path) -> None:
        sys.path.insert(0, str(file.parent))
        self.script = import_module(file.stem)
        parts = () if hasattr(self.script, "transform_fn") else PARTS
        for name in ("model_fn", *parts):
            if not hasattr(self.script, name):
                raise AttributeError(
                    f"{file} has no {name}; it needs model_fn and transform_fn, or model_fn, "
                    f"{' and '.join(PARTS)}"
                )
        self._model = call_handler(self.script.model_fn, str(model))

    def send_request(self, body: str | bytes, content_type: str, accept: str) -> Any:
        """Send one request to the script; return its response."""
        script = self.script
        if hasattr(script, "transform_fn"):
            return call_handler(script.transform_fn, self._model, body, content_type, accept)
        request = call_handler(script.input_fn, body, content_type)
        return call_handler(
            script.output_fn, call_handler(script.predict_fn, request, self._model), accept
        )


def call_handler(function: Callable[..., Any], *arguments: Any) -> Any:
    """Return the function's result; if it requires one more argument, pass None as the context."""
    needed = [
        p for p in inspect.signature(function).parameters.values()
        if p.default is p.empty and p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
    ]  # fmt: skip
    return function(*arguments, *([None] if len(needed) == len(arguments) + 1 else []))


if __name__ == "__main__":
    folder, file, kind, accepted, out = sys.argv[1:]
    latency = measure_response_latency(Path(folder), Path(file).read_bytes(), kind, accepted)
    Path(out).write_text(json.dumps(latency), encoding="utf-8")
