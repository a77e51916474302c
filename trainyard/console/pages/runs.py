"""All executions of all pipelines: sorted, filtered, searched and paged by the address."""

import time
from collections.abc import Hashable
from typing import Any
from urllib.parse import urlencode

from flask import Blueprint, render_template, request, url_for
from flask.blueprints import BlueprintSetupState

from trainyard.console import live
from trainyard.console.costs import GOOD, Costs, costs
from trainyard.console.index import Index, index
from trainyard.console.listing import COLUMNS, MORE, PARAMETER, ROWS, Listing, asked, listing
from trainyard.language.statuses import ENDED

page = Blueprint("runs", __name__)

STATUSES = ("Executing", "Stopping", *ENDED)


@page.record
def _remember(setup: BlueprintSetupState) -> None:
    """Each application has its own index and costs."""
    of = setup.app.extensions["trainyard-account"]
    setup.app.extensions["trainyard-index"] = Index(of)
    setup.app.extensions["trainyard-costs"] = Costs(of)


def _stamp() -> Hashable:
    index().look()
    return index().version, costs().version, time.monotonic() // GOOD


@live.page(page, "/runs", template="runs.html.j2", stamp=_stamp)
def runs() -> live.Fragments:
    """What was read so far, and the runs that the address asks for."""
    index().look()
    query = asked(request.args)
    found = listing(index(), query, lambda arn, run: _usd(arn))
    for arn, run in reversed(found.runs):  # what is wanted last is read first
        costs().want(arn, run)
    shown = {"listing": found, "query": query, "index": index(), "address": address}
    return {
        "progress": render_template("runs/progress.html.j2", **shown),
        "form": render_template("runs/form.html.j2", **shown, **_choices(found)),
        "runs": render_template("runs/table.html.j2", **shown, cost=costs().known),
    }


def _usd(arn: str) -> float | None:
    found = costs().known(arn)
    return found.usd if found else None


def _choices(found: Listing) -> dict[str, Any]:
    """What the form offers beside what the address says."""
    parameters = [f"{PARAMETER}{name}" for name in found.parameters]
    chosen = [name for name in found.columns if name not in (*COLUMNS, *MORE, *parameters)]
    return {
        "statuses": STATUSES,
        "row_counts": ROWS,
        "offered": [*COLUMNS, *MORE, *parameters, *chosen],
    }


def address(**changes: str | int) -> str:
    """The page's address with other arguments, and its first page unless they name one."""
    args = request.args.to_dict(flat=False) | {"page": []}
    args |= {name: [str(value)] for name, value in changes.items()}
    given = {name: filled for name, values in args.items() if (filled := [*filter(None, values)])}
    return f"{url_for('runs.runs')}?{urlencode(given, doseq=True)}"
