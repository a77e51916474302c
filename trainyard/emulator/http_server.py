"""The emulator's HTTP/1.1 server: werkzeug's threaded server, but with connections kept alive.

werkzeug's own handler closes the connection after every response, because it cannot know where the
next request starts if an application has not read the whole body. Here the body is a stream that
ends by itself. What is left of it is read, or the connection is closed.
"""

import contextlib
import errno
import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Iterable
from typing import IO, cast
from wsgiref.types import WSGIApplication, WSGIEnvironment

from werkzeug.exceptions import ClientDisconnected
from werkzeug.serving import ThreadedWSGIServer, WSGIRequestHandler
from werkzeug.wsgi import LimitedStream

from trainyard.common.errors import EmulatorError
from trainyard.emulator.iam.access_keys import CREDENTIALS_PATH
from trainyard.emulator.request_scope import ApiError

log = logging.getLogger(__name__)

LOOPBACK = "127.0.0.1"

_DRAIN = 1 << 20  # maximum unread bytes of a body that are read to keep the connection
_POLL = 0.1  # seconds between checks whether to stop
_LINGER = 5  # seconds that running requests have to end when the server stops
_IDLE = 120  # seconds after which an idle connection is closed


class Server(ThreadedWSGIServer):
    """HTTP server on loopback only. ``start`` serves in a thread; ``stop`` closes every connection.

    Raises :class:`EmulatorError` if it cannot listen on the port.
    """

    def __init__(self, app: WSGIApplication, port: int) -> None:
        self.connections: set[socket.socket] = set()
        with _open_listener(
            port
        ) as listening:  # werkzeug itself would print and exit on a busy port
            host, number = listening.getsockname()
            super().__init__(host, number, app, Handler, fd=listening.fileno())
        self._thread = threading.Thread(
            target=self.serve_forever, args=(_POLL,), name="emulator", daemon=True
        )

    def start(self) -> None:
        self._thread.start()

    def serve_socket(self, listening: socket.socket) -> None:
        """Also serve connections to the socket ``listening``, until it is shut down or closed.

        The socket may belong to another network, which is that of a job.
        """
        threading.Thread(target=self._accept_connections, args=(listening,), daemon=True).start()

    def _accept_connections(self, listening: socket.socket) -> None:
        """Accept and serve connections until the socket is shut down or closed."""
        while True:
            try:
                connection, address = listening.accept()
            except OSError as failure:
                if failure.errno not in (errno.EMFILE, errno.ENFILE, errno.ECONNABORTED):
                    return  # shut down: the job has ended
                time.sleep(_POLL)  # until a descriptor is free
                continue
            self.process_request(connection, address)

    def stop(self) -> None:
        """Stop serving, and close all connections; wait up to ``_LINGER`` seconds for requests."""
        self.shutdown()
        self.server_close()
        deadline = time.monotonic() + _LINGER
        while self.connections and time.monotonic() < deadline:
            for connection in list(self.connections):
                with contextlib.suppress(OSError):  # the client has already closed it
                    connection.shutdown(socket.SHUT_RDWR)
            time.sleep(0.01)
        self._thread.join()


def _open_listener(port: int) -> socket.socket:
    try:
        return socket.create_server((LOOPBACK, port), backlog=128)
    except (OSError, OverflowError) as failure:
        number = getattr(failure, "errno", None)
        reason = os.strerror(number) if number else failure
        raise EmulatorError(
            f"cannot serve on {LOOPBACK}:{port}: {reason}; choose another --port, or omit it"
        ) from failure


UNDERSCORE_HEADERS = "trainyard.underscored_headers"
"""Key of the WSGI environment with (name, value) of each header that has an underscore in its
name.
"""


class Handler(WSGIRequestHandler):
    """Handle the requests of one connection."""

    server: Server
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # head and body are two writes; Nagle would delay the second
    timeout = _IDLE

    def setup(self) -> None:
        super().setup()
        self.server.connections.add(self.connection)

    def make_environ(self) -> WSGIEnvironment:
        """Return the WSGI environment. ``UNDERSCORE_HEADERS`` in it has the headers that werkzeug
        leaves out.

        CGI cannot distinguish ``run_id`` from ``run-id``. Clients of S3 can, and they sign the
        former.
        """
        headers = [(name, value) for name, value in self.headers.items() if "_" in name]
        return super().make_environ() | {UNDERSCORE_HEADERS: headers}

    def finish(self) -> None:
        self.server.connections.discard(self.connection)
        super().finish()

    def run_wsgi(self) -> None:
        """Handle one request; werkzeug calls this. The connection stays open if possible."""
        environ = self.make_environ()
        body = self._open_body(environ)
        answer: list[tuple[str, list]] = []

        def start_response(status: str, headers: list, exc_info: object = None) -> Callable:
            answer[:] = [(status, headers)]
            return self.wfile.write

        parts = self.server.app(environ, start_response)
        try:
            self._send(*answer[0], parts)
        except ApiError as failure:  # too late for an error response: the response stays incomplete
            log.error("%s %s was interrupted: %s", self.command, self.path, failure)
            self.close_connection = True
        finally:
            if hasattr(parts, "close"):
                parts.close()
        self._drain_body(body)

    def _open_body(self, environ: dict) -> LimitedStream | None:
        """Return the body as a stream that ends after Content-Length bytes. Return None for a
        chunked body, whose stream ends by itself.
        """
        if environ.get("wsgi.input_terminated"):
            self.close_connection = True
            return None
        length = self.headers.get("Content-Length", "0")
        body = LimitedStream(cast(IO[bytes], self.rfile), int(length) if length.isdecimal() else 0)
        environ["wsgi.input"], environ["wsgi.input_terminated"] = body, True
        return body

    def _send(self, status: str, headers: list[tuple[str, str]], parts: Iterable[bytes]) -> None:
        code, _, reason = status.partition(" ")
        self.send_response(int(code), reason)
        names = {name.lower() for name, _ in headers}
        for name, value in headers:
            self.send_header(name, value)
        bodiless = self.command == "HEAD" or code in ("204", "304")
        if "content-length" not in names and not bodiless:
            self.close_connection = True
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        if not bodiless:
            for part in parts:
                self.wfile.write(part)

    def _drain_body(self, body: LimitedStream | None) -> None:
        """Read the rest of the body to keep the connection open. Close it if the rest is long."""
        if body is None or self.close_connection:
            return
        if body.limit - body.tell() > _DRAIN:
            self.close_connection = True
            return
        try:
            body.exhaust()
        except ClientDisconnected:  # the client sent a length and disconnected
            self.close_connection = True

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        """Log the request at debug level, without the secret in the path of credentials."""
        line = self.requestline
        if self.path.startswith(CREDENTIALS_PATH):
            line = f"{self.command} {CREDENTIALS_PATH}..."  # the rest of it is a secret
        log.debug("%s %s", line, code)

    def log_error(self, format: str, *args: object) -> None:
        """Log at debug level, because the messages (a client sent nothing for a while, or no HTTP)
        require no action.
        """
        log.debug(format, *args)

    def log(self, type: str, message: str, *args: object) -> None:
        log.log(logging.ERROR if type == "error" else logging.INFO, message, *args)
