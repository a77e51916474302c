"""The console's server: loopback only, a thread for each request."""

import contextlib
import hashlib
import logging
import threading
from collections.abc import Iterator
from importlib import import_module
from pkgutil import iter_modules

from flask import Flask, redirect, render_template, url_for
from jinja2 import StrictUndefined
from werkzeug.exceptions import HTTPException, InternalServerError
from werkzeug.serving import BaseWSGIServer, WSGIRequestHandler, make_server
from werkzeug.wrappers import Response

from trainyard.common.errors import ServiceError, TrainyardError
from trainyard.console import live_pages, pages, template_filters
from trainyard.console.account_cache import Account
from trainyard.console.app_hooks import NONE, Application
from trainyard.console.security import guard

LOOPBACK = "127.0.0.1"
FIRST = ("page.html", "runs.html", "runs/")
"""Prefixes of the templates of the page that opens first."""


class Handler(WSGIRequestHandler):
    """Keeps connections alive, and does not log requests: addresses may contain the key."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        """Log nothing."""


@contextlib.contextmanager
def serving(
    account: Account, key: str, port: int = 0, application: Application = NONE
) -> Iterator[str]:
    """Serve until the block ends; yield the address with the key. Port 0 means any free port.

    When the block ends, following of pages and readings in the background end, too.

    ``application``: the application's own parts of the pages.

    Raises:
        ServiceError: the port is in use, or the region is missing.
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
    """Prepare slow parts that the first page needs."""
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


LONGEST_FORM = 1 << 20
"""Most bytes of a form that a browser may send."""


def create(account: Account, key: str, application: Application = NONE) -> Flask:
    """Return the console of one account, for users with the key, with the parts of
    ``application``.
    """
    app = Flask(__name__)
    app.secret_key = hashlib.sha256(f"forms {key}".encode()).digest()
    app.config["MAX_CONTENT_LENGTH"] = LONGEST_FORM
    app.jinja_options = {
        "trim_blocks": True,
        "lstrip_blocks": True,
        "undefined": StrictUndefined,
        "autoescape": True,
    }
    app.extensions["trainyard-account"] = account
    app.extensions["trainyard-application"] = application
    app.extensions["trainyard-hub"] = live_pages.Hub(app, account.seconds, account.ended)
    app.jinja_env.filters |= template_filters.FILTERS
    app.jinja_env.globals |= {
        "account": account,
        "lasting": template_filters.lasting,
        "costing": template_filters.costing,
    }
    guard(app, key)
    app.register_blueprint(live_pages.events)
    for module in iter_modules(pages.__path__):
        app.register_blueprint(import_module(f"{pages.__name__}.{module.name}").page)
    app.add_url_rule("/", "home", _home)
    app.register_error_handler(TrainyardError, _refused)
    app.register_error_handler(HTTPException, _http)
    app.register_error_handler(InternalServerError, _defect)
    return app


def _home() -> Response:
    return redirect(url_for("runs.runs"))


def _refused(error: Exception) -> tuple[str, int]:
    """Show a page with the service's refusal."""
    return render_template("error.html.j2", title="Not available", said=str(error)), 502


def _http(error: Exception) -> tuple[str, int]:
    assert isinstance(error, HTTPException)  # what it is registered for
    status = error.code or 500
    title = f"{status} {error.name}"
    return render_template("error.html.j2", title=title, said=error.description or ""), status


def _defect(error: Exception) -> tuple[str, int]:
    """Show a page for the console's own defect; Flask has logged the traceback."""
    said = "This is a defect of the console. The terminal that started it shows the traceback."
    return render_template("error.html.j2", title="This page failed", said=said), 500
