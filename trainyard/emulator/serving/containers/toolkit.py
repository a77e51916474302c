"""AWS's inference toolkit (``sagemaker-inference``) behind the front end: the user's ``model_fn``,
``input_fn``, ``predict_fn`` and ``output_fn``, and defaults for those that are not there."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import http_front  # type: ignore[import-not-found]

CODE = Path(http_front.MODEL).parent / "code"
"""Where the container unpacks SAGEMAKER_SUBMIT_DIRECTORY; else the code is in the model."""


class Context:
    """The model server's context, as far as the toolkit asks it; also its own request processor."""

    model_name = "model"

    def __init__(self, headers: dict[str, str]) -> None:
        self.system_properties = {"model_dir": str(http_front.MODEL)}
        self.request_processor = [self]
        self._headers = headers
        self.status, self.content_type = 200, "application/json"

    def get_request_properties(self) -> dict[str, str]:
        return self._headers

    def set_response_status(self, code: int, phrase: str = "", idx: int = 0) -> None:
        self.status = int(code)

    def set_response_content_type(self, idx: int, value: str) -> None:
        self.content_type = value


def serve_service(service: Any) -> None:
    """Serves one of the toolkit's handler services."""
    service.initialize(Context({}))  # loads the model

    def answer(body: bytes, headers: dict[str, str]) -> tuple[int, bytes, str]:
        context = Context(headers)
        [data] = service.handle([{"body": body}], context)
        data = data if isinstance(data, bytes) else str(data).encode()
        return context.status, data, context.content_type

    http_front.serve(answer)


def serve(
    predict: Callable[[Any, Any], Any], decode: Callable[[Any, str], Any] | None = None
) -> None:
    """Serves the user's module; ``predict(data, model)`` and ``decode(body, content type)`` stand
    in for functions that it lacks, decoding being the toolkit's where None is given."""
    http_front.prepare(CODE if CODE.is_dir() else CODE.parent / "model/code")
    from sagemaker_inference.default_handler_service import (  # type: ignore[import-untyped]
        DefaultHandlerService,
    )
    from sagemaker_inference.default_inference_handler import (  # type: ignore[import-untyped]
        DefaultInferenceHandler,
    )
    from sagemaker_inference.transformer import Transformer  # type: ignore[import-untyped]

    class Defaults(DefaultInferenceHandler):
        def default_input_fn(self, input_data: Any, content_type: str, context: Any = None) -> Any:
            if decode:
                return decode(input_data, content_type)
            return super().default_input_fn(input_data, content_type)

        def default_predict_fn(self, data: Any, model: Any, context: Any = None) -> Any:
            return predict(data, model)

    serve_service(DefaultHandlerService(Transformer(default_inference_handler=Defaults())))
