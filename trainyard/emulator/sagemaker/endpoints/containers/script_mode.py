"""Serve a user's script as the server of AWS's XGBoost and scikit-learn images does.

It behaves as github.com/aws/sagemaker-containers does (Apache-2.0; ``_transformer.py``,
``_worker.py``): it calls the script's ``model_fn``, and either its ``transform_fn`` or its
``input_fn``, ``predict_fn`` and ``output_fn``. The image's defaults replace those of the three that
the script does not define.
"""

import importlib
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import http_front  # type: ignore[import-not-found]

sys.path.insert(1, str(Path(__file__).parents[3] / "algorithms/image"))
from sagemaker_containers.beta.framework import content_types, encoders, worker  # type: ignore[import-not-found]  # noqa: E402

CODE = Path(http_front.MODEL).parent / "code"
"""Folder with the unpacked archive of SAGEMAKER_SUBMIT_DIRECTORY. If it does not exist, the code is
in the model's archive.
"""
PARTS = ("input_fn", "predict_fn", "output_fn")


def default_output_fn(prediction: Any, accept: str) -> Any:
    """Return a response with the encoded prediction. Raises UnsupportedFormatError."""
    return worker.Response(encoders.encode(prediction, accept), mimetype=accept)


def serve_user_module(input_fn: Callable[..., Any], predict_fn: Callable[..., Any]) -> None:
    """Serve the module that SAGEMAKER_PROGRAM names; the arguments are the image's default
    functions.
    """
    http_front.install_requirements(CODE if CODE.is_dir() else CODE.parent / "model/code")
    program = os.environ.get("SAGEMAKER_PROGRAM", "")
    if not program:
        raise SystemExit(
            "ValueError: SAGEMAKER_PROGRAM is not set: expected the name of the script that has "
            "model_fn, in the model's environment"
        )
    module = importlib.import_module(program.removesuffix(".py"))
    defaults = {"input_fn": input_fn, "predict_fn": predict_fn, "output_fn": default_output_fn}
    http_front.serve_requests(make_request_handler(module, defaults))


def make_request_handler(
    module: ModuleType, defaults: dict[str, Callable[..., Any]]
) -> Callable[[bytes, dict[str, str]], http_front.Answer]:
    """Load the model and return the function that responds to a request's body and headers."""
    transform = _make_transform(module, defaults)
    if not hasattr(module, "model_fn"):
        raise NotImplementedError(
            f"{module.__name__} has no model_fn: please provide a model_fn implementation. See "
            "documentation for model_fn at https://github.com/aws/sagemaker-python-sdk"
        )
    model = module.model_fn(str(http_front.MODEL))
    default_accept = os.environ.get("SAGEMAKER_DEFAULT_INVOCATIONS_ACCEPT", content_types.JSON)

    def answer(body: bytes, headers: dict[str, str]) -> http_front.Answer:
        """Respond to one request; ``http_front`` calls it."""
        lower_headers = {name.lower(): value for name, value in headers.items()}
        kind = (
            lower_headers.get("contenttype")
            or lower_headers.get("content-type")
            or content_types.JSON
        )
        accept = lower_headers.get("accept") or content_types.ANY
        accept = default_accept if accept == content_types.ANY else accept
        content = body.decode(errors="replace") if kind in content_types.UTF8_TYPES else body
        return _convert_result(transform(model, content, kind, accept))

    return answer


def _make_transform(
    module: ModuleType, defaults: dict[str, Callable[..., Any]]
) -> Callable[..., Any]:
    """Return the function ``transform(model, content, content type, accept)``.

    Raises ValueError if the script defines ``transform_fn`` together with one of the other
    functions.
    """
    own_parts = [name for name in PARTS if hasattr(module, name)]
    if transform_fn := getattr(module, "transform_fn", None):
        if own_parts:
            raise ValueError(
                "Cannot use transform_fn implementation with input_fn, predict_fn, and/or output_fn"
            )
        return transform_fn
    read, predict, write = (getattr(module, name, defaults[name]) for name in PARTS)

    def transform(model: Any, content: Any, content_type: str, accept: str) -> Any:
        return write(predict(read(content, content_type), model), accept)

    return transform


def _convert_result(result: Any) -> http_front.Answer:
    """Convert a script's return value to a response, as flask does.

    Raises TypeError if the value is of a type that flask cannot send.
    """
    if isinstance(result, tuple):
        result = worker.Response(response=result[0], mimetype=result[1])
    if isinstance(result, str | bytes | bytearray):
        result = worker.Response(result, mimetype="text/html")
    elif isinstance(result, dict | list):
        result = worker.Response(json.dumps(result), mimetype=content_types.JSON)
    if not all(hasattr(result, name) for name in ("get_data", "status_code", "content_type")):
        raise TypeError(
            f"output_fn returned {type(result).__name__}: expected worker.Response, a pair of body "
            "and content type, text or bytes"
        )
    return result.status_code, result.get_data(), result.content_type
