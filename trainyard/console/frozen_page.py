"""The page of a run, frozen into one file that needs nothing else: no server, script or network."""

import re
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path

from flask import render_template
from markupsafe import Markup

from trainyard.common import atomic_file
from trainyard.common.errors import ServiceError
from trainyard.console import run_reading
from trainyard.console.account_cache import Account
from trainyard.console.pages.run import fragments
from trainyard.console.panels import METRICS, Panels
from trainyard.console.run_overview import Overview, place
from trainyard.console.web_server import create
from trainyard.runs.run_summary import LOG_TAIL, last_words

_NOT_THERE = re.compile(
    r' href="/[^"]*"|<button\b.*?</button>|<ul class="actions">.*?</ul>', re.DOTALL
)
"""What a file has not: the console's other pages, and what its script does. Texts have no quotes
or angle brackets of their own: they are escaped."""

Logs = Mapping[str, Mapping[str, Sequence[str]]]
"""Title of a failed step → host → the last lines that the job wrote there."""


def write(arn: str, out: Path, panels: Panels = (METRICS,), region: str | None = None) -> None:
    """Write the page of an execution to ``out``; never half of it.

    Raises:
        ServiceError: there is no such execution, or AWS cannot be reached.
    """
    atomic_file.write(out, page(arn, panels, region))


def page(arn: str, panels: Panels = (METRICS,), region: str | None = None) -> str:
    """The page of an execution as it is now.

    Raises:
        ServiceError: there is no such execution, or AWS cannot be reached.
    """
    where = place(arn)
    if where is None:
        raise ServiceError(f"{arn}: expected arn:…:pipeline/<name>/execution/<id>")
    account = Account(region or arn.split(":")[3], patient=True)
    one = account.known_execution(arn, **where)
    run = run_reading.read(account, **where, panels=panels)
    logs = {
        step.title: {h: last_words(lines) for h, lines in one.last_lines(step, LOG_TAIL).items()}
        for step in run.snapshot.steps
        if step.status == "Failed"
    }
    return render(run, logs, account)


def render(run: Overview, logs: Logs, account: Account) -> str:
    """What was read, as one HTML document."""
    app = create(account, "")
    style = (files(__package__) / "static/console.css").read_text(encoding="utf-8")
    with app.test_request_context():
        found = fragments(run)
        html = render_template(
            "run.html.j2",
            live=lambda name: Markup(f"<div>{found[name]}</div>"),  # of a template, which escapes
            frozen=Markup(style),
            pipeline=run.pipeline,
            execution=run.execution,
            logs=logs,
        )
    return _NOT_THERE.sub("", html)
