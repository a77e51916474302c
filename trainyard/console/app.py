"""The console's application: its pages, and what they show of errors."""

import hashlib
from importlib import import_module
from pkgutil import iter_modules

from flask import Flask, redirect, render_template, url_for
from jinja2 import StrictUndefined
from werkzeug.exceptions import HTTPException, InternalServerError
from werkzeug.wrappers import Response

from trainyard.common.errors import TrainyardError
from trainyard.console import live, pages, wording
from trainyard.console.account import Account
from trainyard.console.application import NONE, Application
from trainyard.console.security import guard

LONGEST_FORM = 1 << 20
"""Bytes of what a browser may send."""


def create(account: Account, key: str, application: Application = NONE) -> Flask:
    """The console of one account, for who has the key, with what ``application`` brings."""
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
    app.extensions["trainyard-hub"] = live.Hub(app, account.seconds, account.ended)
    app.jinja_env.filters |= wording.FILTERS
    app.jinja_env.globals |= {
        "account": account,
        "lasting": wording.lasting,
        "costing": wording.costing,
    }
    guard(app, key)
    app.register_blueprint(live.events)
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
    """What the service refuses, as a page that says so."""
    return render_template("error.html.j2", title="Not to be had", said=str(error)), 502


def _http(error: Exception) -> tuple[str, int]:
    assert isinstance(error, HTTPException)  # what it is registered for
    status = error.code or 500
    title = f"{status} {error.name}"
    return render_template("error.html.j2", title=title, said=error.description or ""), status


def _defect(error: Exception) -> tuple[str, int]:
    """What the console's own defect shows; Flask has logged the traceback."""
    said = "This is a defect of the console. What it is stands where the console was started."
    return render_template("error.html.j2", title="This page failed", said=said), 500
