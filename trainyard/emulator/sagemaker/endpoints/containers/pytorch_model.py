"""``python pytorch_model.py SOCKET``: replaces ``serve`` of AWS's PyTorch images.

In AWS's images, ``serve`` installs ``code/requirements.txt`` and starts TorchServe, whose Java
front end passes every request to AWS's inference toolkit. Here the toolkit is AWS's own, too
(``sagemaker-pytorch-inference``, the same handler that TorchServe loads), but ``http_front``
replaces the front end.
"""

from typing import Any

import http_front  # type: ignore[import-not-found]


class Context:
    """The parts of the model server's context that the toolkit uses. It is also its own request
    processor.
    """

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


def serve_handler_service(service: Any) -> None:
    """Load the model with a handler service of the toolkit, and serve requests with it."""
    service.initialize(Context({}))  # loads the model

    def answer(body: bytes, headers: dict[str, str]) -> tuple[int, bytes, str]:
        """Respond to one request with the toolkit; ``http_front`` calls it."""
        context = Context(headers)
        [data] = service.handle([{"body": body}], context)
        data = data if isinstance(data, bytes) else str(data).encode()
        return context.status, data, context.content_type

    http_front.serve_requests(answer)


def main() -> None:
    http_front.install_requirements(http_front.MODEL / "code")
    from sagemaker_pytorch_serving_container import handler_service  # type: ignore[import-untyped]

    serve_handler_service(handler_service.HandlerService())


if __name__ == "__main__":
    main()
