"""``python serve.py SOCKET``: what the container's ``serve`` is, with one part stood in for.

In AWS's PyTorch inference images ``serve`` installs ``code/requirements.txt`` and starts
TorchServe, whose Java front end hands every request to AWS's inference toolkit. Here the toolkit
is AWS's own (``sagemaker-pytorch-inference``, the very handler that TorchServe is told to load),
and this module stands in for the front end: ``GET /ping``, ``POST /invocations``, one request at
a time, one worker. It listens on a Unix socket, because the container has a network of its own.
"""

import os
import socketserver
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

MODEL = Path(os.environ["SAGEMAKER_BASE_DIR"]) / "model"


class Context:
    """TorchServe's context, as far as the toolkit asks it; also its own request processor."""

    model_name = "model"

    def __init__(self, headers: dict[str, str]) -> None:
        self.system_properties = {"model_dir": str(MODEL)}
        self.request_processor = [self]
        self._headers = headers
        self.status, self.content_type = 200, "application/json"

    def get_request_properties(self) -> dict[str, str]:
        return self._headers

    def set_response_status(self, code: int, phrase: str = "", idx: int = 0) -> None:
        self.status = int(code)

    def set_response_content_type(self, idx: int, value: str) -> None:
        self.content_type = value


class Handler(BaseHTTPRequestHandler):
    """The two paths of the hosting contract."""

    protocol_version = "HTTP/1.1"
    service: Any
    one_at_a_time = threading.Lock()

    def do_GET(self) -> None:
        self._answer(200 if self.path == "/ping" else 404, b"", "text/plain")

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.path != "/invocations":
            return self._answer(404, b"", "text/plain")
        context = Context(dict(self.headers))
        with self.one_at_a_time:
            [answer] = self.service.handle([{"body": body}], context)
        data = answer if isinstance(answer, bytes) else str(answer).encode()
        self._answer(context.status, data, context.content_type)

    def _answer(self, status: int, body: bytes, content_type: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def address_string(self) -> str:
        return "emulator"  # a Unix socket's peer has no address

    def log_message(self, format: str, *values: Any) -> None:
        if "/ping" not in str(values):
            print(f"serve: {format % values}", flush=True)


class Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True


def main() -> None:
    requirements = MODEL / "code/requirements.txt"
    if requirements.is_file():  # as sagemaker_inference.model_server does
        pip = [sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check"]
        subprocess.run([*pip, "-r", str(requirements)], check=True)
    sys.path.insert(0, str(MODEL / "code"))
    from sagemaker_pytorch_serving_container import (  # type: ignore[import-untyped]
        handler_service,
    )

    Handler.service = handler_service.HandlerService()
    Handler.service.initialize(Context({}))  # loads the model: only then does /ping answer
    with Server(sys.argv[1], Handler) as server:
        server.serve_forever()


if __name__ == "__main__":
    main()
