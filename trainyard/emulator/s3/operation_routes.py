"""The table of methods that answer operations, and of the request's parts that they respect.

Each method registers itself where it is written. Any other part of a request (a parameter, a
header) is refused by name before anything happens: an answer that ignores it would be wrong.
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

# S3's XML, written and read.

NAMESPACE = "http://s3.amazonaws.com/doc/2006-03-01/"
_PREFIX = f"{{{NAMESPACE}}}"
ILLEGAL = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that XML 1.0 cannot hold but a key can: listings then use url encoding."""


class Response(AnyResponse):
    """A response without a default Content-Type: S3 sends none without a document."""

    default_mimetype = None


OWNER = [("ID", "emulator"), ("DisplayName", "emulator")]
"""Owner of every bucket and object."""

Tree: TypeAlias = "Iterable[tuple[str, str | int | bool | Tree]]"
"""Children in order: (tag, text) or (tag, children)."""


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
    for tag, value in children:
        child = ElementTree.SubElement(parent, tag)
        if isinstance(value, bool):
            child.text = "true" if value else "false"
        elif isinstance(value, str | int):
            child.text = ILLEGAL.sub("\ufffd", str(value))
        else:
            _fill(child, value)


# The operations of S3, found for a request by botocore's model of the service.
#
# S3 distinguishes operations by names in the query: ``DELETE /bucket?metadataTable`` is another
# operation than ``DELETE /bucket``. The model knows all of them, so an unsupported operation is
# refused by its own name, and is never mistaken for the plain one.

Level = Literal["service", "bucket", "object"]


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation of S3, as it appears in requests."""

    name: str
    """Name of the operation, e.g. ``GetObject``."""
    static: tuple[tuple[str, str], ...] = ()
    """Fixed names in its query, each with its value, or an empty text for any value."""
    query: frozenset[str] = frozenset()
    """Further names that its query must have."""
    headers: frozenset[str] = frozenset()
    """Headers that distinguish it from other operations on the same path."""

    def fits(self, request: Request) -> bool:
        args = request.args
        return (
            all(k in args and v in ("", args[k]) for k, v in self.static)
            and all(name in args for name in self.query)
            and all(name in request.headers for name in self.headers)
        )

    def weight(self) -> int:
        """Return the number of conditions: of several operations that fit, the most specific is
        meant.
        """
        return len(self.static) + len(self.query) + len(self.headers)


def operation_of(level: Level, request: Request) -> Operation | None:
    """Return the operation that the request names; None if S3 has none with that method there.

    A client may name the operation by ``x-id``; otherwise S3's own rule decides.
    """
    fitting = [
        candidate
        for candidate in _table().get((level, request.method), ())
        if candidate.fits(request)
    ]
    if operation_name := request.args.get("x-id"):
        return next(
            (candidate for candidate in fitting if candidate.name == operation_name),
            Operation(operation_name),
        )
    return max(fitting, key=Operation.weight, default=None)


@functools.cache
def _table() -> dict[tuple[Level, str], list[Operation]]:
    model = botocore.session.get_session().get_service_model("s3")
    table: dict[tuple[Level, str], list[Operation]] = {}
    for name in model.operation_names:
        operation = model.operation_model(name)
        if not operation.deprecated:  # PutBucketLifecycle: the same path as its successor
            path = urlsplit(operation.http["requestUri"]).path
            # /WriteGetObjectResponse counts as a request on a bucket of that name.
            level: Level = (
                "service" if path == "/" else "object" if path.count("/") > 1 else "bucket"
            )
            table.setdefault((level, operation.http["method"]), []).append(_read(operation))
    return table


def _read(operation: OperationModel) -> Operation:
    static = tuple(parse_qsl(urlsplit(operation.http["requestUri"]).query, keep_blank_values=True))
    parameters: dict[str, set[str]] = {"querystring": set(), "header": set()}
    for member in operation.input_shape.required_members if operation.input_shape else ():
        location = operation.input_shape.members[member].serialization
        # What stands in the path or the body distinguishes no operations: its set is dropped.
        parameters.get(location.get("location"), set()).add(location.get("name", ""))
    headers = set() if static else parameters["header"]  # without these, it is found by name
    return Operation(
        operation.name, static, frozenset(parameters["querystring"]), frozenset(headers)
    )


Answer = Callable[[Any, Request, str, str], Response]
"""A method that gets the request, its bucket and its key; an empty text if there is none."""


@dataclass(frozen=True, slots=True)
class Route:
    answer: Answer
    heeds: frozenset[str]
    """Names of query parameters and headers, in lower case; ``x-amz-meta-*`` means all that start
    so."""


ROUTES: dict[str, Route] = {}
"""Routes by operation name."""

_ALWAYS = frozenset(
    # signatures, framing of the body, the caller's name: respected where these are handled
    "x-amz-date x-amz-content-sha256 x-amz-security-token x-amz-decoded-content-length "
    "x-amz-trailer x-amz-te x-amz-expected-bucket-owner x-amz-sdk-checksum-algorithm "
    # accepted without effect: nobody pays for requests here, and no object is in an archive
    "x-amz-request-payer x-amz-user-agent x-amz-optional-object-attributes "
    # sent by AWS's C++ SDK, and so by pyarrow, about its own model
    "x-amz-api-version".split()
)
_SIGNING = frozenset({"AWSAccessKeyId", "Signature", "Expires", "x-id"})
_CONDITIONS = frozenset(
    {"if-match", "if-none-match", "if-modified-since", "if-unmodified-since", "range"}
)


def operation(*names: str, heeds: str | Iterable[str] = ()) -> Callable[[Answer], Answer]:
    """Register the method that answers the operations of these names.

    Raises ValueError when another method is already registered.
    """
    heed_names = frozenset(heeds.split() if isinstance(heeds, str) else heeds)

    def register(answer: Answer) -> Answer:
        for name in names:
            if ROUTES.setdefault(name, Route(answer, heed_names)).answer is not answer:
                raise ValueError(f"{name} is answered twice")
        return answer

    return register


def find(level: Level, request: Request) -> Answer:
    """Return the method for the request. Raises ``NotImplemented``, a 501, if there is none."""
    s3_operation = operation_of(level, request)
    if s3_operation is None:
        raise _unimplemented_error(f"{request.method} on this")
    route = ROUTES.get(s3_operation.name)
    if route is None:
        raise _unimplemented_error(s3_operation.name)
    for name in _iterate_names(s3_operation, request):
        if not is_heeded(route, name):
            raise _unimplemented_error(f"{name} of {s3_operation.name}")
    return route.answer


def is_heeded(route: Route, name: str) -> bool:
    """Return whether the operation's method respects that parameter or header."""
    prefixes = (pattern[:-1] for pattern in route.heeds if pattern.endswith("*"))
    return name in route.heeds or any(name.startswith(prefix) for prefix in prefixes)


def _iterate_names(s3_operation: Operation, request: Request) -> Iterator[str]:
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


def _unimplemented_error(feature: str) -> ApiError:
    message = f"The emulator's S3 does not implement {feature}."
    return ApiError("NotImplemented", message, 501)  # S3's own status; botocore does not retry it
