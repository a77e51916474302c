"""What lies in S3: a listing, and a preview of one object. Nothing of it is ever a document."""

from flask import Blueprint, Response, render_template, request
from werkzeug.exceptions import NotFound, UnsupportedMediaType

from trainyard.console.account import account
from trainyard.console.objects.preview import picture_type, preview
from trainyard.console.objects.reading import beginning, listing

page = Blueprint("objects", __name__)

SANDBOX = "default-src 'none'; sandbox; frame-ancestors 'none'"
"""A picture runs nothing and loads nothing, should somebody open it by its own address."""


@page.get("/object")
def show() -> str:
    """The object at ``?uri=``, or the list of those that are under it."""
    here, uri = account(), request.args.get("uri", "")
    after = request.args.get("after", "")
    if not uri.endswith("/") and not after and (found := beginning(here, uri)):
        shown = preview(found)
        return render_template("objects/object.html.j2", uri=uri, found=found, shown=shown)
    return render_template("objects/listing.html.j2", uri=uri, listing=listing(here, uri, after))


@page.get("/image")
def image() -> Response:
    """The picture at ``?uri=``: PNG, JPEG, GIF or WebP by its first bytes, and nothing else."""
    uri = request.args.get("uri", "")
    found = beginning(account(), uri)
    if found is None:
        raise NotFound(f"There is no object {uri}.")
    kind = picture_type(found.data)
    if kind is None or not found.is_whole:
        raise UnsupportedMediaType(f"{uri} is no picture of at most 1 MiB that is shown here.")
    headers = {"Content-Security-Policy": SANDBOX, "X-Content-Type-Options": "nosniff"}
    return Response(found.data, mimetype=kind, headers=headers)
