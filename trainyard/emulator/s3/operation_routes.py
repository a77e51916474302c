"""The table of methods that handle operations, and the parts of requests that each respects.

Each method registers itself with the decorator :func:`operation`. A request with any other part (a
parameter or a header) is refused before anything happens, with an error that names that part,
because a response that ignores it would be wrong.
"""

import functools
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, TypeAlias
from urllib.parse import parse_qsl, urlsplit
from xml.etree import ElementTree

import botocore.session
from botocore.model import OperationModel
from werkzeug import Request
from werkzeug import Response as AnyResponse

from trainyard.emulator.request_scope import ApiError, S3Error

# Writing and reading S3's XML.

NAMESPACE = "http://s3.amazonaws.com/doc/2006-03-01/"
_PREFIX = f"{{{NAMESPACE}}}"
ILLEGAL = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that a key can contain but XML 1.0 cannot: listings then use url encoding."""


class Response(AnyResponse):
    """A response without a default Content-Type, because S3 sends none without a document."""

    default_mimetype = None


OWNER = [("ID", "emulator"), ("DisplayName", "emulator")]
"""Owner of every bucket and object."""

Tree: TypeAlias = "Iterable[tuple[str, str | int | bool | Tree]]"
"""Children in order: (tag, text) or (tag, children)."""


def make_xml_response(tag: str, children: "Tree | str", status: int = 200) -> Response:
    """Return a response with an XML document that has these children, or only a text."""
    root = ElementTree.Element(tag, xmlns=NAMESPACE)
    if isinstance(children, str):
        root.text = children
    else:
        _append_children(root, children)
    body = ElementTree.tostring(root, encoding="utf-8", xml_declaration=True)
    return Response(body, status, content_type="application/xml")


def make_error_response(failure: ApiError, resource: str, request_id: str = "") -> Response:
    """Return the response to a failed request, as S3's error document."""
    children = [("Code", failure.code), ("Message", failure.message)]
    more = failure if isinstance(failure, S3Error) else None
    children += list(more.fields.items()) if more else []
    children.append(("Resource", resource))
    children += [("RequestId", request_id)] if request_id else []
    root = ElementTree.Element("Error")  # S3's error documents have no namespace
    _append_children(root, children)
    body = ElementTree.tostring(root, encoding="utf-8", xml_declaration=True)
    headers = more.headers if more else {}
    return Response(body, failure.status, headers, content_type="application/xml")


MALFORMED_XML = (
    "The XML you provided was not well-formed or did not validate against our published schema"
)


def parse_xml(body: bytes) -> ElementTree.Element:
    """Return the parsed document, with S3's namespace removed from its tags.

    Raises ``MalformedXML``.
    """
    try:
        root = ElementTree.fromstring(body)
    except ElementTree.ParseError as wrong:
        raise ApiError(
            "MalformedXML", f"The XML you provided is not well-formed: {wrong}"
        ) from wrong
    for element in root.iter():
        element.tag = element.tag.removeprefix(_PREFIX)
    return root


def read_child_text(element: ElementTree.Element, tag: str) -> str:
    """Return the text of a required child. Raises ``MalformedXML`` if the child is missing."""
    value = element.findtext(tag)
    if value is None:
        raise ApiError("MalformedXML", f"{element.tag} lacks {tag}.")
    return value


def format_timestamp(timestamp: datetime) -> str:
    return timestamp.strftime("%Y-%m-%dT%H:%M:%S.") + f"{timestamp.microsecond // 1000:03d}Z"


def _append_children(parent: ElementTree.Element, children: Tree) -> None:
    """Append the children to the element ``parent``."""
    for tag, value in children:
        child = ElementTree.SubElement(parent, tag)
        if isinstance(value, bool):
            child.text = "true" if value else "false"
        elif isinstance(value, str | int):
            child.text = ILLEGAL.sub("\ufffd", str(value))
        else:
            _append_children(child, value)


# The operations of S3; botocore's model of the service says which one a request means.
#
# S3 distinguishes operations by names in the query: ``DELETE /bucket?metadataTable`` is another
# operation than ``DELETE /bucket``. The model contains all of them, so an unsupported operation is
# refused under its own name, and is never mistaken for the plain one.

Level = Literal["service", "bucket", "object"]


@dataclass(frozen=True, slots=True)
class Operation:
    """An operation of S3, and what identifies it in a request."""

    name: str
    """Name of the operation, e.g. ``GetObject``."""
    static: tuple[tuple[str, str], ...] = ()
    """Fixed names in the query, each with its value; an empty value means any value."""
    query: frozenset[str] = frozenset()
    """Further names that the query must contain."""
    headers: frozenset[str] = frozenset()
    """Headers that distinguish it from other operations on the same path."""

    def fits(self, request: Request) -> bool:
        args = request.args
        return (
            all(k in args and v in ("", args[k]) for k, v in self.static)
            and all(name in args for name in self.query)
            and all(name in request.headers for name in self.headers)
        )

    def count_conditions(self) -> int:
        """Return the number of conditions.

        If several operations fit a request, the one with the most conditions is meant.
        """
        return len(self.static) + len(self.query) + len(self.headers)


def find_operation(level: Level, request: Request) -> Operation | None:
    """Return the operation that a request asks for; None if S3 has none for that method and level.

    A client may name the operation by ``x-id``; without it S3's own rule decides.
    """
    fitting = [
        candidate
        for candidate in _build_table().get((level, request.method), ())
        if candidate.fits(request)
    ]
    if operation_name := request.args.get("x-id"):
        return next(
            (candidate for candidate in fitting if candidate.name == operation_name),
            Operation(operation_name),
        )
    return max(fitting, key=Operation.count_conditions, default=None)


@functools.cache
def _build_table() -> dict[tuple[Level, str], list[Operation]]:
    """Return a mapping of (level, HTTP method) to the operations in botocore's model."""
    model = botocore.session.get_session().get_service_model("s3")
    table: dict[tuple[Level, str], list[Operation]] = {}
    for name in model.operation_names:
        operation = model.operation_model(name)
        if not operation.deprecated:  # PutBucketLifecycle has the same path as its successor
            path = urlsplit(operation.http["requestUri"]).path
            # /WriteGetObjectResponse is treated as a request on a bucket of that name.
            level: Level = (
                "service" if path == "/" else "object" if path.count("/") > 1 else "bucket"
            )
            table.setdefault((level, operation.http["method"]), []).append(
                _read_operation(operation)
            )
    return table


def _read_operation(operation: OperationModel) -> Operation:
    """Return an operation of botocore's model as :class:`Operation`."""
    static = tuple(parse_qsl(urlsplit(operation.http["requestUri"]).query, keep_blank_values=True))
    parameters: dict[str, set[str]] = {"querystring": set(), "header": set()}
    for member in operation.input_shape.required_members if operation.input_shape else ():
        location = operation.input_shape.members[member].serialization
        # Members in the path or the body do not distinguish operations: they go to a set that is
        # discarded.
        parameters.get(location.get("location"), set()).add(location.get("name", ""))
    headers = set() if static else parameters["header"]  # names in the query are enough
    return Operation(
        operation.name, static, frozenset(parameters["querystring"]), frozenset(headers)
    )


Answer = Callable[[Any, Request, str, str], Response]
"""Method that gets a request, its bucket and its key; these are empty texts if there are none."""


@dataclass(frozen=True, slots=True)
class Route:
    """A method that handles an operation, and the parts of requests that it respects."""

    answer: Answer
    heeds: frozenset[str]
    """Names of query parameters and headers, in lower case; ``x-amz-meta-*`` means all names that
    start with ``x-amz-meta-``."""


ROUTES: dict[str, Route] = {}
"""Mapping of an operation's name to its route."""

_ALWAYS = frozenset(
    # Signatures, framing of the body and the caller's name: other modules respect these.
    "x-amz-date x-amz-content-sha256 x-amz-security-token x-amz-decoded-content-length "
    "x-amz-trailer x-amz-te x-amz-expected-bucket-owner x-amz-sdk-checksum-algorithm "
    # Accepted without effect: no one pays for requests here, and no object is in an archive.
    "x-amz-request-payer x-amz-user-agent x-amz-optional-object-attributes "
    # Sent by AWS's C++ SDK, which pyarrow uses, about the SDK's own model.
    "x-amz-api-version".split()
)
_SIGNING = frozenset({"AWSAccessKeyId", "Signature", "Expires", "x-id"})
_CONDITIONS = frozenset(
    {"if-match", "if-none-match", "if-modified-since", "if-unmodified-since", "range"}
)


def operation(*names: str, heeds: str | Iterable[str] = ()) -> Callable[[Answer], Answer]:
    """Register the decorated method as the one that handles the operations ``names``.

    Args:
        names: names of operations, such as ``GetObject``.
        heeds: names of the query parameters and headers that the method respects.

    Raises:
        ValueError: another method is already registered for an operation.
    """
    heed_names = frozenset(heeds.split() if isinstance(heeds, str) else heeds)

    def register(answer: Answer) -> Answer:
        for name in names:
            if ROUTES.setdefault(name, Route(answer, heed_names)).answer is not answer:
                raise ValueError(f"{name} has two methods that handle it")
        return answer

    return register


def find_handler(level: Level, request: Request) -> Answer:
    """Return the method that handles a request.

    Raises ``NotImplemented`` (status 501) if there is none, or if it ignores a part of the request.
    """
    s3_operation = find_operation(level, request)
    if s3_operation is None:
        raise _make_unimplemented_error(f"{request.method} on this resource")
    route = ROUTES.get(s3_operation.name)
    if route is None:
        raise _make_unimplemented_error(s3_operation.name)
    for name in _iter_relevant_names(s3_operation, request):
        if not is_heeded(route, name):
            raise _make_unimplemented_error(f"{name} of {s3_operation.name}")
    return route.answer


def is_heeded(route: Route, name: str) -> bool:
    """Return whether the operation's method respects that query parameter or header."""
    prefixes = (pattern[:-1] for pattern in route.heeds if pattern.endswith("*"))
    return name in route.heeds or any(name.startswith(prefix) for prefix in prefixes)


def _iter_relevant_names(s3_operation: Operation, request: Request) -> Iterator[str]:
    """Iterate over the query parameters and headers that the handler must respect."""
    static = {name for name, _ in s3_operation.static}
    for name in request.args:
        if name not in static and name not in _SIGNING and not name.startswith("X-Amz-"):
            yield name
    reads = request.method in ("GET", "HEAD")
    for header, _ in request.headers:
        name = header.lower()
        special = name.startswith("x-amz-") or (name in _CONDITIONS and not reads)
        if special and name not in _ALWAYS:
            yield name


def _make_unimplemented_error(feature: str) -> ApiError:
    message = f"The emulator's S3 does not implement {feature}."
    return ApiError("NotImplemented", message, 501)  # S3's status, which botocore does not retry
