"""Time requests to an inference script, in a process of its own: prints nothing, writes a JSON.

python -P served.py MODEL_FOLDER REQUEST_FILE CONTENT_TYPE ACCEPT OUT

The script lies in the archive as code/inference.py, and is called as AWS's inference toolkits call
it: ``model_fn`` once, then ``input_fn``, ``predict_fn`` and ``output_fn``, or ``transform_fn`` in
their place, each with a context where it takes one more argument. Only the standard library is
imported, since the process is the script's.
"""

import inspect
import json
import sys
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from statistics import quantiles
from types import ModuleType
from typing import Any

from steps.evaluate.latency import REQUESTS, WARM, quietest, timed
from training.cpu_cores import cores

PARTS = ("input_fn", "predict_fn", "output_fn")


def measured(model: Path, request: bytes, content_type: str, accept: str) -> dict[str, Any]:
    """Return the latency for evaluation.json: from a request's bytes to the answer's.

    Raises:
        AttributeError: the script lacks a function.
    """
    code = model / "code"
    sys.path.insert(0, str(code))
    script = import_module("inference")
    _check(script)
    loaded = called(script.model_fn, str(model))
    text = "json" in content_type or content_type.startswith("text/")  # the toolkits decode these
    body = request.decode() if text else request

    def answer(number: int) -> float:
        began = time.perf_counter()
        if hasattr(script, "transform_fn"):
            called(script.transform_fn, loaded, body, content_type, accept)
        else:
            given = called(script.input_fn, body, content_type)
            called(script.output_fn, called(script.predict_fn, given, loaded), accept)
        return time.perf_counter() - began

    timed(answer, WARM)
    best, rounds = quietest(lambda: timed(answer, REQUESTS))
    shares = quantiles(best.seconds, n=100, method="inclusive")
    return {
        "p50_ms": shares[49] * 1000,
        "p95_ms": shares[94] * 1000,
        "samples": REQUESTS,
        "device": "as inference.py chose",
        "threads": cores(),
        "waited_share": best.waited,
        "busy": best.busy,
        "rounds": rounds,
    }


def called(function: Callable[..., Any], *arguments: Any) -> Any:
    """Return the function's answer; a function that takes one argument more gets
    None as context.
    """
    needed = [
        p for p in inspect.signature(function).parameters.values()
        if p.default is p.empty and p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
    ]  # fmt: skip
    return function(*arguments, *([None] if len(needed) == len(arguments) + 1 else []))


def _check(script: ModuleType) -> None:
    parts = () if hasattr(script, "transform_fn") else PARTS
    for name in ("model_fn", *parts):
        if not hasattr(script, name):
            raise AttributeError(
                f"{script.__file__} has no {name}: latency is measured with model_fn, "
                "input_fn, predict_fn and output_fn, or model_fn and transform_fn"
            )


if __name__ == "__main__":
    folder, file, kind, accepted, out = sys.argv[1:]
    found = measured(Path(folder), Path(file).read_bytes(), kind, accepted)
    Path(out).write_text(json.dumps(found), encoding="utf-8")
