"""The page of a run as a single file, which needs no server, script or network.

This is a separate module because it builds an app, which imports every page.
"""

import re
from importlib.resources import files
from pathlib import Path

from flask import render_template
from markupsafe import Markup

from trainyard.common import atomic_file
from trainyard.common.errors import ServiceError
from trainyard.console.account_cache import A_DAY, Account
from trainyard.console.app_hooks import METRICS, Panels
from trainyard.console.pages.run import (
    Overview,
    execution_url_variables,
    read_run,
    render_fragments,
)
from trainyard.console.web_server import create_console_app

_NOT_THERE = re.compile(
    r' href="/[^"]*"|<button\b.*?</button>|<ul class="actions">.*?</ul>', re.DOTALL
)
"""Elements that a file cannot have: links to the console's other pages, and buttons that need the
script. Texts contain no quotes or angle brackets, because they are escaped."""


def write_frozen_page(
    arn: str, out: Path, panels: Panels = (METRICS,), region: str | None = None
) -> None:
    """Write the page of an execution to ``out``, atomically."""
    atomic_file.write_file(out, render_page(arn, panels, region))


def render_page(arn: str, panels: Panels = (METRICS,), region: str | None = None) -> str:
    """Return the page of an execution in its current state, as HTML."""
    address = execution_url_variables(arn)
    if address is None:
        raise ServiceError(f"{arn}: expected arn:…:pipeline/<name>/execution/<id>")
    account = Account(region or arn.split(":")[3], patient=True)
    # Cached under the key of ``Account.find_execution``, which would first ask for the pipeline's
    # ARN.
    account.read_cached(
        ("execution", *address.values()), lambda: account.open_execution(arn), A_DAY
    )
    run = read_run(account, **address, panels=panels)
    return render_frozen_page(run, account)


def render_frozen_page(run: Overview, account: Account) -> str:
    """Return the run as one HTML document."""
    app = create_console_app(account, "")
    style = (files("trainyard.console") / "static/console.css").read_text(encoding="utf-8")
    with app.test_request_context():
        parts = render_fragments(run)
        html = render_template(
            "run.html.j2",
            live=lambda name: Markup(f"<div>{parts[name]}</div>"),  # escaped by its template
            frozen=Markup(style),
            pipeline=run.pipeline,
            execution=run.execution,
        )
    return _NOT_THERE.sub("", html)
