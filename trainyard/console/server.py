"""The console's server: loopback only, a thread for each request."""

import contextlib
import logging
import threading
from collections.abc import Iterator

from flask import Flask
from werkzeug.serving import BaseWSGIServer, WSGIRequestHandler, make_server

from trainyard.common.errors import ServiceError
from trainyard.console.account import Account
from trainyard.console.app import create
from trainyard.console.application import NONE, Application

LOOPBACK = "127.0.0.1"
FIRST = ("page.html", "runs.html", "runs/")
"""Beginnings of the templates of the page that opens first."""


class Handler(WSGIRequestHandler):
    """Keeps connections alive, and is silent about what is asked: addresses may hold the key."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        """Say nothing."""


@contextlib.contextmanager
def serving(
    account: Account, key: str, port: int = 0, application: Application = NONE
) -> Iterator[str]:
    """Serve until the block ends; yields the address with the key. Port 0 is any free one.

    With the block ends what follows pages and reads in the background for them.

    ``panels``: what an application shows of its runs on the pages.

    Raises:
        ServiceError: the port is in use, or there is no region.
    """
    logging.getLogger("werkzeug").setLevel(logging.WARNING)
    app = create(account, key, application)
    _prepare(app, account)
    server = _listening(app, port)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://{LOOPBACK}:{server.server_port}/?key={key}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
        app.extensions["trainyard-hub"].close()


def _prepare(app: Flask, account: Account) -> None:
    """Make what takes long and what the first page needs: nobody waits for it then."""
    account.connect()
    for name in app.jinja_env.list_templates(filter_func=lambda name: name.startswith(FIRST)):
        app.jinja_env.get_template(name)  # compiled


def _listening(app: Flask, port: int) -> BaseWSGIServer:
    try:
        server = make_server(LOOPBACK, port, app, threaded=True, request_handler=Handler)
    except (SystemExit, OSError) as error:  # werkzeug exits when the port is in use
        raise ServiceError(f"--port {port}: cannot serve on {LOOPBACK}:{port}: {error}") from None
    server.daemon_threads = True  # type: ignore[attr-defined]  # ThreadingMixIn's
    return server
