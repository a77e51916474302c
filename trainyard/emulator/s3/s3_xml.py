"""S3's XML, written and read."""

import re
from collections.abc import Iterable
from datetime import datetime
from typing import TypeAlias
from xml.etree import ElementTree

from werkzeug import Response as AnyResponse

from trainyard.emulator.request_scope import ApiError, S3Error

ElementTree.register_namespace("xsi", "http://www.w3.org/2001/XMLSchema-instance")
NAMESPACE = "http://s3.amazonaws.com/doc/2006-03-01/"
_PREFIX = f"{{{NAMESPACE}}}"
ILLEGAL = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that XML 1.0 cannot hold but a key can: listings then use url encoding."""


class Response(AnyResponse):
    """A response without a default Content-Type: S3 sends none without a document."""

    default_mimetype = None


OWNER = [("ID", "emulator"), ("DisplayName", "emulator")]
"""Owner of every bucket and object."""

Tree: TypeAlias = "Iterable[tuple[str, str | int | bool | Tree] | ElementTree.Element]"
"""Children in order: (tag, text) or (tag, children), or a finished element."""


def document(tag: str, children: "Tree | str", status: int = 200) -> Response:
    """Return a document with these children, or with a text alone."""
    root = ElementTree.Element(tag, xmlns=NAMESPACE)
    if isinstance(children, str):
        root.text = children
    else:
        _fill(root, children)
    body = ElementTree.tostring(root, encoding="utf-8", xml_declaration=True)
    return Response(body, status, content_type="application/xml")


def error(failure: ApiError, resource: str, request_id: str = "") -> Response:
    children = [("Code", failure.code), ("Message", failure.message)]
    more = failure if isinstance(failure, S3Error) else None
    children += list(more.fields.items()) if more else []
    children.append(("Resource", resource))
    children += [("RequestId", request_id)] if request_id else []
    root = ElementTree.Element("Error")  # S3's errors carry no namespace
    _fill(root, children)
    body = ElementTree.tostring(root, encoding="utf-8", xml_declaration=True)
    headers = more.headers if more else {}
    return Response(body, failure.status, headers, content_type="application/xml")


MALFORMED_XML = (
    "The XML you provided was not well-formed or did not validate against our published schema"
)


def parse(body: bytes) -> ElementTree.Element:
    """Return the document with S3's namespace removed from its tags. Raises ``MalformedXML``."""
    try:
        root = ElementTree.fromstring(body)
    except ElementTree.ParseError as wrong:
        raise ApiError(
            "MalformedXML", f"The XML you provided is not well-formed: {wrong}"
        ) from wrong
    for element in root.iter():
        element.tag = element.tag.removeprefix(_PREFIX)
    return root


def text(element: ElementTree.Element, tag: str) -> str:
    """Return the text of a required child. Raises ``MalformedXML``."""
    value = element.findtext(tag)
    if value is None:
        raise ApiError("MalformedXML", f"{element.tag} lacks {tag}.")
    return value


def timestamp(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{moment.microsecond // 1000:03d}Z"


def _fill(parent: ElementTree.Element, children: Tree) -> None:
    for entry in children:
        if isinstance(entry, ElementTree.Element):
            parent.append(entry)
            continue
        tag, value = entry
        child = ElementTree.SubElement(parent, tag)
        if isinstance(value, bool):
            child.text = "true" if value else "false"
        elif isinstance(value, str | int):
            child.text = ILLEGAL.sub("\ufffd", str(value))
        else:
            _fill(child, value)
