"""Pages of named fragments of HTML.

While something goes on, a browser asks for the page again every few seconds, with the version that
it has: the answer is 304, or the page, whose changed fragments the script swaps.
"""

import hashlib
import re
from collections.abc import Mapping
from typing import Any

from flask import Response, g, make_response, render_template, request
from markupsafe import Markup

from trainyard.console.account_cache import account

Fragments = Mapping[str, str]  # id of an element → HTML inside it
EVERY = 2.0  # least seconds between two requests of a browser for one page
_COUNTER = re.compile(r"<span data-(?:paid-)?since=[^>]*>[^<]*")
"""Text that the browser counts on: it differs at each reading although nothing has changed."""


def answer(template: str, fragments: Fragments, *, goes_on: bool, **values: Any) -> Response:
    """Return the page, or status 304 if the browser has this version of it.

    The template extends ``page.html.j2`` and has ``{{ live("id") }}`` for each fragment, or ``{{
    still("id") }}`` for one that must not be replaced, such as a form being filled in.

    ``goes_on``: the browser asks again, as it does while a part is read in the background.
    """
    poll = int(1000 * max(EVERY, account().seconds)) if goes_on or g.get("unfinished") else 0
    digest = _digest(f"{poll}{fragments}")
    if request.if_none_match.contains(digest):
        return Response(status=304)

    def live(name: str) -> Markup:
        inner = Markup(fragments[name])  # made by a template, which has escaped it
        return Markup('<div id="{}" data-live="{}">{}</div>').format(name, _digest(inner), inner)

    def still(name: str) -> Markup:
        return Markup(fragments[name])

    html = render_template(template, live=live, still=still, poll=poll, digest=digest, **values)
    page = make_response(html)
    page.set_etag(digest)
    return page


def _digest(html: str) -> str:
    return hashlib.sha256(_COUNTER.sub("", html).encode()).hexdigest()[:12]
