"""The console's server: it listens on loopback only, and each browser needs the console's key.

The key is sent once, in the address that ``trainyard console`` prints, and is kept as a cookie, so
that an address copied from the browser contains no secret. A page of another site has no access:
its Origin is refused, and the browser does not send the cookie with its requests.
"""

import contextlib
import hashlib
import hmac
import logging
import threading
from collections.abc import Iterator
from importlib import import_module
from pkgutil import iter_modules
from typing import Any
from urllib.parse import urlsplit

from flask import Flask, Request, redirect, render_template, request, url_for
from jinja2 import StrictUndefined
from werkzeug.exceptions import Forbidden, HTTPException, InternalServerError
from werkzeug.serving import BaseWSGIServer, WSGIRequestHandler, make_server
from werkzeug.wrappers import Response

from trainyard.common.errors import ServiceError, TrainyardError
from trainyard.console import outcomes, pages
from trainyard.console.account_cache import Account
from trainyard.console.app_hooks import NONE, Application

HOSTS = ("127.0.0.1", "localhost")
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src "
    "'self' data:; connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",  # no-referrer would make forms send Origin: null
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


def refuse_foreign_requests(app: Flask, key: str) -> None:
    """Make the app refuse requests without ``key``, and requests from or for another site.

    Such requests get status 403. A browser sends ``key`` once, as the query parameter ``key``;
    after that it sends a cookie.
    """

    @app.before_request
    def admit_request() -> Response | None:
        """Return None to admit the request, or the redirect after a browser has sent ``key``."""
        _refuse_foreign(request)
        # Browsers share cookies between ports, so the port is part of the cookie's name.
        cookie = f"trainyard-{request.host.rpartition(':')[2]}"
        token = hmac.new(key.encode(), cookie.encode(), hashlib.sha256).hexdigest()
        # Encoded to bytes, because compare_digest refuses text that is not ASCII.
        if hmac.compare_digest(request.args.get("key", "").encode(), key.encode()):
            # Redirect to the address without the key: people copy addresses from the browser.
            parts = request.query_string.decode().split("&")
            rest = "&".join(part for part in parts if part[:4] != "key=")
            answer = redirect(f"{request.path}?{rest}" if rest else request.path)
            answer.set_cookie(cookie, token, httponly=True, samesite="Strict")
            return answer
        if not hmac.compare_digest(request.cookies.get(cookie, "").encode(), token.encode()):
            raise Forbidden("Open the address that trainyard console printed: it has the key.")
        return None

    @app.after_request
    def add_headers(answer: Response) -> Response:
        """Add ``HEADERS`` to every response that does not set them itself."""
        for name, value in HEADERS.items():
            answer.headers.setdefault(name, value)
        return answer


def _refuse_foreign(http_request: Request) -> None:
    """Raise Forbidden (status 403) if the request's Host or Origin is not the console's own."""
    if urlsplit(f"//{http_request.host}").hostname not in HOSTS:
        raise Forbidden(f"Only this machine is served, not {http_request.host}.")
    origin = http_request.headers.get("Origin")
    if origin not in (None, http_request.host_url.rstrip("/")):
        raise Forbidden(f"Pages of {origin} are not served.")
    if http_request.method not in ("GET", "HEAD") and origin is None:
        raise Forbidden("Only the console's own pages may change something.")


LOOPBACK = "127.0.0.1"


class Handler(WSGIRequestHandler):
    """Keeps connections alive, and does not log requests, because addresses may contain the key."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        """Log nothing."""


@contextlib.contextmanager
def serve_console(
    account: Account, key: str, port: int = 0, application: Application = NONE
) -> Iterator[str]:
    """Serve the console until the ``with`` block ends; yield its address, which includes the key.

    When the block ends, background reads stop, too.

    Args:
        account: account that the console shows.
        key: key that browsers have to send.
        port: port to listen on; 0 for any free port.
        application: the application's own parts of the pages.

    Raises:
        ServiceError: the port cannot be listened on.
    """
    logging.getLogger("werkzeug").setLevel(logging.WARNING)
    app = create_console_app(account, key, application)
    # Before the first request, so that the clients use the environment as it is now.
    account.connect()
    server = _open_server(app, port)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://{LOOPBACK}:{server.server_port}/?key={key}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
        account.close()


def _open_server(app: Flask, port: int) -> BaseWSGIServer:
    """Return a server that is listening on ``port``; raise ServiceError if that is not possible."""
    try:
        server = make_server(LOOPBACK, port, app, threaded=True, request_handler=Handler)
    # werkzeug calls sys.exit if the port is in use.
    except (SystemExit, OSError) as error:
        raise ServiceError(f"--port {port}: cannot serve on {LOOPBACK}:{port}: {error}") from None
    server.daemon_threads = True  # type: ignore[attr-defined]  # attribute of ThreadingMixIn
    return server


LONGEST_FORM = 1 << 20  # maximum bytes of a form that the server accepts


def create_console_app(account: Account, key: str, application: Application = NONE) -> Flask:
    """Return the Flask app of the console for one account, with the parts of ``application``.

    It answers only browsers that have sent ``key``.
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
    app.jinja_env.filters |= outcomes.FILTERS
    # Any, because the declared type allows only the names that Jinja itself defines.
    names: Any = app.jinja_env.globals
    names.update(account=account, lasting=outcomes.render_duration)
    names.update(costing=outcomes.render_cost)
    refuse_foreign_requests(app, key)
    for module in iter_modules(pages.__path__):
        app.register_blueprint(import_module(f"{pages.__name__}.{module.name}").page)
    app.add_url_rule("/", "home", lambda: redirect(url_for("runs.show_runs")))
    app.register_error_handler(
        TrainyardError, lambda error: _render_error("Not available", error, 502)
    )
    app.register_error_handler(HTTPException, _show_http_error)
    app.register_error_handler(InternalServerError, _show_defect)
    return app


def _render_error(title: str, message: object, status: int) -> tuple[str, int]:
    return render_template("error.html.j2", title=title, said=str(message)), status


def _show_http_error(error: Exception) -> tuple[str, int]:
    """Show an HTTP error such as 404 as a page."""
    assert isinstance(error, HTTPException)  # the handler is registered for this class only
    status = error.code or 500
    return _render_error(f"{status} {error.name}", error.description or "", status)


def _show_defect(error: Exception) -> tuple[str, int]:
    """Show a page that says that the console itself failed; Flask has logged the traceback."""
    message = "This is a defect of the console. The terminal that started it shows the traceback."
    return _render_error("This page failed", message, 500)
