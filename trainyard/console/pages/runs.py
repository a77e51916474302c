"""All executions of all pipelines: sorted, filtered, searched and paged by the address."""

from collections.abc import Hashable
from urllib.parse import urlencode

from flask import Blueprint, render_template, request, url_for
from flask.blueprints import BlueprintSetupState

from trainyard.console import live
from trainyard.console.index import Index, index
from trainyard.console.listing import ROWS, asked, listing
from trainyard.language.statuses import ENDED

page = Blueprint("runs", __name__)

STATUSES = ("Executing", "Stopping", *ENDED)


@page.record
def _remember(setup: BlueprintSetupState) -> None:
    """Each application has its own index."""
    setup.app.extensions["trainyard-index"] = Index(setup.app.extensions["trainyard-account"])


def _stamp() -> Hashable:
    index().look()
    return index().version


@live.page(page, "/runs", template="runs.html.j2", stamp=_stamp)
def runs() -> live.Fragments:
    """What was read so far, and the runs that the address asks for."""
    index().look()
    query = asked(request.args)
    found = listing(index(), query)
    shown = {"listing": found, "query": query, "index": index(), "address": address}
    return {
        "progress": render_template("runs/progress.html.j2", **shown),
        "form": render_template("runs/form.html.j2", **shown, statuses=STATUSES, row_counts=ROWS),
        "runs": render_template("runs/table.html.j2", **shown),
    }


def address(**changes: str | int) -> str:
    """The page's address with other arguments, and its first page unless they name one."""
    args = request.args.to_dict(flat=False) | {"page": []}
    args |= {name: [str(value)] for name, value in changes.items()}
    given = {name: filled for name, values in args.items() if (filled := [*filter(None, values)])}
    return f"{url_for('runs.runs')}?{urlencode(given, doseq=True)}"
