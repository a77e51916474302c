"""The HTTP server of a model server: the two paths of the hosting contract, on a Unix socket.

A script in this folder loads a model and calls :func:`serve_requests`. The server listens on a Unix
socket because the container has a network of its own.
"""

import os
import signal
import socketserver
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

MODEL = Path(os.environ["SAGEMAKER_BASE_DIR"]) / "model"
Answer = tuple[int, bytes, str]
"""Status, body, content type of an answer."""


class Handler(BaseHTTPRequestHandler):
    """Handle ``GET /ping`` and ``POST /invocations``. Only one invocation runs at a time, as with
    one worker.
    """

    protocol_version = "HTTP/1.1"
    answer: Callable[[bytes, dict[str, str]], Answer]
    one_at_a_time = threading.Lock()

    def do_GET(self) -> None:
        self._send_reply(200 if self.path == "/ping" else 404, b"", "text/plain")

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.path != "/invocations":
            return self._send_reply(404, b"", "text/plain")
        with self.one_at_a_time:
            try:
                status, data, content_type = type(self).answer(body, dict(self.headers))
            except Exception as error:  # noqa: BLE001 - the script may raise any exception
                traceback.print_exc()
                cause = f"{type(error).__name__}: {error}"
                status, data, content_type = 500, cause.encode(errors="replace"), "text/plain"
        self._send_reply(status, data, content_type)

    def _send_reply(self, status: int, body: bytes, content_type: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def address_string(self) -> str:
        return "emulator"  # a Unix socket's peer has no address

    def log_message(self, format: str, *values: Any) -> None:
        """Print a request to the container's log, except pings. ``BaseHTTPRequestHandler`` calls
        it.
        """
        if "/ping" not in str(values):
            print(f"serve: {format % values}", flush=True)


class Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    """A server on a Unix socket, with one thread per connection."""

    daemon_threads = True
    request_queue_size = 128  # the default of 5 refuses a burst of requests


def install_requirements(code: Path) -> None:
    """Install the requirements.txt in the user's folder ``code``, as AWS's toolkits do.

    Also put the folder first on sys.path, in place of the running script's folder.
    """
    requirements = code / "requirements.txt"
    if requirements.is_file():  # as sagemaker_inference.model_server does
        pip = [sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check"]
        subprocess.run([*pip, "-r", str(requirements)], check=True)
    sys.path[0] = str(code)


def serve_requests(answer: Callable[[bytes, dict[str, str]], Answer]) -> None:
    """Serve requests with ``answer(body, headers)`` on the socket named by the script's argument.

    Call it when the model is loaded: /ping must not respond earlier.
    """
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    Handler.answer = staticmethod(answer)
    with Server(sys.argv[1], Handler) as server:
        server.serve_forever()
